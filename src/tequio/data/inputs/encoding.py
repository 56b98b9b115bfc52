"""Columns to arrays: categories and classes to codes, by a schema inferred from the columns or by one that is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.data.inputs.column import number_text
from tequio.data.schema import Feature, Target
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from tequio.data.inputs.column import Column
    from tequio.data.schema import Schema

AskedKind = Literal["auto", "classes", "multilabel", "number", "none"]

MOST_INTEGER_CLASSES = 20
"""A target of whole numbers with more distinct values than this is taken for a number, not for classes."""

_YES = frozenset({"1", "yes", "true", "t"})
_NO = frozenset({"0", "no", "false", "f"})


def infer_feature(column: Column, categorical: Collection[str]) -> Feature:
    """A numeric feature for numbers, a categorical one for text and for columns said to be categorical."""
    if column.is_text or column.name in categorical:
        return Feature(column.name, domain_of(column))
    return Feature(column.name)


def domain_of(column: Column) -> tuple[str, ...]:
    """The column's distinct values: numbers in numeric order, texts in alphabetical order."""
    if not column.is_text:
        return tuple(number_text(value) for value in np.unique(column.values))
    return tuple(str(text) for text in np.unique(column.values.astype(str)))


def infer_target(columns: Sequence[Column], kind: AskedKind, name: str) -> Target:
    """What is to be predicted, from its column (or, for a multi-label target, its columns)."""
    if kind == "none" or not columns:
        return Target("none")
    if kind == "multilabel" or len(columns) > 1:
        return Target("multilabel", tuple(column.name for column in columns), name)
    if kind == "number" or (kind == "auto" and not _looks_like_classes(columns[0])):
        return Target("number", (), name)
    return Target("classes", domain_of(columns[0]), name)


def encode_features(columns: Sequence[Column], features: Sequence[Feature]) -> NDArray[np.float64]:
    """A (rows, columns) array of numbers and category codes."""
    rows = len(columns[0].values) if columns else 0
    encoded = np.empty((rows, len(columns)))
    for position, (column, feature) in enumerate(zip(columns, features, strict=True)):
        domain = feature.domain
        encoded[:, position] = _numbers(column) if domain is None else _codes(column, domain, "category")
    return encoded


def encode_target(columns: Sequence[Column], target: Target) -> NDArray[Any] | None:
    """Class codes, a 0/1 label matrix, or numbers; None where there is no target."""
    if target.kind == "none":
        return None
    if target.kind == "multilabel":
        return np.stack([_yes_or_no(column) for column in columns], axis=1)
    return _numbers(columns[0]) if target.kind == "number" else _codes(columns[0], target.names, "label")


def enforce_columns(present: Collection[str], schema: Schema, labels: Sequence[str], roles: Collection[str]) -> None:
    """Refuse a table that lacks a column of the schema or has one that the schema does not know."""
    wanted = [*schema.names, *labels]
    for name in wanted:
        if name not in present:
            raise DataError(f"the column '{name}' of the schema is missing", remedy=nearest(name, present))
    known = {*wanted, *roles}
    for name in present:
        if name not in known:
            raise DataError(f"the column '{name}' is not in the schema",
                            remedy=f"leave it out or rename it: {nearest(name, wanted)}")


def _looks_like_classes(column: Column) -> bool:
    return column.is_text or (column.whole and len(np.unique(column.values)) <= MOST_INTEGER_CLASSES)


def _numbers(column: Column) -> NDArray[np.float64]:
    if not column.is_text:
        return column.values
    try:
        return column.values.astype(np.float64)
    except ValueError as cause:
        raise DataError(f"column '{column.name}' has to hold numbers: {cause}", remedy="clean the value") from cause


def _codes(column: Column, domain: Sequence[str], what: str) -> NDArray[np.int64]:
    known = {value: code for code, value in enumerate(domain)}
    texts = column.texts()
    codes = np.fromiter((known.get(text, -1) for text in texts), dtype=np.int64, count=len(texts))
    wrong = np.flatnonzero(codes < 0)
    if len(wrong):
        value = str(texts[wrong[0]])
        rows = f"row {wrong[0]}" + (f" and {len(wrong) - 1} more rows" if len(wrong) > 1 else "")
        raise DataError(f"column '{column.name}' has the {what} '{value}' ({rows}), which is not in the schema",
                        remedy=nearest(value, domain))
    return codes


def _yes_or_no(column: Column) -> NDArray[np.int8]:
    texts = [str(text).lower() for text in column.texts()]
    for row, text in enumerate(texts):
        if text not in _YES and text not in _NO:
            raise DataError(f"label column '{column.name}' has to hold 0 or 1, but row {row} is '{text}'",
                            remedy="name the label columns in target")
    return np.fromiter((text in _YES for text in texts), dtype=np.int8, count=len(texts))
