"""One column as it came in, numbers or text, and what to do about its missing values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array


MISSING_MARKERS = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL"})
"""Texts that stand for a missing value (after spaces around them are removed)."""


@dataclass(frozen=True, eq=False)
class Column:
    """Values of one kind: float64 (NaN where missing) or str objects. `whole` says that the numbers are integers."""

    name: str
    values: Array
    missing: NDArray[np.bool_]
    whole: bool = False

    @property
    def is_text(self) -> bool:
        """Whether values are texts, not numbers."""
        return self.values.dtype == object

    @property
    def present(self) -> Array:
        """The values that are not missing."""
        return self.values[~self.missing]

    def texts(self) -> Array:
        """The values as texts; 3.0 is written '3', so that a number names the same category in every file format."""
        if self.is_text:
            return self.values
        return np.array([number_text(value) for value in self.values], dtype=object)

    def take(self, rows: Array) -> Column:
        """Some rows of the column."""
        return replace(self, values=self.values[rows], missing=self.missing[rows])


Columns = dict[str, Column]


def columns_of(arrays: Mapping[str, Any], *, parse: bool = False) -> Columns:
    """Columns from named arrays; with `parse`, a text column that holds only numbers becomes a number column."""
    columns = {str(name): column_of(str(name), np.asarray(values), parse=parse) for name, values in arrays.items()}
    lengths = {len(column.values) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"columns have different lengths: {sorted(lengths)}")
    return columns


def column_of(name: str, values: Array, *, parse: bool = False) -> Column:
    """One column from an array of any type."""
    if values.ndim != 1:
        raise DataError(f"column '{name}' has values of shape {values.shape[1:]}, not single values",
                        remedy="give arrays of images as (features, target), not as a table")
    if values.dtype.kind in "fiu":
        return _numbers(name, values.astype(np.float64), values.dtype.kind != "f")
    if values.dtype.kind in "bOUST":
        return _from_objects(name, values.astype(object), parse)
    raise _unusable(name, str(values.dtype))


def number_text(value: float) -> str:
    """A number as a category name."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _numbers(name: str, values: NDArray[np.float64], whole: bool) -> Column:
    missing = np.isnan(values)
    present = values[~missing]
    # tables without a missing integer turn such columns into floats, which says nothing about what they hold
    if not whole and missing.any() and len(present):
        whole = bool(np.isfinite(present).all() and (present == np.floor(present)).all())
    return Column(name, values, missing, whole)


def _from_objects(name: str, values: Array, parse: bool) -> Column:
    if set(map(type, values)) <= {str}:
        texts = [value.strip() for value in values]
        return _from_texts(name, texts, np.array([text in MISSING_MARKERS for text in texts], dtype=bool), parse)
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    present = values[~missing]
    if len(present) and all(_is_number(value) for value in present):
        whole = all(isinstance(value, int | np.integer) for value in present)
        return _numbers(name, np.where(missing, np.nan, values).astype(np.float64), whole)
    _refuse_other_types(name, present)
    return _from_texts(name, ["" if lost else _text(value) for value, lost in zip(values, missing, strict=True)],
                       missing, parse)


def _from_texts(name: str, texts: list[str], missing: NDArray[np.bool_], parse: bool) -> Column:
    values = np.array(texts, dtype=object)
    values[missing] = ""
    parsed = _parsed(name, values, missing) if parse else None
    return parsed or Column(name, values, missing)


def _parsed(name: str, texts: Array, missing: NDArray[np.bool_]) -> Column | None:
    """The column as numbers, if all its texts are; '007' is a code, not the number 7."""
    present = texts[~missing]
    values = np.full(len(texts), np.nan)
    try:
        values[~missing] = present.astype(np.float64)
    except ValueError:
        return None
    if not len(present) or any(text[0] == "0" and text[1:2].isdigit() for text in present):
        return None
    return Column(name, values, missing, whole=all(text.lstrip("+-").isdigit() for text in present))


def _refuse_other_types(name: str, values: Array) -> None:
    for value in values:
        if not isinstance(value, str | bytes | bool | np.bool_ | int | float | np.number):
            raise _unusable(name, type(value).__name__)


def _unusable(name: str, kind: str) -> DataError:
    return DataError(f"column '{name}' is of type {kind}, which is neither numbers nor text",
                     remedy="turn it into numbers (a date into days since some day) or leave it out")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return value in MISSING_MARKERS or value.strip() in MISSING_MARKERS
    # pandas' own markers for missing values do not compare with anything, themselves included
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else value.decode() if isinstance(value, bytes) else str(value)


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


def usual_values(columns: Columns, features: Sequence[str], policy: Missing) -> dict[str, float | str]:
    """What stands in for a missing value of each column under a policy that fills them in."""
    if policy == "category":
        return {name: MISSING_CATEGORY for name in features if columns[name].is_text}
    known = {name: columns[name] for name in features if policy == "median"}
    return {name: _middle(column) for name, column in known.items() if len(column.present)}


def settle_array(features: Array, policy: Missing) -> tuple[Array, NDArray[np.bool_]]:
    """The same for an array of numbers: the array, filled, and which of its rows to keep."""
    flat = features.reshape(len(features), -1)
    missing = np.isnan(flat)
    keep = np.ones(len(features), dtype=bool)
    if policy == "drop":
        keep = np.asarray(~missing.any(axis=1))
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


def _middle(column: Column) -> float | str:
    """The median of numbers; the most frequent text, the first in order among equals."""
    _refuse_empty(column.name, len(column.present))
    if not column.is_text:
        return float(np.median(column.present))
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
