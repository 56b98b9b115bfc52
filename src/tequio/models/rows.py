"""Raw rows, as people have them, for a model: columns by name in any order, filled in and prepared as for training.

Columns that the model does not know are left out and named. What it lacks, and categories that it has never seen, are
an error that says where, or whatever `unseen` says: `fill` takes the usual value of the training, `skip` leaves the row
without an answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.inputs import content_of
from tequio.data.inputs.column import Column, columns_of, id_columns, ids_of
from tequio.data.inputs.encoding import refuse_dates
from tequio.data.inputs.kinds import token_counts
from tequio.errors import ConfigError, DataError, nearest
from tequio.models.reading import Reading
from tequio.models.sources import BATCH, batch_rows, batches, column_names, is_pandas, no_rows, usual_form
from tequio.models.values import codes, dates, numbers, texts_of, truths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Feature, Schema
    from tequio.data.inputs.column import Columns
    from tequio.data.inputs.shapes import Table

__all__ = ["BATCH", "Asked", "Reading", "Unseen", "asked", "batch_rows", "batches"]

Unseen = Literal["error", "fill", "skip"]
"""What to do about values and columns that a model cannot use."""


@dataclass(frozen=True)
class Asked:
    """Rows that were read: those that can be answered, which of the given ones these are, and what was left out.

    `ids` are those of the rows that can be answered, `given_ids` those of all. `known` says which of the answerable
    rows have a true value, where it was asked for.
    """

    rows: Dataset
    places: NDArray[np.int64]
    given: int
    ignored: tuple[str, ...] = ()
    ids: Array | None = None
    given_ids: Array | None = None
    known: NDArray[np.bool_] | None = None


def asked(reading: Reading, data: Table, *, target: Any = None, unseen: Unseen = "error", id: str = "",
          with_target: bool = False, lenient: bool = False, first: int = 0) -> Asked:
    """Raw rows from what people have. `target` are true values or the name of their column, `first` is the number of
    the first row, for errors. Where one is `lenient`, true values may be missing."""
    if unseen not in ("error", "fill", "skip"):
        raise ConfigError(f"there is no way '{unseen}' with values that the model has not seen",
                          remedy="choose error, fill or skip")
    data = usual_form(data)
    if isinstance(data, Dataset):
        return _from_dataset(reading, data)
    block = None if id or with_target else _block(reading.schema, data)
    if block is not None:
        return _from_block(reading, *block, unseen, first)
    names = {*reading.schema.columns, *_target_names(reading.schema), id, *id_columns(id, ()),
             *([target] if isinstance(target, str) else ())}
    _refuse_doubles(data, names)
    content, ignored = content_of(data, names)
    if isinstance(content, tuple):
        return _from_arrays(reading, content, target, unseen, id, first, with_target, lenient)
    return _from_columns(reading, content, ignored, target, unseen, id, first, with_target, lenient)


def _refuse_doubles(data: Table, wanted: set[str]) -> None:
    counts = Counter(column_names(data))
    name = next((name for name, times in counts.items() if times > 1 and name in wanted), None)
    if name is not None:
        raise DataError(f"the table has {counts[name]} columns called '{name}'", remedy="rename all but one")


def _block(schema: Schema, data: Table) -> tuple[Array, tuple[str, ...]] | None:
    """The numbers of a pandas frame in one go, and what is ignored, where the model takes numbers only."""
    if not is_pandas(data) or any(feature.kind != "number" for feature in schema.features):
        return None
    columns = tuple(data.columns)
    ignored: tuple[str, ...] = ()
    if columns != schema.names:
        counts = Counter(columns)
        if any(counts[name] != 1 for name in schema.names):
            return None
        known = {*schema.names, *_target_names(schema)}
        ignored = tuple(str(name) for name in columns if name not in known)
        data = data[list(schema.names)]
    if not all(isinstance(kind, np.dtype) and kind.kind in "fiub" for kind in data.dtypes):
        return None
    return data.to_numpy(), ignored


def _from_dataset(reading: Reading, data: Dataset) -> Asked:
    if data.schema.names != reading.schema.names:
        raise DataError("the dataset has other columns than the model was trained on",
                        remedy=f"the model wants {_listed(reading.schema.names)}")
    return Asked(replace(data, schema=replace(reading.schema, target=data.schema.target)
                         if data.schema.target.kind == "none" else reading.schema), np.arange(len(data)), len(data))


def _from_block(reading: Reading, values: Array, ignored: tuple[str, ...], unseen: Unseen, first: int) -> Asked:
    features, keep = _settled_array(reading, values, unseen, first)
    places = np.arange(len(values)) if keep is None else np.flatnonzero(keep)
    return Asked(reading.rows_of(features if keep is None else features[places]), places, len(values), ignored)


def _from_arrays(reading: Reading, content: tuple[Any, ...], target: Any, unseen: Unseen, id: str, first: int,
                 with_target: bool, lenient: bool) -> Asked:
    features, truth = content[0], target if target is not None else content[1] if len(content) > 1 else None
    if features.dtype.kind not in "fiub":
        raise DataError(f"an array of rows has to hold numbers, not {features.dtype}",
                        remedy="give rows with text as a table with named columns: a data frame or a CSV file")
    schema = reading.schema
    if features.ndim < 2:
        raise DataError(f"an array of shape {features.shape} is no table of rows",
                        remedy="give one row as rows.reshape(1, -1), or as a dict of its columns")
    if features.shape[1:] != schema.shape:
        if sparse.issparse(features) or int(np.prod(features.shape[1:])) != len(schema.names):
            raise DataError(f"rows of shape {tuple(features.shape[1:])} are not what the model was trained on: "
                            f"{schema.shape}", remedy=f"its columns are {_listed(schema.names)}")
        features = features.reshape(len(features), *schema.shape)
    if id:
        raise DataError(f"an array has no column '{id}' that tells rows apart",
                        remedy="give a table with named columns: a data frame or a CSV file")
    if not features.shape[0]:
        raise no_rows()
    keep = None
    if sparse.issparse(features):
        if not np.isfinite(features.data).all():
            raise DataError("the sparse rows hold values that are missing or infinite", remedy="correct these values")
        _check_codes(schema, features.toarray() if any(f.categorical for f in schema.features) else None, first)
    else:
        features, keep = _settled_array(reading, features, unseen, first)
        _check_codes(schema, features, first)
    places = np.arange(features.shape[0]) if keep is None else np.flatnonzero(keep)
    found, known = _with_truth(schema, truth, features.shape[0], keep, first, with_target, lenient)
    return Asked(reading.rows_of(features if keep is None else features[places], found), places, features.shape[0],
                 known=known)


def _check_codes(schema: Schema, features: Array | None, first: int) -> None:
    """Refuse codes of categories in an array that stand for none."""
    for place, feature in enumerate(schema.features) if features is not None and len(schema.shape) == 1 else ():
        if feature.domain is not None and features is not None:
            values = features[:, place]
            wrong = (values < 0) | (values >= len(feature.domain)) | (values != np.floor(values))
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise DataError(f"row {row + first} has the code {values[row]:g} in column '{feature.name}', which has "
                                f"{len(feature.domain)} categories; the first row is 0",
                                remedy="give rows with categories as a table with named columns")


def _settled_array(reading: Reading, features: Array, unseen: Unseen,
                   first: int) -> tuple[Array, NDArray[np.bool_] | None]:
    """An array in the model's type without what it cannot use, and which rows to keep if not all."""
    with np.errstate(over="ignore", invalid="ignore"):
        features = features.astype(reading.dtype, copy=False)
        if np.isfinite(features.sum()):  # much quicker than to look at each value, and no less sure
            return features, None
    flat = features.reshape(len(features), -1)
    wrong = np.isinf(flat) if reading.missing else ~np.isfinite(flat)
    if not wrong.any():
        return features, None
    flat, keep = features.reshape(len(features), -1).copy(), np.ones(len(features), dtype=bool)
    for place in np.flatnonzero(wrong.any(axis=0)):
        name, lost = reading.schema.names[place], np.isnan(flat[:, place])
        foreign = wrong[:, place] & ~lost if name in reading.filled else wrong[:, place]
        if unseen == "error" and foreign.any():
            row = int(np.flatnonzero(foreign)[0])
            what = "no value" if lost[row] else f"{flat[row, place]:g}"
            raise _unusable(f"row {row + first} has {what} in column '{name}'" + ("" if lost[row] else
                            ", which is not finite") + _more(foreign), row + first, name)
        if unseen == "skip":
            keep &= ~foreign
            flat[foreign, place] = 0
        if unseen == "fill" or foreign.sum() < wrong[:, place].sum():
            flat[wrong[:, place] if unseen == "fill" else lost, place] = reading.usual_value(name)
    return flat.reshape(features.shape), None if keep.all() else keep


