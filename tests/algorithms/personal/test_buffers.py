"""Batch-norm statistics are no weights: whatever an algorithm does to weights, they become a mean of the parties'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_parts_of_models import LOCAL, federation, normalised

from parts import Parts
from tequio.algorithms.asynchronous.arrivals import FedBuff, SemiSynchronous
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.peer.peers import CyclicTransfer, Gossip
from tequio.algorithms.personal.apfl import Apfl
from tequio.algorithms.personal.ditto import Ditto
from tequio.algorithms.personal.fine_tuning import FineTuning
from tequio.algorithms.personal.flprotector import FLProtector
from tequio.algorithms.personal.ifca import Ifca
from tequio.algorithms.personal.per_fedavg import PerFedAvg
from tequio.algorithms.personal.pfedme import PFedMe
from tequio.federation.aggregators.coordinates import Median
from tequio.federation.clock import Clock
from tequio.federation.devices import Mobile
from tequio.federation.topology import Cyclic, Parallel
from tequio.learners.learner import LocalTraining

PLAIN = LocalTraining(epochs=2, batch=8, learning_rate=0.1)
STATISTICS = ("norm.running_mean", "norm.running_var")


def play(algorithm: Any, rounds: int = 1, topology: Any = None) -> Any:
    world = federation()
    if topology is not None:
        world.topology = topology
    if algorithm.needs_clock:
        world.clock = Clock(Mobile(), world.sizes.astype(float), None)
    state = algorithm.start(world)
    for _ in range(rounds):
        world.round += 1
        state = algorithm.round(world, state)
    return state.model


@pytest.mark.parametrize("algorithm", [
    Ditto(**Parts(normalised(), LOCAL)), FineTuning(**Parts(normalised(), LOCAL)),
    FLProtector(router="", weighting=False, **Parts(normalised(), LOCAL)),
    Ifca(clusters=1, **Parts(normalised(), LOCAL)), FedBuff(concurrency=4, buffer=4, **Parts(normalised(), LOCAL)),
    FedBuff(concurrency=4, buffer=4, coordinator_rate=7.0, **Parts(normalised(), LOCAL)),
    SemiSynchronous(concurrency=4, period=1e6, **Parts(normalised(), LOCAL))])
def test_statistics_are_those_of_federated_averaging(algorithm: Any) -> None:
    plain, ours = play(FedAvg(**Parts(normalised(), LOCAL))), play(algorithm)
    for name in STATISTICS:
        np.testing.assert_allclose((ours.get("0") or ours)[name], plain[name], rtol=1e-5, atol=1e-7)


def test_peers_mix_statistics_as_a_mean_or_a_median() -> None:
    plain, mixed = play(FedAvg(**Parts(normalised(), LOCAL))), play(Gossip(**Parts(normalised(), LOCAL)), 1, Parallel())
    for name in STATISTICS:
        np.testing.assert_allclose(mixed[name], plain[name], rtol=1e-5, atol=1e-7)
    robust = play(Gossip(**Parts(normalised(), LOCAL, aggregator=Median())), 3, Parallel())
    assert all(np.isfinite(values).all() for values in robust.values())


@pytest.mark.parametrize("algorithm", [
    PFedMe(pull=30.0, coordinator_rate=3.0, **Parts(normalised(), PLAIN)), Apfl(**Parts(normalised(), LOCAL)),
    PerFedAvg(**Parts(normalised(), PLAIN)), CyclicTransfer(**Parts(normalised(), LOCAL))])
def test_a_variance_stays_one(algorithm: Any) -> None:
    model = play(algorithm, 3, Cyclic() if isinstance(algorithm, CyclicTransfer) else None)
    assert all(np.isfinite(values).all() for values in model.values())
    assert (model["norm.running_var"] > 0).all()
    if isinstance(algorithm, Apfl | PerFedAvg):  # their own gradient steps leave statistics as they began
        assert (model["norm.running_var"] == 1).all()
