"""How alike two clusterings of the same rows are. Both are given as cluster numbers, one a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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


def _pairs(sizes: NDArray[Any]) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