def _from_columns(reading: Reading, columns: Columns, ignored: tuple[str, ...], target: Any, unseen: Unseen, id: str,
                  first: int, with_target: bool, lenient: bool) -> Asked:
    schema, count = reading.schema, len(next(iter(columns.values())).values) if columns else 0
    missing = [name for name in schema.columns if name not in columns and name not in reading.unused]
    if missing and (unseen != "fill" or len(missing) == len(schema.columns)):
        close = nearest(missing[0], [*columns, *ignored])
        raise DataError(f"the rows lack {len(missing)} of the model's {len(schema.columns)} columns: "
                        f"{_listed(missing)}", remedy=f"{close}{'' if close.endswith('?') else '.'} To take the usual "
                        "values of columns instead: --unseen fill", column=missing[0])
    if not count:
        raise no_rows()
    features = np.empty((count, len(schema.names)), dtype=reading.dtype)
    keep, place = np.ones(count, dtype=bool), 0
    for name, group in groupby(schema.features, key=lambda feature: feature.column):
        own = list(group)
        start, place = place, place + len(own)
        column = columns.get(name)
        if column is None:
            empty = own[0].kind == "text" or name in reading.unused
            features[:, start:place] = np.nan if reading.missing else 0 if empty else \
                _code(own[0].domain, reading.usual_value(name))
        elif own[0].kind == "text":
            features[:, start:place] = token_counts(texts_of(column), len(own))
        else:
            features[:, start] = _values(reading, column, own[0], unseen, first, keep)
    identifying = id_columns(id, columns)
    for column_name in identifying:
        if column_name not in columns:
            raise DataError(f"there is no column '{column_name}' that tells rows apart",
                            remedy=nearest(column_name, [*columns, *ignored]))
    names = _target_names(schema) if target is None else [target] if isinstance(target, str) else []
    truth: Any = target if target is not None and not isinstance(target, str) else \
        [columns[name] for name in names] if names and all(name in columns for name in names) else None
    if with_target and truth is None and not lenient:
        raise DataError(f"the true values are missing: there is no column '{(names or ['target'])[0]}'",
                        remedy=f"give them as target; {nearest((names or ['target'])[0], [*columns, *ignored])}")
    places = np.flatnonzero(keep)
    whole = len(places) == count
    found, known = _with_truth(schema, truth, count, None if whole else keep, first, with_target, lenient)
    flat = features if len(schema.shape) == 1 else features.reshape(count, *schema.shape)
    rows = reading.rows_of(flat if whole else flat[places], found)
    ids = None if not identifying else texts_of(columns[id]) if len(identifying) == 1 else \
        ids_of([columns[column_name] for column_name in identifying])
    return Asked(rows, places, count, ignored, ids=None if ids is None else ids[places], given_ids=ids, known=known)


