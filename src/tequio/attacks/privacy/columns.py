"""Columns of another party, read by the label holder of a vertical federation from what it is sent.

Luo, Wu, Xiao, Ooi: Feature inference attack on model predictions in vertical federated learning, ICDE 2021. The score
of a regression is a sum over parties: less one's own part, it is an equation in the others' columns, and where weights
are known these are solved for. Activations of a split network are more equations, whose form a regression learns from
rows that are known.

Sums of gradients over the rows left of every possible cut (SecureBoost) are nested, column by column. Where two of them
differ by the gradient of one row, that row lies alone between two cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def solved_columns(weights: Floats, scores: Floats) -> Floats:
    """(rows, columns) of least length that have these scores under (columns, equations) weights.

    Exact where there are as many independent equations as columns. Columns are taken for standardised.
    """
    return np.asarray(scores.reshape(len(scores), -1) @ np.linalg.pinv(weights.reshape(len(weights), -1)))


def learnt_columns(seen: Floats, columns: Floats, known: NDArray[np.bool_]) -> Floats:
    """(rows, columns) as a regression on what is seen gives them, which is fitted on the known rows."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression: Any = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
    return np.asarray(regression.fit(seen[known], columns[known]).predict(seen), np.float64).reshape(columns.shape)


def explained(columns: Floats, guess: Floats) -> float:
    """Share of the columns' variance that a guess explains: 1 is knowing, 0 the mean. Constant ones are left out."""
    spread = np.square(columns - columns.mean(axis=0)).sum(axis=0)
    left = np.square(columns - guess).sum(axis=0)[spread > 0] / spread[spread > 0]
    return float(np.clip(1 - left, 0, 1).mean()) if len(left) else 0.0


class Claims(NamedTuple):
    """For each row two sums that differ by about its own value, and by how much they miss it.

    Rows that others are equal to cannot be told from these: they miss infinitely.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    missed: Floats


def differing_by_a_row(sums: Floats, values: Floats) -> Claims:
    """The best pair for each row: the one whose difference is the nearest to the row's value."""
    from scipy.spatial import cKDTree

    found: Any = cKDTree(sums)
    _, same, count = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    claims = Claims(np.zeros(len(values), np.intp), np.zeros(len(values), np.intp), np.full(len(values), np.inf))
    for row in np.flatnonzero(count[same.ravel()] == 1):
        distance, other = found.query(sums + values[row])
        best = int(np.argmin(distance))
        claims.first[row], claims.second[row], claims.missed[row] = best, other[best], distance[best]
    return claims
