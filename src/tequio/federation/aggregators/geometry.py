"""What robust aggregators share: inner products of updates, distances, and sums of updates with coefficients.

Updates of a cohort lie in a space of as many dimensions as there are updates. So whatever depends on distances and
angles alone is worked out on their Gram matrix, which goes through the updates once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError
from tequio.federation.models import unflatten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.federation.aggregation import Updates
    from tequio.learners.learner import Arrays

    Matrix = NDArray[Any]
    Vector = NDArray[np.float64]

_BLOCK_NUMBERS = 1 << 18


def columns_in_blocks(matrix: Matrix) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """The columns in blocks that fit into a cache, in 64 bits."""
    width = max(_BLOCK_NUMBERS // max(len(matrix), 1), 1)
    for start in range(0, matrix.shape[1], width):
        place = slice(start, start + width)
        yield place, matrix[:, place].astype(np.float64)


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
