"""The shapes that people have rows in: one table, tables by party, or the parts of a set by the name of their split.

What a mapping or a list holds is told by its values: columns make one table, tables are one per party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.inputs.column import Column, columns_of
from tequio.data.inputs.kinds import as_dates, looks_like_dates
from tequio.data.inputs.tables import TABLE_ENDINGS, columns_from_frame, file_ending
from tequio.errors import DataError, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns


Table = Any
"""Rows in any shape that people have them in, or tables by party; their libraries are not imported."""

Content = Any
"""Named columns, or a tuple (features, target) of arrays; the target may be left out."""

Asked = str | Sequence[str] | None
"""The names of targets, or nothing."""

PARTY = "(party)"
"""The column that says which party's table a row is from."""

_TRAIN, _TEST, _VALIDATION = "train", "test", "validation"


def is_table_file(data: object) -> bool:
    """Whether this is the path of a file that holds a table, by its ending."""
    return isinstance(data, str | PathLike) and file_ending(Path(data)) in TABLE_ENDINGS


def is_table(data: object) -> bool:
    """Whether this holds rows of several columns by itself."""
    if isinstance(data, str | PathLike):
        return is_table_file(data)
    if isinstance(data, Mapping):
        return bool(data) and all(is_column(values) for values in data.values())
    if isinstance(data, np.ndarray):
        return data.ndim > 1 or data.dtype.names is not None
    if isinstance(data, tuple):
        return is_pair(data)
    return isinstance(data, Dataset) or sparse.issparse(data) or any(
        hasattr(data, name) for name in ("columns", "column_names", "tensors")) or (
        hasattr(data, "__getitem__") and hasattr(data, "__len__") and not is_column(data))


def is_column(data: object) -> bool:
    """Whether this holds one value a row: a list, an array or a series, but no text."""
    if isinstance(data, str | bytes | Mapping) or not hasattr(data, "__len__"):
        return False
    if isinstance(data, tuple):
        return not is_pair(data)
    if isinstance(data, np.ndarray):
        return data.ndim == 1 and data.dtype.names is None
    is_arrow = hasattr(data, "to_pylist") and not hasattr(data, "column_names")
    return isinstance(data, Column | list | range) or is_arrow or len(getattr(data, "shape", ())) == 1


def is_pair(data: Sequence[object]) -> bool:
    """Whether this is (features, target): two things that hold rows."""
    return len(data) == 2 and all(hasattr(part, "__len__") and not isinstance(part, str | bytes) for part in data)


def parties_in(data: object) -> dict[str, Table] | None:
    """The tables by party, where this is no single table; those of a list are called 0, 1, 2, ..."""
    if isinstance(data, list):
        arrays = sum(isinstance(table, np.ndarray) for table in data)
        if not data or not all(is_table(table) for table in data) or (len(data) == 2 and arrays == 2):
            return None
        return {str(number): table for number, table in enumerate(data)}
    if not isinstance(data, Mapping) or not data:
        return None
    tables = [str(name) for name, values in data.items() if is_table(values)]
    columns = [str(name) for name, values in data.items() if is_column(values)]
    if not tables:
        return None
    if len(tables) < len(data):
        other = next(str(name) for name in data if str(name) not in tables)
        raise DataError(f"'{tables[0]}' is a table, but '{other}' is {'a column' if other in columns else 'none'}",
                        remedy="give either one table per party, {\"north\": table, \"south\": table}, or one column "
                               "per name, {\"age\": values, \"risk\": values}")
    return {str(name): table for name, table in data.items()}


@dataclass(frozen=True)
class Splits:
    """The parts of a set that comes with test rows. `notes` say what became of the others."""

    train: Table
    test: Table = None
    notes: tuple[str, ...] = ()


