"""FedSGD is one step on the pooled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import toy

import tequio
from tequio.algorithms.horizontal.fedavg import FedSGD
from tequio.errors import ConfigError
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from pathlib import Path


def test_a_round_is_one_full_batch_step_on_pooled_rows() -> None:
    rows = toy.random_parties([6, 1, 11])
    local = LocalTraining(epochs=5, batch=2, momentum=0.9, optimizer="adam", learning_rate=0.2, weight_decay=0.03)
    state = toy.run(FedSGD(**toy.parts(local)), toy.federation(rows), rounds=3)
    x, y = np.concatenate([part[0] for part in rows]), np.concatenate([part[1] for part in rows])
    w = np.zeros(3)
    for _ in range(3):
        w = w - 0.2 * (x.T @ (x @ w - y) / len(y) + 0.03 * w)
    np.testing.assert_allclose(toy.weights(state), w, rtol=1e-13)


def test_uniform_weights_average_the_gradients_alike() -> None:
    state = toy.run(FedSGD(weights="uniform", **toy.parts()), toy.federation(toy.targets([2.0, 2.0], -1.0)))
    assert toy.weights(state) == [0.25]


def test_a_learner_without_gradients_is_refused_before_work_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fedsgd works on gradients; for 'kmeans' use "):
        tequio.run(algorithm="fedsgd", learner="kmeans", data="iris", rounds=1, output={"folder": str(tmp_path)})
    assert not any(tmp_path.iterdir())
