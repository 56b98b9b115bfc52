"""Reading who a row belongs to, for the partitions that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


def row_groups(dataset: Dataset, column: str | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Sorted group names and each row's group number, from a named column or the dataset's own groups."""
    values = dataset.groups if column is None else _column(dataset, column)
    names, codes = np.unique(values, return_inverse=True)
    return tuple(_shown(dataset, column, name) for name in names.tolist()), codes.astype(np.int64)


def _column(dataset: Dataset, column: str) -> NDArray[Any]:
    values = dataset.select([dataset.schema.column(column)]).features
    return np.asarray(values.toarray() if dataset.is_sparse else values)[:, 0]


def _shown(dataset: Dataset, column: str | None, value: Any) -> str:
    domain = dataset.schema.features[dataset.schema.column(column)].domain if column is not None else None
    if domain is not None:
        return domain[int(value)]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
