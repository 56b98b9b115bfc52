"""The directions in which a party's rows vary most, which several routers look at rows through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.flat import as_doubles, flat_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset

    Numbers = NDArray[np.float64]


def principal(rows: Dataset, count: int) -> dict[str, Any]:
    """Mean, directions (one a row) and standard deviations along them, of as many directions as there are to have."""
    values = dense(rows)
    mean = values.mean(axis=0)
    spread, directions = np.linalg.eigh(np.cov(values, rowvar=False, bias=True).reshape(len(mean), -1))
    kept = np.argsort(spread)[::-1][:min(count, len(rows), len(mean))]
    kept = kept[spread[kept] > 1e-12 * max(spread.max(), 1e-300)] if spread.max() > 0 else kept[:1]
    return {"centre": mean, "directions": np.ascontiguousarray(directions[:, kept].T),
            "scales": np.sqrt(np.maximum(spread[kept], 1e-300))}


def seen_through(fitted: dict[str, Any], rows: Dataset) -> Numbers:
    """Each row's place along the directions, in standard deviations."""
    places: Numbers = (dense(rows) - fitted["centre"]) @ fitted["directions"].T / fitted["scales"]
    return places


def dense(rows: Dataset) -> Numbers:
    """The rows as a dense matrix of numbers."""
    values = as_doubles(flat_features(rows))
    matrix: Numbers = values.toarray() if rows.is_sparse else values
    return matrix
