"""Columns and arrays to datasets: categories and classes to codes, by a schema that is inferred or given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.inputs.column import column_of, number_text, settle_array
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Matrix
    from tequio.data.inputs.column import Column, Missing


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


def encode_target(columns: Sequence[Column], target: Target) -> Array | None:
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


def from_arrays(features: Matrix, target: Any = None, *, target_kind: AskedKind = "auto", missing: Missing = "error",
                schema: Schema | None = None, class_names: Sequence[str] | None = None, name: str = "data") -> Dataset:
    """A dataset from an array of features (rows first; may be sparse, or images) and one of targets.

    Columns are called x0, x1, ... unless a schema names them. `class_names` are the names of classes 0, 1, ...
    """
    values = _feature_array(features)
    keep = np.ones(values.shape[0], dtype=bool)
    middle = np.empty(0)
    if not sparse.issparse(values):
        if missing == "median" and len(values):
            middle = np.nanmedian(values.reshape(len(values), -1), axis=0)
        values, keep = settle_array(values, missing)
    columns = _target_columns(target, values.shape[0], missing, keep)
    kept = keep.all()
    values = values if kept else values[keep]
    columns = columns if kept else [column.take(keep) for column in columns]
    declared, encoded = _encoded_target(columns, target_kind, schema, class_names)
    shape = tuple(values.shape[1:])
    schema = schema or Schema(tuple(Feature(f"x{column}") for column in range(int(np.prod(shape)))), declared, shape)
    usual = {column: float(value) for column, value in zip(schema.names, middle, strict=False) if np.isfinite(value)}
    return Dataset.of(schema, values, encoded, name=name, usual=usual)


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
                        remedy="drop those rows: missing = 'drop'")
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
