"""Rows as one flat matrix of numbers, for learners that know nothing of images or categories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema


def check_numeric(schema: Schema, learner: str) -> None:
    """Refuse category codes: their order means nothing, so sums and distances of them do not either."""
    categorical = [feature.name for feature in schema.features if feature.categorical]
    if categorical:
        raise DataError(f"column '{categorical[0]}' is categorical, and '{learner}' needs numbers",
                        remedy="turn categorical columns into one-hot columns first")


def flat_features(data: Dataset) -> Any:
    """The features as (rows, columns), dense or CSR, in the type they are stored in."""
    features = data.features
    return features if data.is_sparse else features.reshape(len(data), len(data.schema.features))


def as_doubles(features: Any) -> Any:
    """The same matrix in double precision, C-ordered; no copy where it already is."""
    return np.ascontiguousarray(features, dtype=np.float64) if isinstance(features, np.ndarray) \
        else features.astype(np.float64, copy=False)
