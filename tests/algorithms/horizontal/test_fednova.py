"""FedNova: equal steps are federated averaging; unequal ones no longer shift the optimum."""

from __future__ import annotations

import numpy as np
import pytest
import toy

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.horizontal.fednova import FedNova
from tequio.algorithms.horizontal.fedprox import FedProx
from tequio.errors import ConfigError, PartyError
from tequio.learners.learner import LocalTraining


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_with_equal_steps_it_is_federated_averaging(momentum: float, proximal: float) -> None:
    rows = toy.random_parties([6, 5, 6])  # three batches each
    local = LocalTraining(epochs=2, batch=2, learning_rate=0.05, momentum=momentum)
    plain = toy.run(FedProx(proximal=proximal, **toy.parts(local)), toy.federation(rows), rounds=3)
    normalised = toy.run(FedNova(proximal=proximal, **toy.parts(local)), toy.federation(rows), rounds=3)
    np.testing.assert_allclose(toy.weights(normalised), toy.weights(plain), rtol=1e-12)


def test_unequal_steps_by_hand() -> None:
    # Rate 0.5, target 8, from 0. One row, batch 1: 1 step, 0 -> 4. Three rows: 3 steps, 0 -> 4 -> 6 -> 7.
    # Per step 4 and 7/3; weights 1/4 and 3/4: mean 1/4 * 4 + 3/4 * 7/3 = 2.75; mean steps 1/4 * 1 + 3/4 * 3 = 2.5.
    local = LocalTraining(batch=1, learning_rate=0.5)
    state = toy.run(FedNova(**toy.parts(local)), toy.federation(toy.targets(8.0, [8.0, 8.0, 8.0])))
    assert toy.weights(state) == pytest.approx([2.75 * 2.5], abs=1e-14)


def test_momentum_by_hand() -> None:
    # Rate 0.5, momentum 0.5, target 8. Two steps: v = -8, w = 4; v = -4 - 4 = -8, w = 8. ||a||_1 = 1 + 1.5 = 2.5.
    # One step: w = 4, ||a||_1 = 1. Weights 2/3 and 1/3: (2/3 * 8 / 2.5 + 1/3 * 4) * (2/3 * 2.5 + 1/3 * 1) = 6.9333...
    local = LocalTraining(batch=1, learning_rate=0.5, momentum=0.5)
    state = toy.run(FedNova(**toy.parts(local)), toy.federation(toy.targets([8.0, 8.0], 8.0)))
    assert toy.weights(state) == pytest.approx([(2 / 3 * 3.2 + 4 / 3) * 2.0], abs=1e-14)


def test_parties_that_take_more_steps_do_not_shift_the_optimum() -> None:
    # Targets 0 and 10, weighed alike: the optimum is 5. The second party takes five times as many steps.
    own = {1: {"local": {"epochs": 10}}}
    local = LocalTraining(epochs=2, batch=0, learning_rate=0.01)
    plain = toy.run(FedAvg(**toy.parts(local)), toy.federation(toy.targets(0.0, 10.0), overrides=own), rounds=150)
    fair = toy.run(FedNova(**toy.parts(local)), toy.federation(toy.targets(0.0, 10.0), overrides=own), rounds=150)
    assert toy.weights(plain)[0] == pytest.approx(8.28, abs=0.05)
    assert toy.weights(fair)[0] == pytest.approx(5.0, abs=0.25)


def test_a_party_that_takes_no_step_changes_nothing_but_the_mean() -> None:
    federation = toy.federation(toy.targets(8.0, 8.0), overrides={1: {"local": {"epochs": 0}}})
    state = toy.run(FedNova(**toy.parts()), federation)
    assert toy.weights(state) == [(4.0 + 0.0) / 2 * (1 + 0) / 2]


def test_adam_is_refused_also_where_only_one_party_sets_it() -> None:
    with pytest.raises(ConfigError, match=r"set local\.optimizer = 'sgd'"):
        FedNova(**toy.parts(LocalTraining(optimizer="adam"))).start(toy.federation(toy.targets(1.0)))
    federation = toy.federation(toy.targets(1.0, 2.0), overrides={1: {"local": {"optimizer": "adam"}}})
    with pytest.raises(PartyError, match="party '1' failed in round 1"):
        toy.run(FedNova(**toy.parts()), federation)
