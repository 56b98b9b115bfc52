"""k-means against scikit-learn's Lloyd step and a plain loop over the formulas."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import cluster

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.learners import kmeans
from tequio.learners.kmeans import KMeans, assign, inertia, initialise, local_step, squared_distances
from tequio.learners.learner import Correction, LocalTraining
from tequio.learners.metrics import merge, summarise


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def table(features: Any) -> Dataset:
    names = [f"x{column}" for column in range(features.shape[1])]
    return Dataset.of(Schema.of_numbers(names, Target("none")), features)


def blobs(rows: int = 200, columns: int = 5, seed: int = 0) -> np.ndarray:
    random = rng(seed)
    centres = random.normal(scale=4.0, size=(4, columns))
    return centres[random.integers(0, 4, rows)] + random.normal(size=(rows, columns))


def merged(centroids: np.ndarray, replies: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    counts = sum(counts for counts, _ in replies)
    sums = sum(counts[:, None] * moved for counts, moved in replies)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centroids)


def lloyd(features: Any, centroids: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        fitted = cluster.KMeans(len(centroids), init=centroids, n_init=1, max_iter=1, tol=0).fit(features)
    return fitted.cluster_centers_


@pytest.mark.parametrize("parties", [1, 3, 50])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_merged_local_steps_equal_a_lloyd_step_on_pooled_rows(parties: int, make: Any) -> None:
    features = blobs()
    start = features[:6] + 0.01  # near rows, because scikit-learn moves a centroid that has none
    shares = np.array_split(rng().permutation(len(features)), parties)
    data = table(make(features))
    replies = [local_step(start, data.take(share), 1, 0, 1.0, rng()) for share in shares]
    np.testing.assert_allclose(merged(start, replies), lloyd(features, start), rtol=1e-12, atol=1e-12)
    assert sum(counts.sum() for counts, _ in replies) == len(features)


def plain_local_step(features: np.ndarray, start: np.ndarray, epochs: int, batches: list[np.ndarray],
                     rate: float) -> tuple[np.ndarray, np.ndarray]:
    centroids, sizes = start.copy(), np.zeros(len(start))
    for _ in range(epochs):
        sizes = np.zeros(len(start))
        for batch in batches:
            nearest = [int(np.argmin(((row - centroids) ** 2).sum(axis=1))) for row in features[batch]]
            for k in set(nearest):
                own = features[batch][np.array(nearest) == k]
                sizes[k] += len(own)
                centroids[k] = centroids[k] + rate * len(own) / sizes[k] * (own.mean(axis=0) - centroids[k])
    return sizes, centroids


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("batch", [7, 64, 200, 1000])
@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_batches_epochs_and_rate_follow_the_formulas(epochs: int, batch: int, rate: float) -> None:
    features, start = blobs(), blobs(5, seed=9)
    counts, moved = local_step(start, table(features), epochs, batch, rate, rng(3))
    # One deal of rows to batches serves every epoch.
    order = rng(3).permutation(len(features))
    batches = [order[begin:begin + batch] for begin in range(0, len(features), batch)]
    expected_counts, expected = plain_local_step(features, start, epochs, batches, rate)
    np.testing.assert_array_equal(counts, expected_counts)
    np.testing.assert_allclose(moved, expected, rtol=1e-10)


def test_rows_as_stored_without_an_rng() -> None:
    features, start = blobs(), blobs(5, seed=9)
    batches = [np.arange(begin, begin + 50) for begin in range(0, 200, 50)]
    _, moved = local_step(start, table(features), 1, 50, 1.0, None)
    np.testing.assert_allclose(moved, plain_local_step(features, start, 1, batches, 1.0)[1], rtol=1e-10)


def test_a_step_by_hand() -> None:
    data = table(np.array([[0.0], [2.0], [10.0]]))
    start = np.array([[1.0], [8.0], [100.0]])
    counts, moved = local_step(start, data, 1, 0, 0.5, None)
    assert counts.tolist() == [2, 1, 0]
    assert moved.tolist() == [[1.0], [9.0], [100.0]]
    assert start.tolist() == [[1.0], [8.0], [100.0]]
    assert inertia(start, data) == 1.0 + 1.0 + 4.0


def test_ties_go_to_the_lowest_index() -> None:
    data = table(np.array([[1.0, 1.0], [3.0, 0.0]]))
    assert assign(np.array([[2.0, 1.0], [0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]), data).tolist() == [0, 0]


def test_a_party_without_rows_moves_nothing() -> None:
    data, start = table(blobs()).take([]), blobs(3)
    counts, moved = local_step(start, data, 2, 0, 1.0, rng())
    assert counts.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(moved, start)
    assert assign(start, data).shape == (0,)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, lambda rows: rows.astype(np.float32)],
                         ids=["dense", "sparse", "single"])
def test_distances_do_not_depend_on_storage_or_chunks(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmeans, "_CHUNK_VALUES", 35)
    # Far from the origin, where squares are large and their differences small.
    features, centroids = (blobs() + 1000.0).astype(np.float32).astype(float), blobs(4, seed=9) + 1000.0
    data = table(make(features))
    every = ((features[:, None, :] - centroids) ** 2).sum(axis=2)
    np.testing.assert_array_equal(assign(centroids, data), every.argmin(axis=1))
    np.testing.assert_allclose(squared_distances(centroids, data), every.min(axis=1), rtol=1e-6, atol=1e-8)
    assert inertia(centroids, data) == pytest.approx(every.min(axis=1).sum(), rel=1e-6)


def test_learner_alone_equals_lloyd_steps() -> None:
    features = blobs()
    start = features[:6] + 0.01
    trained = KMeans(6).train({"centroids": start}, table(features), LocalTraining(epochs=2, batch=0), rng())
    once = lloyd(features, start)
    np.testing.assert_allclose(trained.model["centroids"], lloyd(features, once), rtol=1e-12, atol=1e-12)
    assert (trained.steps, trained.rows) == (2, 200)
    assert trained.loss == pytest.approx(inertia(once, table(features)) / 200)


def test_steps_count_batches() -> None:
    trained = KMeans(2).train({"centroids": blobs(2)}, table(blobs()), LocalTraining(epochs=3, batch=30), rng())
    assert trained.steps == 3 * 7


def test_evaluation_adds_up_and_ignores_labels() -> None:
    features, model = blobs(), {"centroids": blobs(3, seed=9)}
    schema = Schema.of_numbers([f"x{column}" for column in range(5)], Target("classes", ("a", "b")))
    data = Dataset.of(schema, features, np.zeros(200, dtype=int))
    parts = [KMeans(3).evaluate(model, data.take(share)) for share in np.array_split(np.arange(200), 3)]
    assert summarise(schema.target, merge(parts)) == pytest.approx({"inertia": inertia(model["centroids"], data) / 200})
    np.testing.assert_array_equal(KMeans(3).predict(model, data), assign(model["centroids"], data))


def test_starts_follow_the_statistics() -> None:
    low, high = np.array([0.0, -5.0]), np.array([1.0, 5.0])
    drawn = initialise("uniform", {"min": low, "max": high}, 4000, rng())["centroids"]
    assert (drawn >= low).all()
    assert (drawn <= high).all()
    np.testing.assert_allclose(drawn.mean(axis=0), [0.5, 0.0], atol=0.2)
    drawn = initialise("normal", {"mean": [10.0, -3.0], "sd": [2.0, 0.0]}, 4000, rng())["centroids"]
    np.testing.assert_allclose(drawn.mean(axis=0), [10.0, -3.0], atol=0.2)
    np.testing.assert_allclose(drawn.std(axis=0), [2.0, 0.0], atol=0.1)


def test_the_start_without_statistics_keeps_to_its_box() -> None:
    schema = Schema.of_images((1, 4, 4), ("a", "b"))
    learner = KMeans(clusters=30, low=-2.0, high=-1.0)
    centroids = learner.initial(schema, rng())["centroids"]
    assert centroids.shape == (30, 16)
    assert (centroids.min() >= -2.0, centroids.max() <= -1.0) == (True, True)
    np.testing.assert_array_equal(centroids, learner.initial(schema, rng())["centroids"])


@pytest.mark.parametrize(("start", "statistics", "error", "said"), [
    ("unifrom", {}, ConfigError, "did you mean 'uniform'"),
    ("uniform", {"min": [0.0]}, DataError, "without the columns' max"),
    ("normal", {"mean": [0.0, 1.0], "sd": [1.0]}, DataError, "one each a column"),
    ("uniform", {"min": [0.0], "max": [np.inf]}, DataError, "not finite"),
    ("uniform", {"min": [1.0], "max": [0.0]}, DataError, "no room"),
    ("normal", {"mean": [1.0], "sd": [-1.0]}, DataError, "no room"),
])
def test_wrong_statistics_are_refused(start: Any, statistics: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        initialise(start, statistics, 3, rng())


def test_what_k_means_cannot_do_is_refused() -> None:
    learner, data, model = KMeans(2), table(blobs()), {"centroids": blobs(2)}
    with pytest.raises(ConfigError, match="gradient learner such as 'logistic'"):
        learner.train(model, data, LocalTraining(), rng(), correction=Correction(pull=0.1))
    with pytest.raises(ConfigError, match="counts epochs, not steps"):
        learner.train(model, data, LocalTraining(steps=3), rng())
    with pytest.raises(DataError, match="no rows"):
        learner.train(model, data.take([]), LocalTraining(), rng())
    with pytest.raises(DataError, match="do not fit"):
        assign(blobs(2, columns=4), data)
    with pytest.raises(DataError, match="'colour' is categorical"):
        learner.initial(Schema((Feature("colour", ("red", "green")),), Target("none")), rng())