def _with_truth(schema: Schema, truth: Any, count: int, keep: NDArray[np.bool_] | None, first: int, with_target: bool,
                lenient: bool) -> tuple[Array | None, NDArray[np.bool_] | None]:
    """True values of the rows to keep as codes, and which of them are known."""
    if not with_target or schema.target.kind == "none" or (truth is None and lenient):
        return None, None
    kept = np.ones(count, dtype=bool) if keep is None else keep
    found, known = truths(_truth_columns(schema, truth, count), schema.target, kept, first, lenient=lenient)
    return found[kept], known[kept]


def _truth_columns(schema: Schema, truth: Any, count: int) -> list[Column]:
    if isinstance(truth, list) and truth and isinstance(truth[0], Column):
        return truth
    values = None if truth is None else np.asarray(truth)
    if values is None or values.ndim == 0 or len(values) != count:
        raise DataError(f"there are {count} rows, but {0 if values is None or not values.ndim else len(values)} true "
                        "values", remedy="give one true value per row as target")
    names = _target_names(schema)
    parts = [values[:, place] for place in range(values.shape[1])] if values.ndim == 2 else [values]
    if len(parts) != len(names):
        raise DataError(f"the true values have {len(parts)} columns, and the model predicts {len(names)}: "
                        f"{_listed(names)}", remedy="give one column for each")
    return list(columns_of(dict(zip(names, parts, strict=True))).values())