def splits_in(data: object) -> Splits | None:
    """The parts, where this is a mapping by the names of splits, such as a Hugging Face `DatasetDict`."""
    if not isinstance(data, Mapping) or not data or not all(
            is_table(part) or parties_in(part) for part in data.values()):
        return None
    is_library = hasattr(data, "column_names")  # a DatasetDict, which never holds parties
    if len(data) == 1 and is_library:
        return Splits(next(iter(data.values())))
    strange = [str(name) for name in data if name not in (_TRAIN, _TEST, _VALIDATION)]
    if strange and not is_library:
        return None
    if strange or _TRAIN not in data:
        given = ", ".join(f"'{name}'" for name in data)
        raise DataError(f"of the splits {given} nothing says which to learn from",
                        remedy=f"give one of them, data[\"{next(iter(data))}\"], or {{\"train\": ..., \"test\": ...}}")
    unused = _VALIDATION in data
    note = ("the split 'validation' is not used: parties keep validation rows of their own (data.split.validation), "
            "and the coordinator may (data.validation); to learn from its rows, join them to those of 'train'")
    return Splits(data[_TRAIN], data.get(_TEST), (note,) if unused else ())


def with_named_target(data: Table, target: Asked) -> tuple[Table, Asked]:
    """A pair (data frame, target) as one table of named columns, and the name of its target; others as they are."""
    if not isinstance(data, tuple | list) or len(data) != 2 or not hasattr(data[0], "columns"):
        return data, target
    if target is not None:
        raise DataError("(features, target) says by itself what the target is", remedy="leave data.target out, or give "
                        "one table that holds the target too")
    columns, answer = columns_from_frame(data[0]), data[1]
    if hasattr(answer, "columns"):
        outputs = columns_from_frame(answer)
    else:
        name = getattr(answer, "name", None)
        outputs = columns_of({"target" if name in (None, "") else str(name): answer})
    twice = [name for name in outputs if name in columns]
    if twice:
        same = list(outputs) == list(columns)
        raise DataError(f"the features and the target both have a column '{twice[0]}'", remedy="write tables of two "
                        "parties as a list: [first, second]" if same else "rename one of them")
    names = list(outputs)
    return {**columns, **outputs}, names[0] if len(names) == 1 else names


def content_by_party(data: Table, target: Asked, group: str | None, ignore: Sequence[str],
                     content_of: Callable[[Table, Asked], tuple[Content, Sequence[str] | None]]
                     ) -> tuple[Content, Sequence[str] | None, Asked, Array | None]:
    """What `content_of` reads in a table, or in those of all parties together: the content, the names of its classes
    where it knows them, its targets, and whose each row is."""
    tables = parties_in(data)
    if tables is None:
        data, target = with_named_target(data, target)
        return *content_of(data, target), target, None
    if group is not None:
        raise DataError("each table is one party's, so no column says whose row it is", remedy="leave data.group out")
    contents, known = {}, {}
    for party, table in tables.items():
        named, own = with_named_target(table, target)
        contents[party], names = content_of(named, own)
        known[party] = (names, own)
    first = next(iter(known))
    for party in known:
        if known[party] != known[first]:
            what, place = ("targets", 1) if known[party][1] != known[first][1] else ("classes", 0)
            raise DataError(f"the tables of '{first}' and '{party}' have different {what}: {known[first][place]} and "
                            f"{known[party][place]}", remedy="give them the same names")
    united, groups = unite(contents, ignore)
    return united, known[first][0], known[first][1], groups


def unite(parts: Mapping[str, Content], ignore: Sequence[str] = ()) -> tuple[Content, Array]:
    """The rows of all parties' tables, one after the other, and whose each row is."""
    tables = list(parts.values())
    if any(isinstance(table, tuple) for table in tables):
        united: Content = _united_arrays(parts)
        sizes = [np.shape(table[0])[0] for table in tables]
    else:
        known = {name for table in tables for name in table}
        for name in ignore:
            if name not in known:
                raise DataError(f"no table has a column '{name}'", remedy=nearest(name, known))
        united = _united_columns({party: {name: column for name, column in table.items() if name not in ignore}
                                  for party, table in parts.items()})
        sizes = [len(next(iter(table.values())).values) for table in tables]
    for party, rows in zip(parts, sizes, strict=True):
        if not rows:
            raise DataError(f"the table of '{party}' has no rows", remedy=f"leave '{party}' out, or give it rows")
    numbered = list(parts) == [str(number) for number in range(len(parts))]
    names = np.arange(len(parts)) if numbered else np.array(list(parts))
    return united, np.repeat(names, sizes)


