"""The same promises with real networks in single precision, trained batched, against plain torch loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from parts import Parts
from tequio.algorithms.baselines.unfederated import Centralised
from tequio.algorithms.horizontal.fedavg import FedAvg, FedSGD
from tequio.algorithms.horizontal.feddyn import FedDyn
from tequio.algorithms.horizontal.fednova import FedNova
from tequio.algorithms.horizontal.fedprox import FedProx
from tequio.algorithms.horizontal.scaffold import Scaffold
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining
from tequio.learners.zoo import MLP

LEARNER = MLP(hidden=(7,))
LOCAL = LocalTraining(epochs=2, batch=8, learning_rate=0.1, momentum=0.5)
DRAW = np.random.default_rng(3)
FEATURES = DRAW.standard_normal((90, 5)).astype(np.float32)
LABELS = (FEATURES @ DRAW.standard_normal((5, 3))).argmax(axis=1)


def federation(sizes: list[int], seed: int = 9) -> Federation:
    schema = Schema.of_numbers("abcde", Target("classes", ("x", "y", "z")))
    rows = np.split(np.arange(90), np.cumsum(sizes)[:-1])
    population = Population(Dataset.of(schema, FEATURES, LABELS), Partition.of(rows), Split(test=0.0), seed)
    engine = InlineEngine()
    engine.open(population)
    return Federation(population, engine, seed)


def play(algorithm, federation: Federation, rounds: int = 1) -> dict[str, np.ndarray]:
    state = algorithm.start(federation)
    for federation.round in range(1, rounds + 1):
        state = algorithm.round(federation, state)
    return state.model


def network(model: dict[str, np.ndarray]) -> nn.Module:
    """The network written out again, with the arrays in their order."""
    module = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    for parameter, values in zip(module.parameters(), model.values(), strict=True):
        parameter.data = torch.tensor(values)
    return module


def assert_close(model: dict[str, np.ndarray], module: nn.Module, tolerance: float) -> None:
    for values, parameter in zip(model.values(), module.parameters(), strict=True):
        np.testing.assert_allclose(values, parameter.detach().numpy(), rtol=0, atol=tolerance)


def same_bytes(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return list(first) == list(second) and all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.parametrize("algorithm", [FedAvg, FedProx, Scaffold, FedNova, Centralised])
def test_one_party_with_all_rows_trains_as_if_centralised(algorithm) -> None:
    options = {"proximal": 0.0} if algorithm is FedProx else {}
    model = play(algorithm(**options, **Parts(LEARNER, LOCAL)), federation([90]))

    module = network(FedAvg(**Parts(LEARNER)).start(federation([90])).model)
    optimizer, order_rng = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5), stream(9, "train", 1, 0)
    for _ in range(2):
        order = order_rng.permutation(90)
        for first in range(0, 90, 8):
            rows = order[first:first + 8]
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(torch.tensor(FEATURES[rows])), torch.tensor(LABELS[rows])).backward()
            optimizer.step()
    assert_close(model, module, 2e-6)


def test_fedsgd_is_one_step_on_the_pooled_rows() -> None:
    model = play(FedSGD(**Parts(LEARNER, LOCAL)), federation([50, 3, 37]))
    module = network(FedAvg(**Parts(LEARNER)).start(federation([90])).model)
    nn.functional.cross_entropy(module(torch.tensor(FEATURES)), torch.tensor(LABELS)).backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    assert_close(model, module, 1e-7)


@pytest.mark.parametrize("sizes", [[50, 3, 37], [30, 30, 30]])
def test_corrections_of_zero_change_no_bit(sizes: list[int]) -> None:
    plain = play(FedAvg(**Parts(LEARNER, LOCAL)), federation(sizes))
    assert same_bytes(play(Scaffold(**Parts(LEARNER, LOCAL)), federation(sizes)), plain)
    assert same_bytes(play(FedProx(proximal=0.0, **Parts(LEARNER, LOCAL)), federation(sizes)), plain)


def test_fednova_with_equal_steps_is_federated_averaging() -> None:
    plain = play(FedAvg(**Parts(LEARNER, LOCAL)), federation([30, 30, 30]), rounds=3)
    normalised = play(FedNova(**Parts(LEARNER, LOCAL)), federation([30, 30, 30]), rounds=3)
    for name, values in plain.items():
        np.testing.assert_allclose(normalised[name], values, rtol=0, atol=2e-6)


@pytest.mark.parametrize("algorithm", [Scaffold, FedDyn, FedNova, FedProx])
def test_rounds_with_corrections_lower_the_loss(algorithm) -> None:
    made, everyone = algorithm(**Parts(LEARNER, LOCAL)), federation([50, 3, 37])
    state = made.start(everyone)
    before = made.score(everyone, state, everyone.population.dataset)["loss_sum"]
    after = made.score(everyone, state.next(play(made, everyone, rounds=10)), everyone.population.dataset)["loss_sum"]
    assert after < 0.5 * before
