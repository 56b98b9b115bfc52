"""Columns and arrays to datasets: categories and classes to codes, by a schema that is inferred or given."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from tequio.data.dataset import OTHER, Dataset, Feature, Schema, Target
from tequio.data.inputs.column import Column, column_of, kept, settle_array
from tequio.data.inputs.kinds import MINIMUM_COUNT, as_dates, category_codes, domain_of, key_of, token_counts
from tequio.data.inputs.store import StoredColumn
from tequio.data.mapped import write_rows
from tequio.errors import DataError, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Matrix
    from tequio.data.inputs.column import Columns, Missing


AskedKind = Literal["auto", "classes", "multilabel", "number", "none"]

MOST_INTEGER_CLASSES = 20
"""A target of whole numbers with more distinct values than this is taken for a number, not for classes."""

_YES = frozenset({"1", "yes", "true", "t"})
_NO = frozenset({"0", "no", "false", "f"})


def infer_target(columns: Sequence[Column], kind: AskedKind, name: str) -> Target:
    """What is to be predicted, from its column (or, for a multi-label target, its columns)."""
    if kind == "none" or not columns:
        return Target("none")
    if kind == "multilabel" or len(columns) > 1:
        return Target("multilabel", tuple(column.name for column in columns), name)
    if kind == "number" or (kind == "auto" and not _looks_like_classes(columns[0])):
        return Target("number", (), name)
    return Target("classes", domain_of(columns[0]), name)


def encode_features(columns: Columns, features: Sequence[Feature]) -> NDArray[np.floating[Any]]:
    """A (rows, features) array of numbers, category codes and token counts; NaN where a value is missing.

    It is of single precision where all columns of numbers are. Columns that do not lie in memory give one that is
    mapped.
    """
    groups = [(columns[name], list(group)) for name, group in groupby(features, key=lambda feature: feature.column)]
    numbers = {column.dtype for column, own in groups if own[0].kind in ("number", "date")}
    dtype = np.dtype(np.float32 if numbers == {np.dtype(np.float32)} else np.float64)
    blocks = (_encoded([(column, block, own) for (column, own), block in zip(groups, together, strict=True)], dtype)
              for together in zip(*(column.blocks() for column, _ in groups), strict=True))
    if any(isinstance(column, StoredColumn) for column, _ in groups):
        return write_rows(blocks, dtype, (len(features),))
    return next(blocks, np.empty((0, 0)))


def _encoded(groups: Sequence[tuple[Column, Column, Sequence[Feature]]], dtype: np.dtype[Any]) -> Array:
    """Some rows: each column as a whole (to say what is wrong with it), its block of rows, and its features."""
    encoded = np.empty((len(groups[0][1].values), sum(len(own) for _, _, own in groups)), dtype)
    start = 0
    for whole, column, own in groups:
        end = start + len(own)
        refuse_dates(column, own[0])
        if own[0].kind == "text":
            encoded[:, start:end] = token_counts(column.texts(), len(own))
        elif own[0].domain is not None:
            encoded[:, start] = _codes(column, own[0], "category", whole)
        else:
            encoded[:, start] = as_dates(column, own[0].format).values if own[0].kind == "date" else _numbers(column)
        start = end
    return encoded


def refuse_dates(column: Column, feature: Feature) -> None:
    """Refuse dates where something else is wanted: days since 1970 are no age."""
    if column.dated and feature.kind != "date":
        raise DataError(f"column '{column.name}' holds dates, and {feature.kind} is wanted there",
                        remedy=f'say that it holds dates: data.columns.{key_of(column.name)} = "date"',
                        column=column.name)


def encode_target(columns: Sequence[Column], target: Target) -> Array | None:
    """Class codes, a 0/1 label matrix, or numbers; None where there is no target."""
    if target.kind == "none":
        return None
    if target.kind == "multilabel":
        return np.stack([_yes_or_no(column) for column in columns], axis=1)
    if target.kind == "number":
        return _numbers(columns[0])
    column, feature = columns[0], Feature(columns[0].name, target.names)
    return np.concatenate([_codes(block, feature, "label", column).astype(np.int64) for block in column.blocks()])


def enforce_columns(present: Collection[str], schema: Schema, labels: Sequence[str], roles: Collection[str]) -> None:
    """Refuse a table that lacks a column of the schema or has one that the schema does not know."""
    wanted = [*schema.columns, *labels]
    known = {*wanted, *roles}
    strange = [name for name in present if name not in known]
    for name in wanted:
        if name not in present:
            near = nearest(name, strange or present)
            raise DataError(f"the column '{name}' of the schema is missing", remedy=f"{near}" if "mean" in near else
                            f"add it, or say in a mapping which column it is: [rename] ... = \"{name}\"; {near}")
    if strange:
        raise DataError(f"the column '{strange[0]}' is not in the schema",
                        remedy=f"leave it out: data.ignore = {listed(strange[0])}; or rename it: "
                               f"{nearest(strange[0], wanted)}")


def notes_on_others(columns: Columns, schema: Schema) -> list[str]:
    """What people have to know of values that a schema does not name and that are '(other)' by it.

    A column of which most values are unknown is written in other codes, and is refused.
    """
    notes = []
    for feature in schema.features:
        if feature.kind != "category" or OTHER not in (feature.domain or ()):
            continue
        column, known = columns[feature.column], set(feature.domain or ())
        counts = Counter(text for block in column.blocks() for text in block.take(~block.missing).texts())
        others = sum(count for text, count in counts.items() if text not in known)
        rows = counts.total()
        if others > rows / 2 and rows >= MINIMUM_COUNT and len(known) > 1:
            raise DataError(f"column '{column.name}' has values in {others} of {rows} rows that are not in the schema",
                            remedy=f"say in a mapping what they stand for: [codes.{key_of(column.name)}]",
                            column=column.name)
        if others:
            notes.append(f"column '{column.name}' has values in {others} of {rows} rows that are not in the schema, "
                         f"and are taken for '{OTHER}'")
    return notes


def _looks_like_classes(column: Column) -> bool:
    return column.is_text or (column.whole and len(np.unique(column.values)) <= MOST_INTEGER_CLASSES)


def _numbers(column: Column) -> NDArray[np.float64]:
    if not column.is_text:
        return column.values
    try:
        return column.values.astype(np.float64)
    except ValueError as cause:
        raise DataError(f"column '{column.name}' has to hold numbers: {cause}", remedy="correct the value; or set "
                        "data.target_kind = \"classes\" if it is the target, "
                        f"data.columns.{key_of(column.name)} = \"category\" if it is not") from cause


def _codes(column: Column, feature: Feature, what: str, whole: Column) -> NDArray[np.float64]:
    """Codes of a column, or of a block of it; what is wrong is said with its place in the whole."""
    texts = column.texts()
    codes = category_codes(texts, column.missing, feature)
    wrong = np.flatnonzero(codes < 0)
    if len(wrong) and whole is not column:
        entire = Column(whole.name, whole.values, whole.missing)
        return _codes(entire, feature, what, entire)
    if len(wrong):
        value = str(texts[wrong[0]])
        rows = f"row {wrong[0]}" + (f" and {len(wrong) - 1} more rows" if len(wrong) > 1 else "")
        raise DataError(f"column '{column.name}' has the {what} '{value}' ({rows}), which is not in the schema",
                        remedy=f"{nearest(value, feature.domain or ())}. A schema file that has room for others is "
                               "written by: tequio data schema --others" if what == "category" else
                               nearest(value, feature.domain or ()))
    return codes


def _yes_or_no(column: Column) -> NDArray[np.int8]:
    texts = [str(text).lower() for text in column.texts()]
    for row, text in enumerate(texts):
        if text not in _YES and text not in _NO:
            raise DataError(f"label column '{column.name}' has to hold 0 or 1, but row {row} is '{text}'",
                            remedy="name the label columns in data.target")
    return np.fromiter((text in _YES for text in texts), dtype=np.int8, count=len(texts))


def from_arrays(features: Matrix, target: Any = None, *, target_kind: AskedKind = "auto", missing: Missing = "error",
                schema: Schema | None = None, class_names: Sequence[str] | None = None, groups: Array | None = None,
                name: str = "data") -> Dataset:
    """A dataset from an array of features (rows first; may be sparse, or images) and one of targets.

    Columns are called x0, x1, ... unless a schema names them. `class_names` are the names of classes 0, 1, ...;
    `groups` say whose row it is.
    """
    values = _feature_array(features)
    keep = np.ones(values.shape[0], dtype=bool)
    if not sparse.issparse(values):
        values, keep = settle_array(values, missing)
    columns = _target_columns(target, values.shape[0], missing, keep)
    if not keep.all():
        values, columns = values[keep], [column.take(keep) for column in columns]
        groups = None if groups is None else groups[keep]
    declared, encoded = _encoded_target(columns, target_kind, schema, class_names)
    shape = tuple(values.shape[1:])
    schema = schema or Schema(tuple(Feature(f"x{column}") for column in range(int(np.prod(shape)))), declared, shape)
    return Dataset.of(schema, values, encoded, groups=groups, name=name, missing=kept(missing))


def arrays_from_torch(dataset: Any) -> tuple[Array, Array | None]:
    """Features and targets of a torch TensorDataset or of any map-style dataset of (features, target) pairs."""
    if hasattr(dataset, "tensors"):
        parts = [np.asarray(tensor) for tensor in dataset.tensors]
        if len(parts) > 2:
            raise DataError(f"the dataset has {len(parts)} tensors", remedy="give features and target only")
        return parts[0], parts[1] if len(parts) == 2 else None
    rows = [dataset[row] for row in range(len(dataset))]
    if not rows:
        raise DataError("the dataset has no rows")
    if not isinstance(rows[0], tuple | list):
        return np.stack([image_or_array(row) for row in rows]), None
    return np.stack([image_or_array(row[0]) for row in rows]), np.array([np.asarray(row[1]) for row in rows])


def image_or_array(value: Any) -> Array:
    """One row's features; a Pillow image becomes float32 in [0, 1] of shape (channels, height, width)."""
    array = np.asarray(value)
    if not hasattr(value, "getbands"):
        return array
    return np.moveaxis(np.atleast_3d(array), -1, 0).astype(np.float32) / 255


