"""Optimizers at the coordinator: two rounds of one weight, worked by hand, and equality with torch's optimizers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import toy

from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.algorithms.horizontal.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi

# Target 8 and rate 0.5: from w the one party's change is (8 - w) / 2, so the first change is 4.


def two_rounds(algorithm) -> list[float]:
    federation = toy.federation(toy.targets(8.0))
    first = toy.run(algorithm, federation)
    return [float(toy.weights(first)[0]), float(toy.weights(toy.one_more(algorithm, federation, first))[0])]


def test_momentum() -> None:
    # v = 4, w = 2; then change 3, v = 0.5 * 4 + 3 = 5, w = 2 + 2.5.
    assert two_rounds(FedAvgM(coordinator_rate=0.5, momentum=0.5, **toy.parts())) == [2.0, 4.5]


def test_adagrad() -> None:
    # tau 3, v = 9: m = 4, v = 9 + 16 = 25, w = 2 * 4 / (5 + 3) = 1; then change 3.5, v = 37.25.
    assert two_rounds(FedAdagrad(coordinator_rate=2.0, tau=3.0, **toy.parts())) == pytest.approx(
        [1.0, 1.0 + 2.0 * 3.5 / (math.sqrt(37.25) + 3.0)], abs=1e-15)


def test_adagrad_with_momentum() -> None:
    # m = 0.5 * 4 = 2, w = 4 * 2 / 8 = 1; then m = 0.5 * 2 + 0.5 * 3.5 = 2.75.
    assert two_rounds(FedAdagrad(coordinator_rate=4.0, tau=3.0, beta1=0.5, **toy.parts())) == pytest.approx(
        [1.0, 1.0 + 4.0 * 2.75 / (math.sqrt(37.25) + 3.0)], abs=1e-15)


def test_adam() -> None:
    # beta1 = beta2 = 0.5, tau 1, v = 1: m = 2, v = 0.5 + 8 = 8.5; then m = 1 + change / 2, v = 4.25 + change^2 / 2.
    first = 2.0 / (math.sqrt(8.5) + 1.0)
    change = (8.0 - first) / 2
    second = first + (1.0 + change / 2) / (math.sqrt(4.25 + change**2 / 2) + 1.0)
    algorithm = FedAdam(coordinator_rate=1.0, beta1=0.5, beta2=0.5, tau=1.0, **toy.parts())
    assert two_rounds(algorithm) == pytest.approx([first, second], abs=1e-15)


def test_yogi() -> None:
    # tau 1, v = 1 < 16: v = 1 + 0.5 * 16 = 9, m = 2, w = 8 * 2 / (3 + 1) = 4.
    # Then change 2, v = 9 > 4: v = 9 - 0.5 * 4 = 7, m = 0.5 * 2 + 0.5 * 2 = 2.
    algorithm = FedYogi(coordinator_rate=8.0, beta1=0.5, beta2=0.5, tau=1.0, **toy.parts())
    assert two_rounds(algorithm) == pytest.approx([4.0, 4.0 + 8.0 * 2.0 / (math.sqrt(7.0) + 1.0)], abs=1e-15)


def test_adam_with_bias_correction_is_torch_adam_on_the_negative_mean_change() -> None:
    import torch

    rows = toy.random_parties([4, 6, 5])
    algorithm = FedAdam(coordinator_rate=0.01, beta1=0.9, beta2=0.999, tau=1e-7, bias_correction=True,
                        weights="uniform", **toy.parts())
    state = toy.run(algorithm, toy.federation(rows), rounds=6)
    w = torch.zeros(3, dtype=torch.float64)
    optimizer = torch.optim.Adam([w], lr=0.01, betas=(0.9, 0.999), eps=1e-7)
    for _ in range(6):
        changes = [-0.5 * x.T @ (x @ w.numpy() - y) / len(y) for x, y in rows]
        w.grad = torch.tensor(-np.mean(changes, axis=0))
        optimizer.step()
    np.testing.assert_allclose(toy.weights(state), w.numpy(), rtol=1e-10)


def test_momentum_is_torch_sgd_on_the_negative_mean_change() -> None:
    import torch

    rows = toy.random_parties([4, 6, 5])
    state = toy.run(FedAvgM(coordinator_rate=0.7, momentum=0.8, **toy.parts()), toy.federation(rows), rounds=6)
    w = torch.zeros(3, dtype=torch.float64)
    optimizer = torch.optim.SGD([w], lr=0.7, momentum=0.8)
    for _ in range(6):
        changes = [-0.5 * x.T @ (x @ w.numpy() - y) / len(y) for x, y in rows]
        w.grad = torch.tensor(-np.average(changes, axis=0, weights=[4, 6, 5]))
        optimizer.step()
    np.testing.assert_allclose(toy.weights(state), w.numpy(), rtol=1e-10)


def test_momentum_of_zero_at_rate_one_is_federated_averaging() -> None:
    rows = toy.random_parties([4, 6, 5])
    plain = toy.run(FedAvg(**toy.parts()), toy.federation(rows), rounds=3)
    algorithm = FedAvgM(coordinator_rate=1.0, momentum=0.0, **toy.parts())
    np.testing.assert_array_equal(toy.weights(toy.run(algorithm, toy.federation(rows), rounds=3)), toy.weights(plain))
