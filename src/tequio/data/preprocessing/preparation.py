"""What a preparation of a dataset is: statistics of some rows, and a new dataset made with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tequio.data.dataset import Array, Dataset, Gaps
from tequio.errors import DataError
from tequio.registry import contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Matrix, Schema


Statistics = dict[str, Array]
"""Named arrays that hold what was fitted; plain enough to travel in a payload."""


@contract("preparation")
class Preparation(ABC):
    """A step of `data.prepare`. It has no state: what is fitted is handed out and back in.

    Most steps look at rows; one that does not has no `fit` of its own.
    """

    needed: ClassVar[tuple[str, ...]] = ()
    """What of the fitted statistics `apply` looks at; the rest only helps to merge them."""

    @classmethod
    def looks_at_rows(cls) -> bool:
        """Whether what it does depends on rows, and not on the schema alone."""
        return cls.fit is not Preparation.fit

    def fit(self, dataset: Dataset) -> Statistics:
        """The statistics of these rows, and of no others."""
        return {}

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """The statistics of all parties' rows together: equal to fitting on the pooled rows."""
        return {}

    @abstractmethod
    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """The prepared dataset."""


def numeric_columns(schema: Schema) -> NDArray[np.int64]:
    """Positions of the features that are numbers with a scale: counts of words and flags are left as they are."""
    return np.array([column for column, feature in enumerate(schema.features)
                     if not feature.categorical and feature.kind not in ("text", "flag")], dtype=np.int64)


def flat_features(dataset: Dataset) -> Matrix:
    """The features as a (rows, columns) matrix, whatever the shape of a row."""
    features = dataset.features
    return features if dataset.is_sparse else features.reshape(len(features), len(dataset.schema.features))


def with_features(dataset: Dataset, schema: Schema, features: Matrix, *, missing: Gaps | None = None) -> Dataset:
    """The dataset's rows with other features; target, ids and groups stay, and so does what is `missing`."""
    source = dataset.source
    return Dataset.of(schema, features, None if schema.target.kind == "none" else dataset.target,
                      ids=None if source.ids is None and dataset.rows is None else dataset.ids,
                      groups=None if source.groups is None else dataset.groups, name=dataset.name,
                      missing=source.missing if missing is None else missing)


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


def refuse_missing(dataset: Dataset, values: Array, step: str) -> None:
    """Refuse values that are missing, for steps that cannot do without."""
    if dataset.has_missing and np.isnan(values).any():
        raise DataError(f"'{dataset.name}' has missing values, and '{step}' cannot work with them",
                        remedy=f'fill them in before: data.prepare = ["impute", "{step}"]')


def check_width(fitted: Array, columns: int) -> None:
    """Refuse statistics that were fitted on other columns."""
    if fitted.shape[-1] != columns:
        raise DataError(f"a preparation was fitted on {fitted.shape[-1]} numeric columns, the data has {columns}",
                        remedy="fit and apply on data of the same schema")