def _united_columns(parts: Mapping[str, Columns]) -> Columns:
    first, *others = parts
    for party in others:
        _refuse_different(first, list(parts[first]), party, list(parts[party]))
    return {name: _joined([parts[party][name] for party in parts], list(parts)) for name in parts[first]}


def _refuse_different(first: str, wanted: Sequence[str], party: str, given: Sequence[str]) -> None:
    lacking, strange = ([name for name in one if name not in other] for one, other in
                        ((wanted, given), (given, wanted)))
    if not lacking and not strange:
        return
    sides = [f"'{who}' alone has {', '.join(repr(name) for name in names)}" for who, names in
             ((first, lacking), (party, strange)) if names]
    name = (lacking or strange)[0]
    raise DataError(f"the parties' tables have different columns: {'; '.join(sides)}", column=name,
                    remedy="give columns that mean the same the same name, and leave out what not all have: "
                           f"data.ignore = {listed(name)}")


def _joined(columns: Sequence[Column], parties: Sequence[str]) -> Column:
    """One column of all parties' rows; where one party's values are texts, all are."""
    held = [column for column in columns if len(column.present)] or list(columns)
    name, missing = columns[0].name, np.concatenate([column.missing for column in columns])
    if len({column.dated for column in held}) > 1:
        dated, other = (next(party for party, column in zip(parties, columns, strict=True)
                             if len(column.present) and column.dated is wanted) for wanted in (True, False))
        if not all(column.dated or (column.is_text and looks_like_dates(set(column.present))) for column in held):
            raise DataError(f"column '{name}' holds dates at '{dated}' and something else at '{other}'", column=name,
                            remedy=f"say how its dates are written there, harmonised(table, {{\"dates\": {{\"{name}\": "
                                   f"\"%d.%m.%Y\"}}}}), or leave the column out: data.ignore = {listed(name)}")
        columns = [as_dates(column) for column in columns]
        held = [column for column in columns if len(column.present)]
    if any(column.is_text for column in held):
        values = np.concatenate([column.texts() for column in columns])
        values[missing] = ""
        return Column(name, values, missing)
    empty = [np.full(len(column.values), np.nan) if column.is_text else column.values for column in columns]
    return replace(held[0], values=np.concatenate(empty), missing=missing, whole=all(column.whole for column in held))


def _united_arrays(parts: Mapping[str, Content]) -> tuple[Content, ...]:
    first, pair = next(iter(parts.items()))
    for party, other in parts.items():
        shapes = [np.shape(one[0])[1:] if isinstance(one, tuple) else None for one in (pair, other)]
        if shapes[0] != shapes[1]:
            shown = [f"rows of shape {shape}" if shape is not None else "named columns" for shape in shapes]
            raise DataError(f"the parties' tables differ: '{first}' has {shown[0]}, '{party}' has {shown[1]}",
                            remedy="give tables with named columns, or arrays with the same columns, for all parties")
    targets = [table[1] if len(table) > 1 else None for table in parts.values()]
    if len({target is None for target in targets}) > 1:
        party = next(name for name, target in zip(parts, targets, strict=True) if target is None)
        raise DataError(f"the table of '{party}' has no target, but others have", remedy="give (features, target) for "
                        "every party")
    features = [table[0] for table in parts.values()]
    stacked = sparse.vstack(features, format="csr") if any(map(sparse.issparse, features)) else np.concatenate(
        [np.asarray(values) for values in features])
    return stacked, None if targets[0] is None else np.concatenate([np.asarray(target) for target in targets])
