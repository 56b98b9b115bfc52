"""Datasets from what people have: arrays, data frames, CSV and Parquet files, torch and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.inputs.column import (
    MISSING_CATEGORY,
    Column,
    column_of,
    columns_of,
    id_columns,
    ids_of,
    kept,
    settle,
)
from tequio.data.inputs.encoding import (
    arrays_from_torch,
    encode_features,
    encode_target,
    enforce_columns,
    from_arrays,
    infer_target,
    notes_on_others,
)
from tequio.data.inputs.kinds import Plan, features_of, plans_of, said_of
from tequio.data.inputs.mapping import TableMapping, mapped, mapping_of
from tequio.data.inputs.shapes import PARTY, Content, Table, content_by_party, splits_in
from tequio.data.inputs.tables import (
    columns_from_arrow,
    columns_from_file,
    columns_from_frame,
    columns_or_arrays,
    has_text,
)
from tequio.data.sharing import load_schema
from tequio.errors import DataError, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns, Missing
    from tequio.data.inputs.encoding import AskedKind


__all__ = ["content_of", "harmonised", "has_text", "read", "table_of"]


def read(data: Table, *, target: str | Sequence[str] | None = None, target_kind: AskedKind = "auto",
         id: str | None = None, group: str | None = None, missing: Missing = "error",
         columns: Sequence[str] | Mapping[str, Any] | None = None, ignore: Sequence[str] = (), minimum_count: int = 1,
         categorical: Sequence[str] | None = None, schema: Schema | str | PathLike[str] | None = None,
         mapping: TableMapping | Mapping[str, Any] | str | PathLike[str] | None = None, spare: Collection[str] = (),
         name: str = "") -> Dataset:
    """A dataset from a file (CSV, Parquet) or an object (array, (features, target), data frame, dict of columns, torch
    or Hugging Face dataset).

    `target`, `id` and `group` name columns (several targets: multi-label; several columns that make up an id:
    'name + born'). `columns` lists the only ones to learn from,
    or says what kind of thing each holds; those in `ignore` are left out. Categories with fewer rows than
    `minimum_count` are taken together. A `schema`, or the path of a schema file, is enforced: a column, category or
    label that it does not know is an error. A `mapping` (a table, or the path of a file) says what is called, coded or
    measured otherwise in the data. Columns called as those in `spare` are left out where there are such.
    """
    known = load_schema(schema).schema if isinstance(schema, str | PathLike) else schema
    label = name or (Path(data).name.split(".")[0] if isinstance(data, str | PathLike) else "data")
    if known is not None and target_kind == "none":
        known = replace(known, target=Target("none"))
    reader = _content if mapping is None else partial(_mapped_content, mapping_of(mapping))
    content, class_names, target, groups = content_by_party(data, target, group, ignore, reader)
    if isinstance(content, tuple):
        has_names = hasattr(data, "column_names")
        _refuse_columns(target=None if has_names else target, id=id, group=group, categorical=categorical,
                        columns=columns, ignore=ignore or None)
        return from_arrays(*content, target_kind=target_kind, missing=missing, schema=known, class_names=class_names,
                           groups=groups, name=label)
    if groups is not None:
        content, group, ignore = {**content, PARTY: column_of(PARTY, groups)}, PARTY, ()
    return from_columns(content, _targets(target, known, target_kind), target_kind=target_kind, id=id, group=group,
                        missing=missing, columns=columns, ignore=ignore, minimum_count=minimum_count,
                        categorical=categorical or (), schema=known, spare=spare, name=label)


def from_columns(content: Columns, targets: Sequence[str], *, target_kind: AskedKind, id: str | None = None,
                 group: str | None = None, missing: Missing = "error",
                 columns: Sequence[str] | Mapping[str, Any] | None = None, ignore: Sequence[str] = (),
                 minimum_count: int = 1, categorical: Sequence[str] = (), schema: Schema | None = None,
                 spare: Collection[str] = (), name: str = "data") -> Dataset:
    """A dataset from named columns."""
    identifying = id_columns(id, content)
    roles = [*identifying, *([] if group is None else [group])]
    only, said = said_of(columns)
    asked = {"target": targets, "id": identifying, "group": [group], "categorical": categorical,
             "columns": [*(only or ()), *said], "ignore": ignore}
    for key, wanted in ((key, wanted) for key, names in asked.items() for wanted in names if wanted is not None):
        if wanted not in content and (schema is None or key in ("id", "group", "ignore")):
            one = key in ("id", "group") or (key == "target" and len(targets) == 1)
            raise DataError(f"'{name}' has no column '{wanted}'", remedy=nearest(wanted, content, f"data.{key}") if one
                            else f"correct data.{key}: {nearest(wanted, content)}")
    twice = next((column for column in targets if column in (id, *ignore)), None)
    if twice is not None and schema is None:
        raise DataError(f"'{twice}' is the target, and data.{'id' if twice == id else 'ignore'} names it too",
                        remedy=f"leave it out of data.{'id' if twice == id else 'ignore'}")
    if schema is None and not any(len(block) for column in content.values() for block in column.blocks()):
        raise DataError(f"'{name}' has no rows", remedy="there has to be one below the names of the columns")
    every = tuple(content)
    content = {column: values for column, values in content.items()
               if column in roles or column not in (*ignore, *spare)}
    notes: list[str] = []
    plans: dict[str, Plan] = {}
    if schema is None:
        names = [column for column in content if column not in (*targets, *roles) and (not only or column in only)]
        plans, notes = plans_of(content, names, {**{column: Plan("category") for column in categorical}, **said})
        names = [column for column in names if plans[column].kind not in ("id", "ignore")]
    else:
        enforce_columns(content, schema, targets, roles)
        notes = notes_on_others(content, schema)
        names = list(schema.columns)
    if not names:
        raise DataError(f"'{name}' has no column left to learn from", remedy="name those to use: data.columns = [...]")
    left_out = tuple(column for column in every if column not in (*names, *targets, *roles))
    usual = {column: MISSING_CATEGORY for column in names if missing == "category" and content[column].is_text}
    content = settle(content, names, [*targets, *roles], missing)
    outputs = [content[column] for column in targets]
    if schema is None:
        described = [features_of(content[column], plans[column], minimum_count) for column in names]
        notes += [note for _, note in described if note]
        schema = Schema(tuple(feature for features, _ in described for feature in features),
                        infer_target(outputs, target_kind, targets[0] if len(targets) == 1 else "labels"))
    made = Dataset.of(schema, encode_features(content, schema.features), encode_target(outputs, schema.target),
                      ids=_ids(content, identifying), groups=None if group is None else _plain(content[group]),
                      name=name, usual=usual, missing=kept(missing), notes=notes)
    return replace(made, source=replace(made.source, left_out=left_out))


def content_of(data: Table, wanted: Collection[str]) -> tuple[Content, tuple[str, ...]]:
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


def table_of(data: Table) -> tuple[Columns, str | Sequence[str] | None, tuple[str, ...]]:
    """Named columns of an object, its target if it says so by itself, and keys of `[data]` that it takes none of.

    Tables by party get a column `PARTY`; columns of plain arrays are called x0, x1, ... and target.
    """
    splits = splits_in(data)
    content, _, target, groups = content_by_party(splits.train if splits else data, None, None, (), _content)
    said: tuple[str, ...] = ("target",) if target is not None else ()
    if isinstance(content, tuple):
        features, answer = (*content, None)[:2]
        if sparse.issparse(features) or np.ndim(features) != 2 or np.ndim(answer) > 1:
            raise DataError("this is not a table of rows and columns", remedy="give a file, a data frame or (X, y)")
        rows = np.asarray(features)
        content = columns_of({f"x{column}": rows[:, column] for column in range(rows.shape[1])})
        said = ("target", "id", "ignore", "columns")
        if answer is not None:
            content, target = content | columns_of({"target": np.asarray(answer)}), "target"
    if groups is None:
        return content, target, said
    return {**content, PARTY: column_of(PARTY, groups)}, target, (*said, "group")


def harmonised(data: Table, mapping: TableMapping | Mapping[str, Any] | str | PathLike[str], *,
               partial: bool = False) -> Columns:
    """A table as a mapping says, by columns: for `read` and `tequio.run`, one for each party where they differ.

    A `partial` table may lack columns that the mapping speaks of, such as the target of new rows.
    """
    return mapped(data, mapping_of(mapping), lambda table: _content(table, None)[0], partial=partial)


def _mapped_content(mapping: TableMapping, data: Table, target: str | Sequence[str] | None
                    ) -> tuple[Columns, Sequence[str] | None]:
    """Named columns as a mapping says."""
    return mapped(data, mapping, lambda table: _content(table, target)[0]), None


def _content(data: Table, target: str | Sequence[str] | None) -> tuple[Content, Sequence[str] | None]:
    """Named columns, or (features, target) arrays; and the names of classes where the object knows them."""
    if isinstance(data, str | PathLike):
        return columns_from_file(Path(data)), None
    if isinstance(data, Mapping):
        return content_of(data, data)[0], None
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
        raise DataError(f"expected (features, target), got {len(data)} parts",
                        remedy="give rows as a data frame, such as pandas.DataFrame(rows), or as a dict of columns")
    return tuple(data)


def _array(data: Array, target: str | Sequence[str] | None) -> Content:
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


def _ids(columns: Columns, names: Sequence[str]) -> Array | None:
    own = [columns[name] for name in names]
    return None if not own else _plain(own[0]) if len(own) == 1 else ids_of(own).astype(str)


def _plain(column: Column) -> Array:
    if column.is_text:
        return column.values.astype(str)
    return column.values.astype(np.int64) if column.whole else column.values