def _feature_array(features: Matrix) -> Matrix:
    if sparse.issparse(features):
        return features.tocsr()
    values = np.asarray(features)
    if values.dtype.kind not in "fiub":
        raise DataError(f"an array of features has to hold numbers, not {values.dtype}",
                        remedy="give text columns as a table: a data frame, a CSV file, or a dict of columns")
    if values.ndim < 2:
        raise DataError(f"features of shape {values.shape} have no columns", remedy="reshape them to (rows, columns)")
    if values.dtype.kind == "f":
        return values
    return values.astype(np.float64 if values.ndim == 2 else np.float32)


def _target_columns(target: Any, rows: int, missing: Missing, keep: NDArray[np.bool_]) -> list[Column]:
    if target is None:
        return []
    values = np.asarray(target)
    if values.ndim > 2 or len(values) != rows:
        raise DataError(f"there are {rows} rows of features but the target has shape {values.shape}")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    columns = [column_of("target", values)] if values.ndim == 1 else [
        column_of(f"label{number}", values[:, number]) for number in range(values.shape[1])]
    lost = np.logical_or.reduce([column.missing for column in columns])
    if missing == "drop":
        keep &= ~lost
    elif lost.any():
        raise DataError(f"the target has {int(lost.sum())} missing values (row {np.flatnonzero(lost)[0]} is the first)",
                        remedy="drop those rows: data.missing = 'drop'")
    return columns


def _encoded_target(columns: Sequence[Column], kind: AskedKind, schema: Schema | None,
                    class_names: Sequence[str] | None) -> tuple[Target, Array | None]:
    if schema is not None and class_names is None:
        return schema.target, encode_target(columns, schema.target) if columns else None
    target = infer_target(columns, kind, "target")
    if class_names is None or target.kind != "classes":
        return target, encode_target(columns, target)
    by_number = replace(target, names=tuple(str(number) for number in range(len(class_names))))
    codes = encode_target(columns, by_number)
    return schema.target if schema else replace(target, names=tuple(class_names)), codes
