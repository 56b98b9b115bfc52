"""Federated averaging: hand-worked means, equality with centralised training, and mixing of local and global models."""

from __future__ import annotations

import numpy as np
import pytest
import toy

from tequio.algorithms.horizontal.fedavg import FedAvg, FedAvgMix
from tequio.data.partition import Split
from tequio.federation.evaluation import OwnModel
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining


@pytest.mark.parametrize(("rule", "expected"), [("size", (2 * 1.0 + 1 * -0.5) / 3), ("uniform", (1.0 - 0.5) / 2)])
def test_the_mean_is_weighted_by_rows_or_uniform(rule: str, expected: float) -> None:
    # From 0 with rate 0.5: two rows of target 2 go to 1, one row of target -1 goes to -0.5.
    state = toy.run(FedAvg(weights=rule, **toy.parts()), toy.federation(toy.targets([2.0, 2.0], -1.0)))
    assert toy.weights(state) == pytest.approx([expected], abs=1e-15)


def test_the_record_has_the_mean_training_loss_by_rows() -> None:
    # After training as above: errors of 1 and 0.5, so losses of 0.5 (two rows) and 0.125 (one row).
    events: list[tuple[str, dict[str, object]]] = []
    federation = toy.federation(toy.targets([2.0, 2.0], -1.0))
    federation.record = lambda *event: events.append(event)
    toy.run(FedAvg(**toy.parts()), federation)
    assert [facts["loss"] for kind, facts in events if kind == "exchange"] == [pytest.approx((2 * 0.5 + 0.125) / 3)]


def test_one_party_with_all_rows_equals_an_independent_torch_loop() -> None:
    import torch

    (features, target), = toy.random_parties([23], columns=4)
    local = LocalTraining(epochs=3, batch=5, learning_rate=0.05, momentum=0.8, weight_decay=0.01)
    state = toy.run(FedAvg(**toy.parts(local)), toy.federation([(features, target)], seed=11))

    w = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.05, momentum=0.8, weight_decay=0.01)
    x, y, order_rng = torch.tensor(features), torch.tensor(target), stream(11, "train", round=1, party=0)
    for _ in range(3):
        order = order_rng.permutation(23)
        for first in range(0, 23, 5):
            rows = order[first:first + 5]
            optimizer.zero_grad()
            ((x[rows] @ w - y[rows]) ** 2).mean().div(2).backward()
            optimizer.step()
    np.testing.assert_allclose(toy.weights(state), w.detach().numpy(), rtol=0, atol=1e-14)


def test_a_round_equals_averaging_models_in_numpy() -> None:
    rows = toy.random_parties([7, 3, 5])
    state = toy.run(FedAvg(**toy.parts()), toy.federation(rows), rounds=4)
    w = np.zeros(3)
    for _ in range(4):
        local = [w - 0.5 * x.T @ (x @ w - y) / len(y) for x, y in rows]
        w = np.average(local, axis=0, weights=[7, 3, 5])
    np.testing.assert_allclose(toy.weights(state), w, rtol=1e-13)


def test_mixing_starts_from_part_of_the_own_model() -> None:
    # Rate 0.5 halves the way to the target. Round 1: 0 -> 4 and 0 -> 0, mean 2. Round 2 with mix 0.25 starts at
    # 0.75 * 4 + 0.25 * 2 = 3.5 -> 5.75 and 0.75 * 0 + 0.25 * 2 = 0.5 -> 0.25, mean 3.
    federation, algorithm = toy.federation(toy.targets(8.0, 0.0)), FedAvgMix(mix=0.25, **toy.parts())
    state = toy.run(algorithm, federation)
    assert toy.weights(state) == [2.0]
    assert algorithm.answering(federation, state).parties == (0, 1)
    assert algorithm.answering(federation, algorithm.start(federation)).parties == ()
    state = toy.one_more(algorithm, federation, state)
    assert toy.weights(state) == [3.0]
    assert {party: own["model"]["w"].tolist() for party, own in toy.kept(federation, OwnModel).items()} == {
        0: [5.75], 1: [0.25]}


def test_without_a_mix_the_model_replaces_and_parties_keep_nothing() -> None:
    federation = toy.federation(toy.targets(8.0, 0.0))
    state = toy.run(FedAvg(**toy.parts()), federation, rounds=2)
    assert toy.weights(state) == [3.0 - 0.0]  # 2 -> 5 and 2 -> 1
    assert federation.engine.states() == {}


def test_parties_evaluate_the_model_they_would_start_from() -> None:
    split = Split(validation=0.0, test=0.5)
    federation, algorithm = toy.federation(toy.targets([8.0, 8.0]), split=split), FedAvgMix(mix=0.5, **toy.parts())
    state = toy.run(algorithm, federation, rounds=2)
    # Round 1: 0 -> 4, and 4 is global too; round 2: 4 -> 6. A mix of own 6 and global 6.
    tally, = algorithm.evaluate(federation, state, "test", federation.everyone()).values()
    assert tally["squared_error"] == 4.0
    other = state.next({"w": np.array([2.0])})
    tally, = algorithm.evaluate(federation, other, "test", federation.everyone()).values()
    assert tally["squared_error"] == (8.0 - (6.0 + 2.0) / 2) ** 2
