"""What a preparation of a dataset is: statistics of some rows, and a new dataset made with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tequio.data.dataset import Array, Dataset
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Matrix, Schema


Statistics = dict[str, Array]
"""Named arrays that hold what was fitted; plain enough to travel in a payload."""


class Preparation(Protocol):
    """A step of `data.prepare`. It has no state: what is fitted is handed out and back in."""

    def fit(self, dataset: Dataset) -> Statistics:
        """The statistics of these rows, and of no others."""
        ...

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """The statistics of all parties' rows together: equal to fitting on the pooled rows."""
        ...

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The prepared dataset."""
        ...


def numeric_columns(schema: Schema) -> NDArray[np.int64]:
    """Positions of the numeric features."""
    return np.array([column for column, feature in enumerate(schema.features) if not feature.categorical],
                    dtype=np.int64)


def flat_features(dataset: Dataset) -> Matrix:
    """The features as a (rows, columns) matrix, whatever the shape of a row."""
    features = dataset.features
    return features if dataset.is_sparse else features.reshape(len(features), len(dataset.schema.features))


def with_features(dataset: Dataset, schema: Schema, features: Matrix) -> Dataset:
    """The dataset's rows with other features; target, ids and groups stay."""
    source = dataset.source
    return Dataset.of(schema, features, None if schema.target.kind == "none" else dataset.target,
                      ids=None if source.ids is None and dataset.rows is None else dataset.ids,
                      groups=None if source.groups is None else dataset.groups, name=dataset.name)


def dense_table(dataset: Dataset, step: str) -> Array:
    """The features as a dense flat table, which some steps need."""
    if dataset.is_sparse or len(dataset.schema.shape) > 1:
        kind = "sparse" if dataset.is_sparse else f"of shape {dataset.schema.shape}"
        raise DataError(f"'{step}' needs a flat table; the rows of '{dataset.name}' are {kind}",
                        remedy=f"leave '{step}' out of data.prepare")
    table: Array = dataset.features
    return table


def stacked(parts: Sequence[Statistics], key: str) -> Array:
    """One statistic of all parties, one on top of the other."""
    shapes = {part[key].shape for part in parts}
    if len(shapes) != 1:
        raise DataError(f"parties' statistics '{key}' cannot be merged: they have shapes {sorted(shapes)}",
                        remedy="give every party the same schema")
    return np.stack([part[key] for part in parts])


def check_width(fitted: Array, columns: int) -> None:
    """Refuse statistics that were fitted on other columns."""
    if fitted.shape[-1] != columns:
        raise DataError(f"a preparation was fitted on {fitted.shape[-1]} numeric columns, the data has {columns}",
                        remedy="fit and apply on data of the same schema")
