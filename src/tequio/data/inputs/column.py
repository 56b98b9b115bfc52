"""One column as it came in, numbers or text, and what to do about its missing values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import DataError, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Gaps


MISSING_MARKERS = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL"})
"""Texts that stand for a missing value (after spaces around them are removed)."""


_MICROSECONDS_A_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class Column:
    """Values of one kind: float64 or float32 (NaN where missing), or str objects.

    `whole` says that the numbers are integers, `dated` that they count days since 1970.
    """

    name: str
    values: Array
    missing: NDArray[np.bool_]
    whole: bool = False
    dated: bool = False

    def __len__(self) -> int:
        return len(self.values)

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
        distinct, places = np.unique(self.values, return_inverse=True)
        return np.array([number_text(value) for value in distinct], dtype=object)[places]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self.values.dtype

    def blocks(self) -> Iterator[Column]:
        """The column in blocks of rows; there is only one where it lies in memory."""
        yield self

    def take(self, rows: Array) -> Column:
        """Some rows of the column."""
        return replace(self, values=self.values[rows], missing=self.missing[rows])

    def filled(self, text: str) -> Column:
        """The column with a text in place of what is missing."""
        values = self.values.copy()
        values[self.missing] = text
        return replace(self, values=values, missing=np.zeros(len(values), dtype=bool))


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
        kept = np.float32 if values.dtype == np.float32 else np.float64
        return _numbers(name, values.astype(kept), values.dtype.kind != "f")
    if values.dtype.kind == "M":
        days = values.astype("datetime64[us]").astype(np.float64) / _MICROSECONDS_A_DAY
        days[np.isnat(values)] = np.nan
        return Column(name, days, np.isnan(days), dated=True)
    if values.dtype.kind in "bOUST":
        return _from_objects(name, values.astype(object), parse)
    raise _unusable(name, str(values.dtype))


def number_text(value: float) -> str:
    """A number as a category name."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _numbers(name: str, values: NDArray[np.floating[Any]], whole: bool) -> Column:
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
    if len(present) and all(isinstance(value, date) for value in present):
        return column_of(name, np.array([np.datetime64("NaT") if lost else np.datetime64(_in_utc(value), "us")
                                         for value, lost in zip(values, missing, strict=True)], "datetime64[us]"))
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
    return Column(name, values, np.isnan(values), whole=all(text.lstrip("+-").isdigit() for text in present))


def _refuse_other_types(name: str, values: Array) -> None:
    for value in values:
        if not isinstance(value, str | bytes | bool | np.bool_ | int | float | np.number):
            raise _unusable(name, type(value).__name__)


def _unusable(name: str, kind: str) -> DataError:
    return DataError(f"column '{name}' is of type {kind}, which is neither numbers nor text",
                     remedy=f"turn it into numbers, or leave it out: data.ignore = {listed(name)}")


def _in_utc(value: date) -> date:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return value in MISSING_MARKERS or value.strip() in MISSING_MARKERS
    # pandas' own markers for missing values do not compare with anything, themselves included
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else value.decode() if isinstance(value, bytes) else str(value)


ID_SEPARATOR = " + "
"""Between the names of several id columns, and between their values in one row."""


def id_columns(id: str | None, known: Collection[str]) -> tuple[str, ...]:
    """The columns that together say which row is which: one of that name, or those of 'name + born'."""
    if not id:
        return ()
    return (id,) if id in known else tuple(part.strip() for part in id.split(ID_SEPARATOR.strip()))


def ids_of(columns: Sequence[Column]) -> Array:
    """Ids that several columns make up, as texts; empty where a part is missing."""
    parts = [_id_texts(column) for column in columns]
    for column, texts in zip(columns, parts, strict=True):
        if count := sum(ID_SEPARATOR in str(text) for text in texts):
            raise DataError(f"column '{column.name}' has {count} values with '{ID_SEPARATOR}', which stands between "
                            "the values of several id columns", remedy="replace it there")
    whole = ~np.logical_or.reduce([column.missing for column in columns])
    joined = [ID_SEPARATOR.join(map(str, row)) if is_whole else ""
              for row, is_whole in zip(zip(*parts, strict=True), whole, strict=True)]
    return np.array(joined, dtype=object)


def _id_texts(column: Column) -> Array:
    """The values as texts, and those that count days as dates."""
    if not column.dated:
        return column.texts()
    return np.array(["" if lost else str(_EPOCH + timedelta(day)).removesuffix(" 00:00:00")
                     for day, lost in zip(column.values, column.missing, strict=True)], dtype=object)


Missing = Literal["error", "drop", "keep", "median", "category"]
"""error: refuse; drop: leave such rows out; keep: leave them missing, for learners that take them or for the step
'impute'; median: keep them, and impute them where no step says otherwise; category: '?' becomes a category of its own
(numbers are refused)."""

MISSING_CATEGORY = "?"


def settle(columns: Columns, features: Sequence[str], others: Sequence[str], policy: Missing) -> Columns:
    """The columns without missing values, unless the policy keeps them. In columns of `others` (target, ids, groups)
    nothing may be missing."""
    if policy == "drop":
        return _drop(columns, [*features, *others])
    for name in others:
        _refuse(columns[name], "drop those rows: data.missing = 'drop'")
    if policy in ("keep", "median"):
        return columns
    return {name: _filled(column, policy) if name in features else column for name, column in columns.items()}


def kept(policy: Missing) -> Gaps:
    """What a dataset says of its missing values under a policy."""
    return "keep" if policy == "keep" else "median" if policy == "median" else ""


def settle_array(features: Array, policy: Missing) -> tuple[Array, NDArray[np.bool_]]:
    """The same for an array of numbers: which of its rows to keep."""
    flat = features.reshape(len(features), -1)
    keep = np.ones(len(features), dtype=bool)
    return features, np.asarray(~np.isnan(flat).any(axis=1)) if policy == "drop" else keep


def _drop(columns: Columns, names: Sequence[str]) -> Columns:
    keep = ~np.logical_or.reduce([columns[name].missing for name in names])
    if not keep.any() and len(keep):
        raise DataError("no row is left when rows with missing values are dropped", remedy="fill them in instead: "
                        "data.missing = 'median'")
    return columns if keep.all() else {name: column.take(keep) for name, column in columns.items()}


def _filled(column: Column, policy: Missing) -> Column:
    if not column.missing.any():
        return column
    if policy == "error":
        _refuse(column, "leave those rows out (data.missing = 'drop') or fill them in (data.missing = 'median')")
    if not column.is_text:
        _refuse(column, "only text can have a category for missing values; set data.missing = 'median' or 'drop'")
    return column.filled(MISSING_CATEGORY)


def _refuse(column: Column, remedy: str) -> None:
    rows = np.flatnonzero(column.missing)
    if len(rows):
        listed = ", ".join(str(row) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
        raise DataError(f"column '{column.name}' has {len(rows)} missing value{'s' if len(rows) > 1 else ''} "
                        f"(row{'s' if len(rows) > 1 else ''} {listed}; the first row is 0)", remedy=remedy)
