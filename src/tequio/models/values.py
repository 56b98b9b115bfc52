"""Values of single columns as a model takes them: numbers and codes of categories, and where there are none."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.dataset import OTHER, Feature
from tequio.data.inputs.column import number_text
from tequio.data.inputs.encoding import encode_target
from tequio.data.inputs.kinds import as_dates, category_codes
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Target
    from tequio.data.inputs.column import Column

_TRUTH = {"True": 1.0, "False": 0.0}


def numbers(column: Column) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column's numbers, and where there are none; texts may be numbers too."""
    if not column.is_text:
        return column.values, ~np.isfinite(column.values)
    values, present = np.full(len(column.values), np.nan), ~column.missing
    try:
        values[present] = column.values[present].astype(np.float64)
    except ValueError:
        for row in np.flatnonzero(present):
            values[row] = _number(column.values[row])
    return values, ~np.isfinite(values)


def codes(column: Column, feature: Feature) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Category codes, and where a category is missing or not known.

    A text is looked up as it is; then as a number, so that '3', 3 and 3.0 name the same category.
    """
    texts = column.values if column.is_text else _number_texts(column)
    found = np.nan_to_num(category_codes(texts, column.missing, feature), nan=-1).astype(np.int64)
    unknown = found < 0 if OTHER not in (feature.domain or ()) else found == len(feature.domain or ()) - 1
    known = {value: code for code, value in enumerate(feature.domain or ())}
    for row in np.flatnonzero(unknown & ~column.missing) if column.is_text and feature.kind != "hashed" else ():
        value = _number(texts[row])
        if np.isfinite(value):
            found[row] = known.get(number_text(value), found[row])
    return found, found < 0


def dates(column: Column, format: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Days since 1970, and where there are none."""
    values = np.full(len(column.values), np.nan)
    try:
        values = as_dates(column, format).values
    except DataError:
        for row in np.flatnonzero(~column.missing):
            with suppress(DataError):
                values[row] = as_dates(column.take(np.array([row])), format).values[0]
    return values, ~np.isfinite(values)


def texts_of(column: Column) -> Array:
    """The values as people write them; missing ones are empty."""
    return column.values if column.is_text else _number_texts(column)


def truths(columns: Sequence[Column], target: Target, rows: NDArray[np.bool_], first: int,
           *, lenient: bool) -> tuple[Array, NDArray[np.bool_]]:
    """True values as codes or numbers, and which of the wanted rows have one.

    A row without is an error unless one is `lenient`; `rows` says which ones matter.
    """
    if target.kind == "multilabel":
        known = np.logical_and.reduce([~column.missing for column in columns])
        _refuse(columns[0], known | ~rows, target, first, lenient)
        kept = [column.take(known) for column in columns]
        labels = np.zeros((len(known), len(columns)), np.int8)
        labels[known] = np.asarray(encode_target(kept, target))
        return labels, known
    column = columns[0]
    values, wrong = numbers(column) if target.kind == "number" else \
        codes(column, Feature(column.name, target.names))
    _refuse(column, ~wrong | ~rows, target, first, lenient)
    return np.where(wrong, 0, values), ~wrong


def _refuse(column: Column, sound: NDArray[np.bool_], target: Target, first: int, lenient: bool) -> None:
    if lenient or sound.all():
        return
    row = int(np.flatnonzero(~sound)[0])
    if column.missing[row]:
        raise DataError(f"row {row + first} has no true value in column '{column.name}'; the first row is 0",
                        remedy="leave such rows out", row=row + first, column=column.name)
    text = str(texts_of(column)[row])
    raise DataError(f"row {row + first} has the true value '{text}' in column '{column.name}', which the model does "
                    "not know; the first row is 0", remedy=nearest(text, target.names) if target.names else
                    "give numbers", row=row + first, column=column.name)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _TRUTH.get(text, np.nan)


def _number_texts(column: Column) -> Array:
    """Numbers as texts; whatever is not finite has none that a category could be called."""
    finite = np.isfinite(column.values)
    return np.array([number_text(value) if good else "" if np.isnan(value) else str(value)
                     for value, good in zip(column.values, finite, strict=True)] + [None], dtype=object)[:-1]
