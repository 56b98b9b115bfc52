"""Datasets from arrays: numpy, SciPy sparse, torch datasets, and rows of images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.inputs.column import column_of
from tequio.data.inputs.encoding import encode_target, infer_target
from tequio.data.inputs.missing import settle_array
from tequio.data.schema import Feature, Schema, Target
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.inputs.column import Column
    from tequio.data.inputs.encoding import AskedKind
    from tequio.data.inputs.missing import Missing


def from_arrays(features: Any, target: Any = None, *, target_kind: AskedKind = "auto", missing: Missing = "error",
                schema: Schema | None = None, class_names: Sequence[str] | None = None, name: str = "data") -> Dataset:
    """A dataset from an array of features (rows first; may be sparse, or images) and one of targets.

    Columns are called x0, x1, ... unless a schema names them. `class_names` are the names of classes 0, 1, ...
    """
    values = _feature_array(features)
    keep = np.ones(values.shape[0], dtype=bool)
    if not sparse.issparse(values):
        values, keep = settle_array(values, missing)
    columns = _target_columns(target, values.shape[0], missing, keep)
    kept = keep.all()
    values = values if kept else values[keep]
    columns = columns if kept else [column.take(keep) for column in columns]
    declared, encoded = _encoded_target(columns, target_kind, schema, class_names)
    shape = tuple(values.shape[1:])
    schema = schema or Schema(tuple(Feature(f"x{column}") for column in range(int(np.prod(shape)))), declared, shape)
    return Dataset.of(schema, values, encoded, name=name)


def arrays_from_torch(dataset: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
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


def image_or_array(value: Any) -> NDArray[Any]:
    """One row's features; a Pillow image becomes float32 in [0, 1] of shape (channels, height, width)."""
    array = np.asarray(value)
    if not hasattr(value, "getbands"):
        return array
    return np.moveaxis(np.atleast_3d(array), -1, 0).astype(np.float32) / 255


def _feature_array(features: Any) -> Any:
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
                    class_names: Sequence[str] | None) -> tuple[Target, NDArray[Any] | None]:
    if schema is not None and class_names is None:
        return schema.target, encode_target(columns, schema.target) if columns else None
    target = infer_target(columns, kind, "target")
    if class_names is None or target.kind != "classes":
        return target, encode_target(columns, target)
    by_number = replace(target, names=tuple(str(number) for number in range(len(class_names))))
    codes = encode_target(columns, by_number)
    return schema.target if schema else replace(target, names=tuple(class_names)), codes
