"""What robust aggregators share: inner products of updates, distances, and sums of updates with coefficients.

Updates of a cohort lie in a space of as many dimensions as there are updates. So whatever depends on distances and
angles alone is worked out on their Gram matrix, which goes through the updates once.

Aggregators that trust updates with close neighbours: Krum, multi-Krum and Bulyan, all from one Gram matrix.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine learning with adversaries: Byzantine tolerant gradient descent,
NeurIPS 2017. El Mhamdi, Guerraoui, Rouault: The hidden vulnerability of distributed learning in Byzantium, ICML 2018.

With f hostile parties Krum asks for 2f + 3 updates and Bulyan for 4f + 3. In a cohort that is too small for the share
that was named, f is the largest number that the cohort can stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import DataError
from tequio.federation.aggregation import Aggregator, Combined, unflatten
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.federation.aggregation import Updates
    from tequio.learners.learner import Arrays

    Matrix = NDArray[Any]
    Vector = NDArray[np.float64]
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload


_BLOCK_NUMBERS = 1 << 18


def columns_in_blocks(matrix: Matrix) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The columns in blocks that fit into a cache, in 64 bits."""
    width = max(_BLOCK_NUMBERS // max(len(matrix), 1), 1)
    for start in range(0, matrix.shape[1], width):
        index = slice(start, start + width)
        yield index, matrix[:, index].astype(np.float64)


def gram(matrix: Matrix) -> NDArray[np.float64]:
    """Inner products of all pairs of rows."""
    total = np.zeros((len(matrix), len(matrix)))
    for _, block in columns_in_blocks(matrix):
        total += block @ block.T
    return total


def squared_distances(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances of all pairs of rows, from their inner products."""
    squares = products.diagonal()
    # Both products of a pair, so that the distance is the same to the last bit from either side.
    distances = np.maximum(squares[:, None] + squares[None, :] - (products + products.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def combination(matrix: Matrix, coefficients: Vector) -> Vector:
    """Sum of coefficient times row; rows of coefficient nought are not read."""
    used = np.flatnonzero(coefficients)
    total = np.zeros(matrix.shape[1])
    for row in used:
        total += matrix[row] * coefficients[row]
    return total


def as_update(vector: NDArray[Any], updates: Updates) -> Arrays:
    """A vector as an update of the cohort's shape and float types."""
    return unflatten(vector, updates.arrays[0])


def shares_of(weights: Vector) -> Vector:
    """Weights that sum to one."""
    total = weights.sum()
    if not total > 0:
        raise DataError(f"the weights of {len(weights)} updates sum to {total}, so they have no weighted mean")
    shares: Vector = weights / total
    return shares


def hostile_count(share: float, parties: int, most: int) -> int:
    """How many of so many parties may be hostile: a share of them, and no more than a rule can stand."""
    return max(min(int(share * parties + 1e-9), most), 0)


Share = Annotated[float, Interval(ge=0, lt=0.5)]


@register("aggregator", "krum", paper="Blanchard et al., 2017")
@dataclass(frozen=True)
class Krum(Aggregator):
    """The one update that lies closest to its nearest neighbours.

    Parameters:
        hostile: share of the parties that may be hostile
    """

    hostile: Share = 0.2

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The update of the lowest score."""
        distances = squared_distances(gram(updates.matrix()))
        best = int(best_first(distances, _of_krum(self.hostile, len(updates)))[0])
        return Combined(dict(updates.arrays[best]), notes={"chosen": [int(updates.parties[best])]})


@register("aggregator", "multi-krum", paper="Blanchard et al., 2017")
@dataclass(frozen=True)
class MultiKrum(Aggregator):
    """The mean of the updates that lie closest to their nearest neighbours.

    Parameters:
        hostile: share of the parties that may be hostile
        keep: how many updates enter the mean (0: all but as many as may be hostile)
    """

    hostile: Share = 0.2
    keep: Annotated[int, Ge(0)] = 0

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The plain mean of the updates with the lowest scores."""
        matrix, hostile = updates.matrix(), _of_krum(self.hostile, len(updates))
        ranked = best_first(squared_distances(gram(matrix)), hostile)
        kept = np.sort(ranked[:self.keep or len(updates) - hostile])
        return Combined(as_update(matrix[kept].mean(axis=0, dtype=np.float64), updates),
                        notes={"chosen": updates.parties[kept].tolist()})


@register("aggregator", "bulyan", paper="El Mhamdi et al., 2018")
@dataclass(frozen=True)
class Bulyan(Aggregator):
    """Krum chooses updates one by one; each coordinate is the mean of their values nearest to the median.

    Parameters:
        hostile: share of the parties that may be hostile
    """

    hostile: Share = 0.2

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Choose n - 2f updates, then average the n - 4f values of each coordinate that lie nearest to its median."""
        matrix = updates.matrix()
        hostile = hostile_count(self.hostile, len(updates), (len(updates) - 3) // 4)
        chosen = _chosen_one_by_one(squared_distances(gram(matrix)), hostile, len(updates) - 2 * hostile)
        result = np.empty(matrix.shape[1])
        for index, block in columns_in_blocks(matrix[chosen]):
            result[index] = _mean_around_median(block, len(chosen) - 2 * hostile)
        return Combined(as_update(result, updates), notes={"chosen": updates.parties[chosen].tolist()})


def _of_krum(share: float, parties: int) -> int:
    return hostile_count(share, parties, (parties - 3) // 2)


def krum_scores(distances: NDArray[np.float64], hostile: int) -> NDArray[np.float64]:
    """For each update the sum of squared distances to its n - f - 2 nearest others (at least one)."""
    others = np.sort(distances + np.diag(np.full(len(distances), np.inf)), axis=1)[:, :-1]
    neighbours = max(len(distances) - hostile - 2, 1)
    scores: NDArray[np.float64] = others[:, :neighbours].sum(axis=1)
    return scores


def best_first(distances: NDArray[np.float64], hostile: int) -> NDArray[np.int64]:
    """Updates from the best score to the worst.

    With a single neighbour two updates that are each other's nearest tie: the one nearer to all others comes first.
    """
    return np.lexsort((distances.sum(axis=1), krum_scores(distances, hostile)))


def _chosen_one_by_one(distances: NDArray[np.float64], hostile: int, count: int) -> NDArray[np.int64]:
    left, chosen = np.arange(len(distances)), []
    for _ in range(count):
        best = best_first(distances[np.ix_(left, left)], hostile)[0]
        chosen.append(left[best])
        left = np.delete(left, best)
    return np.sort(np.array(chosen, dtype=np.int64))


def _mean_around_median(block: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Of each column the mean of the `count` values nearest to the median, a stretch of the sorted column."""
    ordered = np.sort(np.ascontiguousarray(block.T), axis=1)
    rows, median = len(block), np.median(ordered, axis=1)
    starts = np.arange(rows - count + 1)
    # The nearest values form one stretch: the one whose farther end lies nearest to the median.
    farther = np.maximum(median[:, None] - ordered[:, starts], ordered[:, starts + count - 1] - median[:, None])
    first = np.argmin(farther, axis=1)
    sums = np.concatenate([np.zeros((len(ordered), 1)), np.cumsum(ordered, axis=1)], axis=1)
    which = np.arange(len(ordered))
    means: NDArray[np.float64] = (sums[which, first + count] - sums[which, first]) / count
    return means
