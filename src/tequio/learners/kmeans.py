"""k-means: each party moves the centroids towards its own rows and says how many rows stand behind each.

Everything is computed in double precision and in chunks that stay in the processor's cache, so that memory does not
grow with the rows and most of the time is spent in one matrix product. The last functions say how alike two clusterings
of the same rows are; both are given as one cluster number per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Interval
from scipy import sparse

from tequio.data.dataset import Target
from tequio.errors import ConfigError, DataError, nearest
from tequio.learners import metrics
from tequio.learners.descent import check_memory
from tequio.learners.learner import Trained, as_doubles, check_numeric, flat_features
from tequio.learners.private_training import refuse_private
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Array, Dataset, Matrix, Schema
    from tequio.learners.learner import Arrays, Correction, LocalTraining, Tally

_CHUNK_VALUES = 1 << 18
"""Doubles in a chunk: 2 MiB, about what a core's own cache holds."""

_BOUNDS = {"uniform": ("min", "max"), "normal": ("mean", "sd")}

Start = Literal["uniform", "normal"]


@register("learner", "kmeans", paper="Lloyd, 1982")
@dataclass(frozen=True)
class KMeans:
    """k-means clustering; one epoch with all rows in one batch is one step of Lloyd's method.

    The target, where there is one, is not looked at. Centroids start between `low` and `high`, a box drawn without
    looking at any row; `initialise` draws them from statistics that the parties share.

    Parameters:
        clusters: how many centroids
        party_rate: how far a party moves its centroids towards its rows; 1 goes all the way
        low: smallest value of a starting centroid
        high: largest value of a starting centroid
    """

    clusters: Annotated[int, Ge(1)] = 10
    party_rate: Annotated[float, Interval(gt=0, le=1)] = 1.0
    low: float = 0.0
    high: float = 1.0

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """Centroids drawn evenly between `low` and `high`."""
        check_numeric(schema, "kmeans")
        columns = len(schema.features)
        return initialise("uniform", {"min": np.full(columns, self.low), "max": np.full(columns, self.high)},
                          self.clusters, rng)

    def train(self, model: Arrays, data: Dataset, training: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None) -> Trained:
        """Run `training.epochs` epochs with batches of `training.batch` rows; beside these only `shuffle` applies."""
        refuse_private(training, "kmeans")
        if correction is not None:
            raise ConfigError("'kmeans' has no gradient to correct",
                              remedy="FedProx and SCAFFOLD need a gradient learner such as 'logistic'")
        check_memory(training, None)
        if training.steps:
            raise ConfigError("'kmeans' counts epochs, not steps", remedy="set local.epochs instead of local.steps")
        if not len(data):
            raise DataError(f"'{data.name}' has no rows to train on", remedy="raise the partition's minimum of rows")
        order = rng if training.shuffle else None
        _, centroids, inertia = _epochs(model["centroids"], data, training.epochs, training.batch, self.party_rate,
                                        order)
        batches = 1 if not training.batch else -(-len(data) // training.batch)
        return Trained({"centroids": centroids}, training.epochs * batches, inertia / len(data), len(data))

    def predict(self, model: Arrays, data: Dataset) -> NDArray[np.int64]:
        """The cluster of each row."""
        return assign(model["centroids"], data)

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        """Rows and the sum of their squared distances."""
        return metrics.tally(Target("none"), squared_distances(model["centroids"], data), None)


def initialise(start: Start, statistics: Mapping[str, ArrayLike], clusters: int, rng: np.random.Generator) -> Arrays:
    """Starting centroids from statistics of the columns: 'uniform' between min and max, or 'normal' by mean and sd."""
    if start not in _BOUNDS:
        raise ConfigError(f"there is no start called '{start}' for k-means", remedy=nearest(start, _BOUNDS))
    missing = [name for name in _BOUNDS[start] if name not in statistics]
    if missing:
        raise DataError(f"k-means cannot start '{start}' without the columns' {' and '.join(missing)}",
                        remedy="ask the parties for these statistics first")
    first, second = (np.asarray(statistics[name], dtype=np.float64).reshape(-1) for name in _BOUNDS[start])
    if first.shape != second.shape or not np.isfinite([first, second]).all():
        raise DataError(f"the columns' {' and '.join(_BOUNDS[start])} are not finite numbers, one each a column")
    if bool((second < (first if start == "uniform" else 0)).any()):
        raise DataError(f"the columns' {' and '.join(_BOUNDS[start])} leave no room to draw from")
    draw = rng.uniform if start == "uniform" else rng.normal
    return {"centroids": draw(first, second, size=(clusters, len(first)))}


def local_step(centroids: Array, data: Dataset, epochs: int, batch: int, party_rate: float,
               rng: np.random.Generator | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A party's part of a round (Kumar et al., 2020): rows behind each centroid in the last epoch, and the centroids.

    `batch` 0 takes all rows at once; `rng` deals rows to batches once for all epochs, None takes them as stored.
    Merging all parties' centroids weighted by counts, after one epoch of all rows at rate 1, is one Lloyd step on their
    pooled rows. A centroid without rows stays where it was.
    """
    counts, moved, _ = _epochs(centroids, data, epochs, batch, party_rate, rng)
    return counts, moved


def assign(centroids: Array, data: Dataset) -> NDArray[np.int64]:
    """The nearest centroid of each row; of several equally near the one of lowest index."""
    chunks = _chunks(centroids, _checked_features(centroids, data))
    return np.concatenate([np.zeros(0, np.int64), *(labels for _, labels, _ in chunks)])


def squared_distances(centroids: Array, data: Dataset) -> NDArray[np.float64]:
    """Each row's squared distance to its nearest centroid."""
    chunks = _chunks(centroids, _checked_features(centroids, data))
    return np.concatenate([np.zeros(0), *(distances for _, _, distances in chunks)])


def inertia(centroids: Array, data: Dataset) -> float:
    """Sum over rows of the squared distance to the nearest centroid."""
    return float(squared_distances(centroids, data).sum())


def _epochs(centroids: Array, data: Dataset, epochs: int, batch: int, rate: float,
            rng: np.random.Generator | None) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Counts of the last epoch, centroids, and the last epoch's squared distances as they were met."""
    centroids = np.array(centroids, dtype=np.float64)
    features = _checked_features(centroids, data)
    counts, distance = np.zeros(len(centroids), dtype=np.int64), float("nan")
    batches = _deal(len(data), batch, rng)
    for _ in range(epochs):
        # Sizes restart every epoch: otherwise late epochs would hardly move anything.
        counts, distance = np.zeros_like(counts), 0.0
        for rows in batches:
            batch_counts, means, batch_distance = _means(centroids, features if rows is None else features[rows])
            counts += batch_counts
            met = batch_counts > 0
            step = (rate * batch_counts[met] / counts[met])[:, None]
            centroids[met] = (1.0 - step) * centroids[met] + step * means[met]
            distance += batch_distance
    return counts, centroids, distance


def _deal(rows: int, batch: int, rng: np.random.Generator | None) -> list[Array | None]:
    """Row numbers of each batch; one None stands for all rows as they are."""
    if not batch or batch >= rows:
        return [None]
    order = np.arange(rows) if rng is None else rng.permutation(rows)
    return [order[start:start + batch] for start in range(0, rows, batch)]


def _means(centroids: NDArray[np.float64], features: Matrix) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Rows nearest to each centroid, their mean (0 where there is none), and the sum of their squared distances."""
    counts, sums, distance = np.zeros(len(centroids), dtype=np.int64), np.zeros_like(centroids), 0.0
    for rows, labels, distances in _chunks(centroids, features):
        sizes = np.bincount(labels, minlength=len(centroids))
        # Row k of this matrix picks the rows of cluster k, so the product adds them up without a loop over clusters.
        ends = np.concatenate([[0], np.cumsum(sizes)])
        members = sparse.csr_array((np.ones(len(labels)), np.argsort(labels, kind="stable"), ends),
                                   shape=(len(centroids), len(labels)))
        added = members @ rows
        sums += added.toarray() if sparse.issparse(added) else added
        counts += sizes
        distance += float(distances.sum())
    return counts, sums / np.maximum(counts, 1)[:, None], distance


def _chunks(centroids: Array, features: Matrix) -> Iterator[tuple[Matrix, NDArray[np.int64], NDArray[np.float64]]]:
    """Rows in double precision, their nearest centroids, and their squared distances, a cache-sized chunk at a time."""
    centroids = np.asarray(centroids, dtype=np.float64)
    columns = np.ascontiguousarray(-2.0 * centroids.T)
    squares = np.einsum("ij,ij->i", centroids, centroids)
    size = max(_CHUNK_VALUES // max(centroids.shape), 1)
    for start in range(0, features.shape[0], size):
        rows = as_doubles(features[start:start + size])
        # |x|^2 is the same for every centroid, so |c|^2 - 2xc already ranks them.
        ranks = rows @ columns + squares
        labels = ranks.argmin(axis=1)
        yield rows, labels, np.maximum(ranks[np.arange(len(labels)), labels] + _row_squares(rows), 0.0)


def _row_squares(rows: Matrix) -> NDArray[np.float64]:
    if sparse.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).reshape(-1)
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _checked_features(centroids: Array, data: Dataset) -> Matrix:
    features = flat_features(data)
    if centroids.ndim != 2 or centroids.shape[1] != features.shape[1]:
        raise DataError(f"centroids of shape {centroids.shape} do not fit '{data.name}', which has "
                        f"{features.shape[1]} columns")
    return features


def jaccard_by_number(first: ArrayLike, second: ArrayLike) -> float:
    """Mean Jaccard index of cluster k of one and cluster k of the other, as when both began from the same centroids.

    A cluster that is empty in both is left out.
    """
    indices, either = _jaccard_matrix(first, second)
    occurs = either.diagonal() > 0
    return float(indices.diagonal()[occurs].mean())


def jaccard_by_match(first: ArrayLike, second: ArrayLike) -> float:
    """Mean Jaccard index under the best one-to-one match of clusters (Hungarian method)."""
    from scipy.optimize import linear_sum_assignment

    indices, _ = _jaccard_matrix(first, second)
    matched = linear_sum_assignment(indices, maximize=True)
    clusters = max(len(np.unique(np.asarray(first))), len(np.unique(np.asarray(second))))
    return float(indices[matched].sum() / clusters)


def jaccard_of_pairs(first: ArrayLike, second: ArrayLike) -> float:
    """Pairs of rows together in both clusterings, among the pairs together in at least one of them."""
    overlap = overlaps(first, second)
    in_both = _pairs(overlap)
    in_either = _pairs(overlap.sum(axis=1)) + _pairs(overlap.sum(axis=0)) - in_both
    return in_both / in_either if in_either else 1.0


def overlaps(first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
    """Rows in cluster i of the first and cluster j of the second clustering, as a square matrix."""
    left, right = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    if left.shape != right.shape or left.ndim != 1:
        raise DataError(f"two clusterings of shapes {left.shape} and {right.shape} are not of the same rows")
    if not len(left):
        raise DataError("clusterings of no rows cannot be compared")
    clusters = int(max(left.max(), right.max())) + 1
    counts = np.bincount(left * clusters + right, minlength=clusters**2)
    return counts.reshape(clusters, clusters).astype(np.int64)


def _jaccard_matrix(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Jaccard index of every cluster of one with every cluster of the other, and the sizes of their unions."""
    overlap = overlaps(first, second)
    either = overlap.sum(axis=1)[:, None] + overlap.sum(axis=0)[None, :] - overlap
    return overlap / np.maximum(either, 1), either


def _pairs(sizes: Array) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
