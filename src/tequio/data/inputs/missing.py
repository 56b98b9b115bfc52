"""What to do about missing values: refuse, drop the rows, fill them, or make them a category."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.inputs.column import Column, Columns

Missing = Literal["error", "drop", "median", "category"]
"""error: refuse; drop: leave such rows out; median: fill in the column's median (a category column's most frequent
value); category: '?' becomes a category of its own (numbers are refused)."""

MISSING_CATEGORY = "?"


def settle(columns: Columns, features: Sequence[str], others: Sequence[str], policy: Missing) -> Columns:
    """The columns without missing values. Columns in `others` (target, ids, groups) are never filled in."""
    if policy == "drop":
        return _drop(columns, [*features, *others])
    for name in others:
        _refuse(columns[name], "drop those rows: missing = 'drop'")
    return {name: _filled(column, policy) if name in features else column for name, column in columns.items()}


def settle_array(features: NDArray[Any], policy: Missing) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The same for an array of numbers: the array, filled, and which of its rows to keep."""
    flat = features.reshape(len(features), -1)
    missing = np.isnan(flat)
    keep = np.ones(len(features), dtype=bool)
    if policy == "drop":
        keep = ~missing.any(axis=1)
    elif policy == "median" and missing.any():
        flat = flat.copy()
        for column in np.flatnonzero(missing.any(axis=0)):
            known = flat[~missing[:, column], column]
            _refuse_empty(f"x{column}", len(known))
            flat[missing[:, column], column] = np.median(known)
    return flat.reshape(features.shape), keep


def _drop(columns: Columns, names: Sequence[str]) -> Columns:
    keep = ~np.logical_or.reduce([columns[name].missing for name in names])
    if not keep.any() and len(keep):
        raise DataError("no row is left when rows with missing values are dropped", remedy="fill them in instead: "
                        "missing = 'median'")
    return columns if keep.all() else {name: column.take(keep) for name, column in columns.items()}


def _filled(column: Column, policy: Missing) -> Column:
    if not column.missing.any():
        return column
    if policy == "error":
        _refuse(column, "drop those rows (missing = 'drop') or fill them in (missing = 'median')")
    if policy == "category" and not column.is_text:
        _refuse(column, "only text can have a category for missing values; use missing = 'median' or 'drop'")
    value = MISSING_CATEGORY if policy == "category" else _middle(column)
    values = column.values.copy()
    values[column.missing] = value
    return replace(column, values=values, missing=np.zeros(len(values), dtype=bool))


def _middle(column: Column) -> Any:
    """The median of numbers; the most frequent text, the first in order among equals."""
    _refuse_empty(column.name, len(column.present))
    if not column.is_text:
        return np.median(column.present)
    texts, counts = np.unique(column.present.astype(str), return_counts=True)
    return str(texts[np.argmax(counts)])


def _refuse(column: Column, remedy: str) -> None:
    rows = np.flatnonzero(column.missing)
    if len(rows):
        listed = ", ".join(str(row) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
        raise DataError(f"column '{column.name}' has {len(rows)} missing value{'s' if len(rows) > 1 else ''} "
                        f"(row{'s' if len(rows) > 1 else ''} {listed}; the first row is 0)", remedy=remedy)


def _refuse_empty(name: str, known: int) -> None:
    if not known:
        raise DataError(f"column '{name}' has no value at all, so none can be filled in", remedy="leave the column out")
