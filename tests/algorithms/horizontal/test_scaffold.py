"""SCAFFOLD: its first round is federated averaging; then control variates against an independent loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import toy

import tequio
from parts import Parts
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.horizontal.scaffold import ControlMemory, Scaffold
from tequio.errors import ConfigError
from tequio.federation.averaging import Averaged
from tequio.federation.exchange import Replies, Reply
from tequio.federation.selection import FixedParties
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = LocalTraining(epochs=2, batch=2, learning_rate=0.1)


@pytest.mark.parametrize("weights", ["size", "uniform"])
@pytest.mark.parametrize("control_from", ["path", "gradient"])
def test_with_zero_control_variates_it_is_federated_averaging_bit_for_bit(weights: str, control_from: str) -> None:
    rows = toy.random_parties([5, 9, 2])
    plain = toy.run(FedAvg(weights=weights, **toy.parts(LOCAL)), toy.federation(rows))
    algorithm = Scaffold(weights=weights, control_from=control_from, **toy.parts(LOCAL))
    assert toy.weights(toy.run(algorithm, toy.federation(rows))).tobytes() == toy.weights(plain).tobytes()


@pytest.mark.parametrize("control_from", ["path", "gradient"])
@pytest.mark.parametrize("coordinator_rate", [1.0, 0.5])
def test_rounds_with_some_parties_equal_the_paper_written_out(control_from: str, coordinator_rate: float) -> None:
    rows, steps, rate = toy.random_parties([4, 6, 5]), 3, 0.2
    algorithm = Scaffold(control_from=control_from, coordinator_rate=coordinator_rate, weights="uniform",
                         **toy.parts(LocalTraining(epochs=steps, batch=0, learning_rate=rate)))
    federation = toy.federation(rows)
    state = algorithm.start(federation)

    x, c, c_i = np.zeros(3), np.zeros(3), [np.zeros(3) for _ in rows]
    for cohort in ([0, 1, 2], [0, 2], [1], [0, 1, 2]):
        selector = FixedParties(tuple(str(party) for party in cohort))
        chosen = Scaffold(control_from=control_from, coordinator_rate=coordinator_rate, weights="uniform",
                          **Parts(algorithm.learner, algorithm.local, selector))
        state = toy.one_more(chosen, federation, state)
        changes, control_changes = [], []
        for party in cohort:
            features, target = rows[party]
            y = x.copy()
            for _ in range(steps):
                y -= rate * (features.T @ (features @ y - target) / len(target) - c_i[party] + c)
            if control_from == "gradient":
                renewed = features.T @ (features @ x - target) / len(target)
            else:
                renewed = c_i[party] - c + (x - y) / (steps * rate)
            changes.append(y - x)
            control_changes.append(renewed - c_i[party])
            c_i[party] = renewed
        x, c = x + coordinator_rate * np.mean(changes, axis=0), c + np.sum(control_changes, axis=0) / len(rows)
    np.testing.assert_allclose(toy.weights(state), x, rtol=1e-12)
    np.testing.assert_allclose(state.memory["control"]["w"], c, rtol=1e-12)
    own = toy.kept(federation, ControlMemory)
    assert sorted(own) == [0, 1, 2]
    for party, kept in own.items():
        np.testing.assert_allclose(kept["control"]["w"], c_i[party], rtol=1e-12)


def test_a_party_estimates_its_mean_gradient_with_momentum_too() -> None:
    # A party whose gradient is constant, so that the mean gradient of any path is known: x = 1e-9 leaves only -x y.
    rows = [(np.full(4, 1e-9), np.full(4, 1e9))]
    local = LocalTraining(epochs=3, batch=2, learning_rate=0.1, momentum=0.9)
    federation = toy.federation(rows)
    toy.run(Scaffold(**toy.parts(local)), federation)
    assert toy.kept(federation, ControlMemory)[0]["control"]["w"] == pytest.approx([-1.0], rel=1e-9)


def test_weights_by_size_weigh_control_variates_alike() -> None:
    # Targets 2 (three rows) and -2 (one row): gradients at 0 are -2 and 2, so c = (3 * -2 + 1 * 2) / 4.
    algorithm = Scaffold(weights="size", **toy.parts())
    state = toy.run(algorithm, toy.federation(toy.targets([2.0, 2.0, 2.0], -2.0)))
    assert state.memory["control"]["w"] == [-1.0]


@pytest.mark.parametrize(("weights", "share"), [("size", 0.75), ("uniform", 0.5)])
def test_noise_in_nobodys_name_is_no_answer(weights: str, share: float) -> None:
    algorithm, federation = Scaffold(weights=weights, **toy.parts()), toy.federation(toy.targets([2.0] * 3, -2.0))

    def share_of(party: int) -> float:
        replies = Replies((Reply(party, {}),))
        return algorithm.share_of_all(Averaged(federation, algorithm.start(federation), replies, np.ones(1), {}))

    assert (share_of(0), share_of(-1)) == (share, 0.0)


def test_control_removes_the_drift_that_federated_averaging_ends_in() -> None:
    # Two parties of unequal curvature: averaging many local steps ends at the mean of the parties' optima (5), not at
    # the optimum of the mean loss, (1 * 0 + 9 * 10) / (1 + 9) = 9.
    rows = [([1.0], [0.0]), ([3.0], [30.0])]
    local = LocalTraining(epochs=40, batch=0, learning_rate=0.1)
    plain = toy.run(FedAvg(**toy.parts(local)), toy.federation(rows), rounds=60)
    controlled = toy.run(Scaffold(**toy.parts(local)), toy.federation(rows), rounds=60)
    assert toy.weights(plain)[0] == pytest.approx(5.0, abs=0.1)
    assert toy.weights(controlled)[0] == pytest.approx(9.0, abs=1e-3)


def test_what_it_cannot_work_with_is_refused_before_work_starts(tmp_path: Path) -> None:
    federation, adam = toy.federation(toy.targets(1.0)), LocalTraining(optimizer="adam")
    with pytest.raises(ConfigError, match="which 'adam' hides"):
        Scaffold(**toy.parts(adam)).start(federation)
    assert Scaffold(control_from="gradient", **toy.parts(adam)).start(federation)
    with pytest.raises(ConfigError, match="scaffold works on gradients; for 'kmeans' use "):
        tequio.run(algorithm="scaffold", learner="kmeans", data="iris", rounds=1, output={"folder": str(tmp_path)})
    assert not any(tmp_path.iterdir())
