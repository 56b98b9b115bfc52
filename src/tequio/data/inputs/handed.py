"""Rows that a call hands over: as keys of [data] where a config can name them, else as a dataset with its test rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.catalogue.entry import Loaded, joined
from tequio.data.dataset import Dataset
from tequio.data.inputs import read
from tequio.data.inputs.kinds import MINIMUM_COUNT
from tequio.data.inputs.shapes import is_column, is_pair, is_table, is_table_file, parties_in, splits_in
from tequio.data.inputs.tables import file_ending
from tequio.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from tequio.data.inputs.shapes import Table

OPTIONS = tuple(key for key in signature(read).parameters if key not in ("data", "spare"))
"""The keys that a dataset that is handed over takes."""

SHORT = ("target", "target_kind", "id", "group", "columns", "ignore", "missing", "categorical")
"""Those of them that `tequio.run` also takes without `data` before them."""

_OF_LISTS = ("mapping", "columns")  # their values may look like a table

_COMPONENTS = {".parquet": "parquet", ".arff": "arff"}
_FOLDER = "image-folder"


def component_of(data: object) -> str:
    """The dataset that reads a path: a file of rows, or a folder of pictures. Nothing where this is no such path."""
    if not isinstance(data, str | PathLike):
        return ""
    if is_table_file(data) or file_ending(Path(data)) in _COMPONENTS:
        return _COMPONENTS.get(file_ending(Path(data)), "csv")
    # a word is the name of a dataset, even where there is a folder of that name
    is_path = isinstance(data, PathLike) or len(Path(data).parts) > 1 or data.endswith("/")
    return _FOLDER if is_path and Path(data).is_dir() else ""


def holds_rows(first: object, keys: Collection[str]) -> bool:
    """Whether the first argument of a call is rows, and not a config, whose keys are these."""
    if first is None or isinstance(first, str | PathLike):
        return bool(component_of(first))
    if not isinstance(first, Mapping):
        return is_table(first) or parties_in(first) is not None or _is_list_pair(first) \
            or isinstance(first, Loaded)
    if not first or any(str(key).partition(".")[0] in keys for key in first):
        return False
    return parties_in(first) is not None or _are_columns(first)


def as_keys(data: object, keys: Collection[str], *, is_new: bool = True) -> dict[str, Table]:
    """What was given for `data` as keys of [data]: `name` and others. `keys` are those that every config has there.

    A mapping without a name holds keys; beside them it may hold tables by party or split, or (where it does not change
    a table that has a name, `is_new`) the columns of one table.
    """
    component = component_of(data)
    if component:
        return {"name": component, "path": str(data)}
    if not isinstance(data, Mapping):
        return {"name": data}
    if "name" in data:
        return {**data, **as_keys(data["name"], keys)} if component_of(data["name"]) else dict(data)
    known = {key: value for key, value in data.items() if key in _OF_LISTS or (
        (key in keys or key in OPTIONS) and not is_table(value))}
    rest = {key: value for key, value in data.items() if key not in known and not str(key).endswith("path")}
    if len(rest) + len(known) < len(data) or not rest:
        return dict(data)
    if parties_in(rest) is None and not (is_new and _are_columns(rest)):
        return dict(data)
    rows = len(next(iter(rest.values()))) if _are_columns(rest) else -1
    for key, value in known.items():
        is_list = isinstance(value, list) and (len(value) != rows or all(name in rest for name in value))
        if is_column(value) and not is_list:
            raise ConfigError(f"'{key}' is a key of [data], and here also the name of a column",
                              remedy=f"write: data = {{\"name\": {{...}}}}, with '{key}' and the others inside")
    return {**known, "name": rest}


def handed_over(data: object, own: Mapping[str, Any]) -> Loaded:
    """The rows of an object, and its test rows where it has such; `own` are keys of [data] for it."""
    _refuse_unknown(own, () if is_read(data) else OPTIONS)
    if is_read(data):
        return data if isinstance(data, Loaded) else Loaded(data if isinstance(data, Dataset) else
                                                            _joined(parties_in(data) or {}))
    own = {"minimum_count": MINIMUM_COUNT, **own}  # as in a file of your own
    splits = splits_in(data)
    if splits is None:
        return Loaded(read(data, **own))
    train = read(splits.train, **own)
    train = replace(train, source=replace(train.source, notes=(*train.source.notes, *splits.notes)))
    if splits.test is None:
        return Loaded(train)
    known = {"columns": None, "categorical": None, "ignore": (), "schema": train.schema}
    return Loaded(train, read(splits.test, **{**own, **known, "spare": train.source.left_out}))


def is_read(data: object) -> bool:
    """Whether this is a dataset already, or one per party."""
    if isinstance(data, Dataset | Loaded):
        return True
    parties = parties_in(data)
    return parties is not None and all(isinstance(one, Dataset) for one in parties.values())


def has_parties(data: object) -> bool:
    """Whether the rows come as one table per party."""
    splits = splits_in(data)
    return parties_in(data if splits is None else splits.train) is not None


def _joined(parties: Mapping[str, Dataset]) -> Dataset:
    first, *others = parties.values()
    whole = first
    for name, other in zip(list(parties)[1:], others, strict=True):
        if other.schema != first.schema:
            raise DataError(f"the datasets of '{next(iter(parties))}' and '{name}' have different schemas",
                            remedy="read the second with the first one's: read(table, schema=first.schema)")
        whole = joined(whole, other)
    groups = np.repeat(np.array(list(parties)), [len(part) for part in parties.values()])
    rows = np.arange(len(whole)) if whole.rows is None else whole.rows  # a view where all are views of one source
    own = np.empty(whole.source.features.shape[0], groups.dtype)
    own[rows] = groups
    return replace(whole, source=replace(whole.source, groups=own))


def _refuse_unknown(own: Mapping[str, object], allowed: Collection[str]) -> None:
    for key in own:
        if key not in allowed:
            raise ConfigError(f"[data] has no key '{key}' for a dataset that is handed over",
                              remedy=nearest(key, allowed) if allowed else f"leave data.{key} out: a Dataset says so "
                              "itself")


def _are_columns(data: Mapping[str, Table]) -> bool:
    """Whether these are the columns of one table: two or more of the same length."""
    return len(data) > 1 and all(is_column(values) for values in data.values()) and len(
        {len(values) for values in data.values()}) == 1


def _is_list_pair(data: object) -> bool:
    return isinstance(data, list) and is_pair(data)
