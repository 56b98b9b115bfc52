"""FedDyn on one-dimensional quadratics, worked by hand and against an independent loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import toy

import tequio
from parts import Parts
from tequio.algorithms.horizontal.feddyn import DynMemory, FedDyn
from tequio.errors import ConfigError
from tequio.federation.selection import FixedParties
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from pathlib import Path

# Losses (w - b)^2 / 2 plus alpha/2 (w - received)^2 with alpha 1: rate 1 / (1 + alpha) reaches the minimum in one step.
EXACT = LocalTraining(batch=0, learning_rate=0.5)


def test_two_rounds_by_hand() -> None:
    # Targets 6 and 0, alpha 1, w = 0, g = 0, h = 0.
    # Round 1: party 0 minimises (w-6)^2/2 + w^2/2 at 3, g = -3 (indeed 3 - 6); party 1 stays at 0, g = 0.
    #          h = 0 - (3 + 0) / 2 = -1.5; w = 1.5 + 1.5 = 3.
    # Round 2: party 0 minimises (w-6)^2/2 + 3 w + (w-3)^2/2: w - 6 + 3 + w - 3 = 0 at 3, g stays -3;
    #          party 1 minimises w^2/2 + (w-3)^2/2 at 1.5, g = 0 - (1.5 - 3) = 1.5.
    #          h = -1.5 - (0 - 1.5) / 2 = -0.75; w = 2.25 + 0.75 = 3, the optimum of the mean loss.
    federation, algorithm = toy.federation(toy.targets(6.0, 0.0)), FedDyn(regularisation=1.0, **toy.parts(EXACT))
    state = toy.run(algorithm, federation)
    assert (toy.weights(state), state.memory["h"]["w"]) == ([3.0], [-1.5])
    assert [own["gradient"]["w"][0] for own in toy.kept(federation, DynMemory).values()] == [-3.0, 0.0]
    state = toy.one_more(algorithm, federation, state)
    assert (toy.weights(state), state.memory["h"]["w"]) == ([3.0], [-0.75])
    assert [own["gradient"]["w"][0] for own in toy.kept(federation, DynMemory).values()] == [-3.0, 1.5]


def test_rounds_with_some_parties_equal_the_paper_written_out() -> None:
    rows, alpha, rate, steps = toy.random_parties([4, 6, 5]), 0.3, 0.1, 4
    local = LocalTraining(epochs=steps, batch=0, learning_rate=rate)
    federation = toy.federation(rows)
    state = FedDyn(regularisation=alpha, **toy.parts(local)).start(federation)
    w, h, gradients = np.zeros(3), np.zeros(3), [np.zeros(3) for _ in rows]
    for cohort in ([0, 1, 2], [0, 2], [1], [1, 2]):
        selector = FixedParties(tuple(str(party) for party in cohort))
        algorithm = FedDyn(regularisation=alpha, **Parts(toy.LeastSquares(), local, selector))
        state = toy.one_more(algorithm, federation, state)
        trained = []
        for party in cohort:
            (x, y), mine = rows[party], w.copy()
            for _ in range(steps):
                mine -= rate * (x.T @ (x @ mine - y) / len(y) - gradients[party] + alpha * (mine - w))
            gradients[party] = gradients[party] - alpha * (mine - w)
            trained.append(mine)
        h = h - alpha / len(rows) * np.sum([mine - w for mine in trained], axis=0)
        w = np.mean(trained, axis=0) - h / alpha
    np.testing.assert_allclose(toy.weights(state), w, rtol=1e-12)
    np.testing.assert_allclose(state.memory["h"]["w"], h, rtol=1e-12)


def test_it_ends_at_the_optimum_of_the_mean_loss() -> None:
    # Curvatures 1 and 9 with optima 0 and 10: the mean loss is least at 9, the mean of the optima is 5.
    local = LocalTraining(epochs=40, batch=0, learning_rate=0.1)
    rows = [([1.0], [0.0]), ([3.0], [30.0])]
    state = toy.run(FedDyn(regularisation=1.0, **toy.parts(local)), toy.federation(rows), rounds=80)
    assert toy.weights(state)[0] == pytest.approx(9.0, abs=1e-6)


def test_a_learner_without_gradients_is_refused_before_work_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="feddyn works on gradients; for 'kmeans' use "):
        tequio.run(algorithm="feddyn", learner="kmeans", data="iris", rounds=1, output={"folder": str(tmp_path)})
    assert not any(tmp_path.iterdir())