def _target_names(schema: Schema) -> list[str]:
    target = schema.target
    return list(target.names) if target.kind == "multilabel" else [] if target.kind == "none" else [target.name]


def _values(reading: Reading, column: Column, feature: Feature, unseen: Unseen, first: int,
            keep: NDArray[np.bool_]) -> Array:
    """The values of one column as the model takes them; `keep` learns which rows have none."""
    refuse_dates(column, feature)
    values, wrong = codes(column, feature) if feature.domain is not None else \
        dates(column, feature.format) if feature.kind == "date" else numbers(column)
    if feature.domain is None and reading.dtype != "float64":
        with np.errstate(over="ignore"):
            wrong = wrong | ~np.isfinite(values.astype(reading.dtype))
    if reading.missing:
        values, wrong = np.where(column.missing, np.nan, values), wrong & ~column.missing
    return _settled(reading, column, feature.domain, values, wrong, unseen, first, keep) if wrong.any() else values


def _settled(reading: Reading, column: Column, domain: Sequence[str] | None, values: Array, wrong: NDArray[np.bool_],
             unseen: Unseen, first: int, keep: NDArray[np.bool_]) -> Array:
    """The values without those that the model cannot use; `keep` learns which rows have none."""
    # A missing value is filled in as it was for the training; anything else is up to `unseen`.
    foreign = wrong & ~column.missing if column.name in reading.filled else wrong
    if unseen == "skip":
        keep &= ~foreign
        if foreign.sum() == wrong.sum():
            return np.where(wrong, 0, values)
    if unseen == "error" and foreign.any():
        row = int(np.flatnonzero(foreign)[0])
        text = "no value" if column.missing[row] else f"'{column.values[row]}'" if column.is_text else \
            f"{column.values[row]:g}"
        what = f", of which the model knows {_listed(list(domain))}" if domain else "" if column.missing[row] else \
            ", which is no number" if np.isnan(values[row]) else ", which is not finite"
        raise _unusable(f"row {row + first} has {text} in column '{column.name}'{what}{_more(foreign)}", row + first,
                        column.name)
    return np.where(wrong, _code(domain, reading.usual_value(column.name)), values)


def _more(wrong: NDArray[np.bool_]) -> str:
    count = int(wrong.sum()) - 1
    return f" (and {count} more row{'' if count == 1 else 's'})" if count else ""


def _unusable(message: str, row: int, column: str) -> DataError:
    return DataError(f"{message}; the first row is 0", remedy="fix the value, or take the usual value instead "
                     "(--unseen fill), or leave such rows without an answer (--unseen skip)", row=row, column=column)


def _code(domain: Sequence[str] | None, value: float | str) -> float:
    if domain is None:
        return float(value)
    if value not in domain:
        raise DataError(f"the usual category '{value}' is none that the model knows", remedy="fill values in yourself")
    return float(list(domain).index(str(value)))


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(f"'{name}'" for name in names[:most]) + (", ..." if len(names) > most else "")
