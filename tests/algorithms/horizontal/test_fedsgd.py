"""FedSGD is one step on the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
import toy

from tequio.algorithms.horizontal.fedsgd import FedSGD
from tequio.errors import ConfigError
from tequio.federation.algorithm import Parts
from tequio.learners.kmeans import KMeans
from tequio.learners.learner import LocalTraining


def test_a_round_is_one_full_batch_step_on_pooled_rows() -> None:
    rows = toy.random_parties([6, 1, 11])
    local = LocalTraining(epochs=5, batch=2, momentum=0.9, optimizer="adam", learning_rate=0.2, weight_decay=0.03)
    state = toy.run(FedSGD(parts=toy.parts(local)), toy.federation(rows), rounds=3)
    x, y = np.concatenate([part[0] for part in rows]), np.concatenate([part[1] for part in rows])
    w = np.zeros(3)
    for _ in range(3):
        w = w - 0.2 * (x.T @ (x @ w - y) / len(y) + 0.03 * w)
    np.testing.assert_allclose(toy.weights(state), w, rtol=1e-13)


def test_uniform_weights_average_the_gradients_alike() -> None:
    state = toy.run(FedSGD(weights="uniform", parts=toy.parts()), toy.federation(toy.targets([2.0, 2.0], -1.0)))
    assert toy.weights(state) == [0.25]


def test_a_learner_without_gradients_is_refused_before_work_starts() -> None:
    with pytest.raises(ConfigError, match="'fedsgd' works on gradients, and the learner 'KMeans' has none"):
        FedSGD(parts=Parts(KMeans())).start(toy.federation(toy.targets(1.0)))
