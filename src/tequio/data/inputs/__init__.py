"""Datasets from what people have: arrays, data frames, CSV and Parquet files, torch and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Schema, Target, load_schema
from tequio.data.inputs.column import Column, columns_of, settle, usual_values
from tequio.data.inputs.encoding import (
    arrays_from_torch,
    encode_features,
    encode_target,
    enforce_columns,
    from_arrays,
    infer_feature,
    infer_target,
)
from tequio.data.inputs.tables import (
    columns_from_arrow,
    columns_from_file,
    columns_from_frame,
    columns_or_arrays,
    has_text,
)
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns, Missing
    from tequio.data.inputs.encoding import AskedKind


__all__ = ["content_of", "has_text", "read"]


def read(data: Any, *, target: str | Sequence[str] | None = None, target_kind: AskedKind = "auto",
         id: str | None = None, group: str | None = None, missing: Missing = "error",
         categorical: Sequence[str] | None = None, schema: Schema | str | PathLike[str] | None = None,
         name: str = "") -> Dataset:
    """A dataset from a file (CSV, Parquet) or an object (array, (features, target), data frame, dict of columns, torch
    or Hugging Face dataset).

    `target`, `id` and `group` name columns (several targets: multi-label). A `schema`, or the path of a schema file, is
    enforced: a column, category or label that it does not know is an error.
    """
    known = load_schema(schema) if isinstance(schema, str | PathLike) else schema
    label = name or (Path(data).name.split(".")[0] if isinstance(data, str | PathLike) else "data")
    if known is not None and target_kind == "none":
        known = replace(known, target=Target("none"))
    content, class_names = _content(data, target)
    if isinstance(content, tuple):
        has_names = hasattr(data, "column_names")
        _refuse_columns(target=None if has_names else target, id=id, group=group, categorical=categorical)
        return from_arrays(*content, target_kind=target_kind, missing=missing, schema=known, class_names=class_names,
                           name=label)
    targets = _targets(target, known, target_kind)
    return from_columns(content, targets, target_kind=target_kind, id=id, group=group, missing=missing,
                        categorical=categorical or (), schema=known, name=label)


def from_columns(columns: Columns, targets: Sequence[str], *, target_kind: AskedKind, id: str | None, group: str | None,
                 missing: Missing, categorical: Sequence[str], schema: Schema | None, name: str) -> Dataset:
    """A dataset from named columns."""
    roles = [role for role in (id, group) if role is not None]
    for wanted in [*targets, *roles, *categorical]:
        if wanted not in columns and schema is None:
            raise DataError(f"'{name}' has no column '{wanted}'", remedy=nearest(wanted, columns))
    if schema is not None:
        enforce_columns(columns, schema, targets, roles)
    names = schema.names if schema else [column for column in columns if column not in (*targets, *roles)]
    if not names:
        raise DataError(f"'{name}' has no column left to learn from")
    usual = usual_values(columns, names, missing)
    columns = settle(columns, names, [*targets, *roles], missing)
    inputs, outputs = [columns[column] for column in names], [columns[column] for column in targets]
    if schema is None:
        schema = Schema(tuple(infer_feature(column, categorical) for column in inputs),
                        infer_target(outputs, target_kind, targets[0] if len(targets) == 1 else "labels"))
    return Dataset.of(schema, encode_features(inputs, schema.features), encode_target(outputs, schema.target),
                      ids=_labels(columns, id), groups=_labels(columns, group), name=name, usual=usual)


def content_of(data: Any, wanted: Collection[str]) -> tuple[Columns | tuple[Any, ...], tuple[str, ...]]:
    """The wanted columns that an object or a file has, and the names of all others; or (features, target) arrays."""
    if isinstance(data, Mapping):
        rest = tuple(str(name) for name in data if name not in wanted)
        kept = {name: values for name, values in data.items() if name in wanted}
        known = {name: values for name, values in kept.items() if isinstance(values, Column)}
        return (known if len(known) == len(kept) else columns_of(kept)), rest
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return columns_from_frame(data[[name for name in data.columns if str(name) in wanted]]), tuple(
            str(name) for name in data.columns if str(name) not in wanted)
    if hasattr(data, "column_names") and hasattr(data, "select"):
        return columns_from_arrow(data.select([name for name in data.column_names if name in wanted])), tuple(
            name for name in data.column_names if name not in wanted)
    content, _ = _content(data, None)
    return (content, ()) if isinstance(content, tuple) else content_of(content, wanted)


def _content(data: Any, target: str | Sequence[str] | None) -> tuple[Columns | tuple[Any, ...], Sequence[str] | None]:
    """Named columns, or (features, target) arrays; and the names of classes where the object knows them."""
    if isinstance(data, str | PathLike):
        return columns_from_file(Path(data)), None
    if isinstance(data, Mapping):
        return columns_of(data), None
    if isinstance(data, tuple | list):
        return _pair(data), None
    if isinstance(data, np.ndarray):
        return _array(data, target), None
    if sparse.issparse(data):
        return (data,), None
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return columns_from_frame(data), None
    if hasattr(data, "column_names") and hasattr(data, "with_format"):
        return columns_or_arrays(data, target)
    if hasattr(data, "column_names") and hasattr(data, "column"):
        return columns_from_arrow(data), None
    if hasattr(data, "tensors") or (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return arrays_from_torch(data), getattr(data, "classes", None)
    raise DataError(f"a dataset cannot be made from a {type(data).__name__}",
                    remedy="give a path, an array, a data frame, a dict of columns, or a torch or Hugging Face dataset")


def _pair(data: Sequence[Any]) -> tuple[Any, ...]:
    if len(data) != 2:
        raise DataError(f"expected (features, target), got {len(data)} parts")
    return tuple(data)


def _array(data: Array, target: str | Sequence[str] | None) -> Columns | tuple[Any, ...]:
    if data.dtype.names:
        return columns_of({name: data[name] for name in data.dtype.names})
    if data.ndim == 2 and (target is not None or data.dtype.kind not in "fiub"):
        return columns_of({f"x{column}": data[:, column] for column in range(data.shape[1])})
    return (data,)


def _targets(target: str | Sequence[str] | None, schema: Schema | None, kind: AskedKind) -> list[str]:
    if isinstance(target, str):
        return [target]
    if target is not None:
        return list(target)
    if schema is None or kind == "none" or schema.target.kind == "none":
        return []
    return list(schema.target.names) if schema.target.kind == "multilabel" else [schema.target.name]


def _refuse_columns(**asked: object) -> None:
    for option, value in asked.items():
        if value is not None:
            raise DataError(f"plain arrays have no named columns, so '{option}' cannot be found in them",
                            remedy="give (features, target), a data frame or a dict of columns")


def _labels(columns: Columns, name: str | None) -> Array | None:
    return None if name is None else _plain(columns[name])


def _plain(column: Column) -> Array:
    if column.is_text:
        return column.values.astype(str)
    return column.values.astype(np.int64) if column.whole else column.values
