"""Raw rows, as people have them, for a model: columns by name in any order, filled in and prepared as for training.

Columns that the model does not know are left out and named. What it lacks, and categories that it has never seen, are
an error that says where, or whatever `unseen` says: `fill` takes the usual value of the training, `skip` leaves the row
without an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset, Schema, schema_from_json, schema_to_json
from tequio.data.inputs import content_of
from tequio.data.inputs.column import Column, columns_of
from tequio.data.inputs.encoding import encode_target
from tequio.data.inputs.tables import columns_from_file, opened_csv
from tequio.data.preprocessing import Fitted
from tequio.errors import ConfigError, DataError, MissingExtra, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Matrix
    from tequio.data.inputs.column import Columns

Unseen = Literal["error", "fill", "skip"]
"""What to do about values and columns that a model cannot use."""

BATCH = 65_536
"""Rows that are answered at a time."""


@dataclass(frozen=True)
class Reading:
    """How raw rows become what a model is asked about.

    `schema` is that of raw rows, `usual` the most common value of a column where it is known, `filled` are the columns
    whose missing values were filled in with it, `own` is the preparation of parties that prepared their rows apart.
    """

    schema: Schema
    dtype: str = "float64"
    sparse: bool = False
    usual: Mapping[str, float | str] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()
    preparation: Fitted = field(default_factory=Fitted)
    own: Mapping[str, Fitted] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, preparation: Fitted | None = None,
           own: Mapping[str, Fitted] | None = None) -> Reading:
        """How rows like those of a dataset are read."""
        features = dataset.source.features
        usual = {**_most_frequent(dataset), **dataset.source.usual}
        return cls(dataset.schema, str(features.dtype), dataset.is_sparse, usual, frozenset(dataset.source.usual),
                   preparation or Fitted(), own or {})

    def prepared(self, rows: Dataset, party: str = "") -> Dataset:
        """Raw rows as the model wants them: as the coordinator prepared its own, or as a party did."""
        return self.own.get(party, self.preparation).apply(rows)

    @property
    def prepared_schema(self) -> Schema:
        """What the columns are after the preparation."""
        return self.prepared(self.rows_of(np.zeros((0, *self.schema.shape), self.dtype))).schema

    def rows_of(self, features: Matrix, target: Array | None = None) -> Dataset:
        """Raw rows from a matrix in the schema's order; without a target they get one that nobody looks at."""
        wanted = self.schema.target
        if target is None and wanted.kind != "none":
            target = np.zeros((features.shape[0], wanted.size) if wanted.kind == "multilabel" else features.shape[0],
                              np.int64)
        dense = features.toarray() if sparse.issparse(features) and not self.sparse else features
        return Dataset.of(self.schema, dense.astype(self.dtype, copy=False), target, name="rows")

    def to_payload(self) -> dict[str, Any]:
        """As plain data and arrays."""
        return {"schema": json.loads(schema_to_json(self.schema)), "dtype": self.dtype, "sparse": self.sparse,
                "usual": dict(self.usual), "filled": sorted(self.filled), "preparation": self.preparation.to_payload(),
                "own": {name: fitted.to_payload() for name, fitted in self.own.items()}}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Reading:
        """Back from plain data."""
        own = {name: Fitted.from_payload(fitted) for name, fitted in payload["own"].items()}
        return cls(schema_from_json(json.dumps(payload["schema"])), payload["dtype"], payload["sparse"],
                   payload["usual"], frozenset(payload["filled"]), Fitted.from_payload(payload["preparation"]), own)


@dataclass(frozen=True)
class Asked:
    """Rows that were read: those that can be answered, which of the given ones these are, and what was left out."""

    rows: Dataset
    places: NDArray[np.int64]
    given: int
    ignored: tuple[str, ...] = ()
    ids: Array | None = None


def asked(reading: Reading, data: Any, *, target: Any = None, unseen: Unseen = "error", id: str = "",
          with_target: bool = False, first: int = 0) -> Asked:
    """Raw rows from what people have. `target` are true values or the name of their column, `first` is the number of
    the first row, for errors."""
    if unseen not in ("error", "fill", "skip"):
        raise ConfigError(f"there is no way '{unseen}' with values that the model has not seen",
                          remedy="choose error, fill or skip")
    if isinstance(data, Dataset):
        return _from_dataset(reading, data)
    names = {*reading.schema.names, *_target_names(reading.schema), *([target] if isinstance(target, str) else ()), id}
    content, ignored = content_of(data, names)
    if isinstance(content, tuple):
        return _from_arrays(reading, content, target, unseen, first, with_target)
    return replace(_from_columns(reading, content, target, unseen, id, first, with_target), ignored=ignored)


def batches(data: Any, size: int = BATCH) -> Iterator[Any]:
    """Parts of what people have, some rows at a time; files are never in memory as a whole."""
    if isinstance(data, str | PathLike):
        path = Path(data)
        suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
        yield from (_parquet_batches if suffix == ".parquet" else _csv_batches)(path, size)
    elif isinstance(data, Mapping):
        arrays = {name: np.asarray(values) for name, values in data.items()}
        count = len(next(iter(arrays.values()))) if arrays else 0
        yield from ({name: values[start:start + size] for name, values in arrays.items()}
                    for start in range(0, max(count, 1), size))
    elif isinstance(data, Dataset):
        yield from (data.take(np.arange(start, min(start + size, len(data))))
                    for start in range(0, max(len(data), 1), size))
    else:
        rows = data.iloc if hasattr(data, "iloc") else data  # pandas cuts rows by another name than others do
        count = data.shape[0] if hasattr(data, "shape") else data.num_rows if hasattr(data, "num_rows") else len(data)
        yield from (rows[start:start + size] for start in range(0, max(count, 1), size))


def _csv_batches(path: Path, size: int) -> Iterator[Columns]:
    if not path.is_file():
        columns_from_file(path)  # says what is wrong with the name
    with opened_csv(path) as (header, rows):
        empty = True
        while block := list(islice(rows, size)):
            empty = False
            values = [np.array(column, dtype=object) for column in zip(*block, strict=True)]
            yield columns_of(dict(zip(header, values, strict=True)), parse=True)
        if empty:
            raise DataError(f"'{path}' names columns but has no rows", remedy="put one row a line below the names")


def _parquet_batches(path: Path, size: int) -> Iterator[Any]:
    if not path.is_file():
        columns_from_file(path)
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as cause:
        raise MissingExtra("pyarrow", "frames", f"reading '{path.name}'") from cause
    try:
        for batch in parquet.ParquetFile(path).iter_batches(size):
            yield pyarrow.Table.from_batches([batch])
    except (pyarrow.ArrowException, OSError) as cause:
        raise DataError(f"'{path}' cannot be read as a Parquet file: {cause}") from cause


def _from_dataset(reading: Reading, data: Dataset) -> Asked:
    if data.schema.names != reading.schema.names:
        raise DataError("the dataset has other columns than the model was trained on",
                        remedy=f"the model wants {_listed(reading.schema.names)}")
    return Asked(replace(data, schema=replace(reading.schema, target=data.schema.target)
                         if data.schema.target.kind == "none" else reading.schema), np.arange(len(data)), len(data))


def _from_arrays(reading: Reading, content: tuple[Any, ...], target: Any, unseen: Unseen, first: int,
                 with_target: bool) -> Asked:
    features, truth = content[0], target if target is not None else content[1] if len(content) > 1 else None
    features = features.tocsr() if sparse.issparse(features) else np.asarray(features)
    if features.dtype.kind not in "fiub":
        raise DataError(f"an array of rows has to hold numbers, not {features.dtype}",
                        remedy="give rows with text as a table with named columns: a data frame or a CSV file")
    schema = reading.schema
    if features.shape[1:] != schema.shape:
        if sparse.issparse(features) or features.ndim < 2 or int(np.prod(features.shape[1:])) != len(schema.names):
            raise DataError(f"rows of shape {tuple(features.shape[1:])} are not what the model was trained on: "
                            f"{schema.shape}", remedy=f"its columns are {_listed(schema.names)}")
        features = features.reshape(len(features), *schema.shape)
    keep = np.ones(features.shape[0], dtype=bool)
    if not sparse.issparse(features):
        features = features.astype(reading.dtype, copy=False)
        wrong = ~np.isfinite(features.reshape(len(features), -1))
        if wrong.any():
            features, keep = _settled_array(reading, features, wrong, unseen, first)
    codes = None
    if with_target:
        codes = _encoded(schema, truth, features.shape[0])[keep]
    return Asked(reading.rows_of(features[keep], codes), np.flatnonzero(keep), features.shape[0])


def _settled_array(reading: Reading, features: Array, wrong: NDArray[np.bool_], unseen: Unseen,
                   first: int) -> tuple[Array, NDArray[np.bool_]]:
    row, column = (int(place) for place in np.argwhere(wrong)[0])
    name = reading.schema.names[column]
    if unseen == "skip":
        return features, np.asarray(~wrong.any(axis=1))
    if unseen == "error" and name not in reading.filled:
        raise _unusable(f"row {row + first} has no value in column '{name}'", row + first, name)
    flat = features.reshape(len(features), -1).copy()
    for place in np.flatnonzero(wrong.any(axis=0)):
        flat[wrong[:, place], place] = _usual(reading, reading.schema.names[place])
    return flat.reshape(features.shape), np.ones(len(features), dtype=bool)


def _from_columns(reading: Reading, columns: Columns, target: Any, unseen: Unseen, id: str, first: int,
                  with_target: bool) -> Asked:
    schema, count = reading.schema, len(next(iter(columns.values())).values) if columns else 0
    if not count:
        raise DataError("there are no rows to answer", remedy="give at least one row")
    features = np.empty((count, len(schema.names)), dtype=reading.dtype)
    keep = np.ones(count, dtype=bool)
    for place, feature in enumerate(schema.features):
        column = columns.get(feature.name)
        if column is None:
            if unseen != "fill":
                missing = [name for name in schema.names if name not in columns]
                raise DataError(f"the rows lack {len(missing)} of the model's {len(schema.names)} columns: "
                                f"{_listed(missing)}", remedy=f"{nearest(missing[0], columns)} To take their usual "
                                "values instead: --unseen fill", column=missing[0])
            features[:, place] = _code(feature.domain, _usual(reading, feature.name))
            continue
        values, wrong = _codes(column, feature.domain) if feature.domain is not None else _numbers(column)
        if wrong.any():
            features[:, place] = _settled(reading, column, feature.domain, values, wrong, unseen, first, keep)
        else:
            features[:, place] = values
    names = _target_names(schema) if target is None else [target] if isinstance(target, str) else []
    codes = None
    if with_target:
        truth = [columns[name] for name in names if name in columns]
        if target is not None and not isinstance(target, str):
            codes = _encoded(schema, target, count)[keep]
        elif names and len(truth) == len(names):
            codes = _true_values(truth, schema, keep)
        else:
            raise DataError(f"the true values are missing: there is no column '{(names or ['target'])[0]}'",
                            remedy=f"give them as target. {nearest((names or ['target'])[0], columns)}")
    if id and id not in columns:
        raise DataError(f"there is no column '{id}' that tells rows apart", remedy=nearest(id, columns))
    flat = features if len(schema.shape) == 1 else features.reshape(count, *schema.shape)
    places = np.flatnonzero(keep)
    rows = reading.rows_of(flat if len(places) == count else flat[places], codes)
    return Asked(rows, places, count, ids=columns[id].texts()[places] if id else None)


def _true_values(truth: Sequence[Column], schema: Schema, keep: NDArray[np.bool_]) -> Array | None:
    kept = [column if keep.all() else column.take(keep) for column in truth]
    return encode_target(kept, schema.target)


def _encoded(schema: Schema, truth: Any, count: int) -> Array:
    """True values as codes, from an array or a column of a data frame."""
    values = np.asarray(truth)
    if truth is None or len(values) != count:
        raise DataError(f"there are {count} rows, but {0 if truth is None else len(values)} true values",
                        remedy="give one true value a row as target")
    names = _target_names(schema)
    parts = [values[:, place] for place in range(values.shape[1])] if values.ndim == 2 else [values]
    columns = columns_of({f"{name}": part for name, part in zip(names or ["target"], parts, strict=True)})
    codes = encode_target(list(columns.values()), schema.target)
    if codes is None:
        raise DataError("this model has no target to compare with", remedy="score it without one")
    return codes


def _target_names(schema: Schema) -> list[str]:
    target = schema.target
    return list(target.names) if target.kind == "multilabel" else [] if target.kind == "none" else [target.name]


def _numbers(column: Column) -> tuple[Array, NDArray[np.bool_]]:
    """A column's numbers, and where there are none."""
    if not column.is_text:
        return column.values, ~np.isfinite(column.values)
    values = np.full(len(column.values), np.nan)
    for row, text in enumerate(column.values):
        try:
            values[row] = float(text)
        except ValueError:
            continue
    return values, ~np.isfinite(values)


def _codes(column: Column, domain: Sequence[str]) -> tuple[Array, NDArray[np.bool_]]:
    """Category codes, and where a category is missing or not known."""
    known = {value: code for code, value in enumerate(domain)}
    codes = np.fromiter((known.get(text, -1) for text in column.texts()), dtype=np.int64, count=len(column.values))
    return codes, codes < 0


def _settled(reading: Reading, column: Column, domain: Sequence[str] | None, values: Array, wrong: NDArray[np.bool_],
             unseen: Unseen, first: int, keep: NDArray[np.bool_]) -> Array:
    """The values without those that the model cannot use; `keep` learns which rows have none."""
    if unseen == "skip":
        keep &= ~wrong
        return np.where(wrong, 0, values)
    # A missing value is filled in as it was for the training; anything else is an error unless it may be filled in.
    foreign = wrong & ~column.missing if column.name in reading.filled else wrong
    if unseen == "error" and foreign.any():
        row = int(np.flatnonzero(foreign)[0])
        more = f" (and {int(foreign.sum()) - 1} more rows)" if foreign.sum() > 1 else ""
        text = "no value" if column.missing[row] else f"'{column.texts()[row]}'"
        what = f", of which the model knows {_listed(list(domain))}" if domain else ", which is no number" \
            if not column.missing[row] else ""
        raise _unusable(f"row {row + first} has {text} in column '{column.name}'{what}{more}", row + first, column.name)
    return np.where(wrong, _code(domain, _usual(reading, column.name)), values)


def _unusable(message: str, row: int, column: str) -> DataError:
    return DataError(f"{message}; the first row is 0", remedy="fix the value, or take the usual value instead "
                     "(--unseen fill), or leave such rows without an answer (--unseen skip)", row=row, column=column)


def _usual(reading: Reading, name: str) -> float | str:
    if name in reading.usual:
        return reading.usual[name]
    first = next(iter(reading.preparation.statistics), {})
    numbers = [feature.name for feature in reading.schema.features if not feature.categorical]
    if "mean" in first and name in numbers and len(numbers) == len(first["mean"]):
        return float(first["mean"][numbers.index(name)])
    raise DataError(f"the model knows no usual value of column '{name}'", remedy="fill it in yourself, or leave such "
                    "rows out: --unseen skip", column=name)


def _code(domain: Sequence[str] | None, value: float | str) -> float:
    if domain is None:
        return float(value)
    if value not in domain:
        raise DataError(f"the usual category '{value}' is none that the model knows", remedy="fill values in yourself")
    return float(list(domain).index(str(value)))


def _most_frequent(dataset: Dataset) -> dict[str, float | str]:
    """The most frequent category of each column of categories, the first among equals."""
    if dataset.is_sparse or len(dataset.schema.shape) > 1 or not len(dataset):
        return {}
    found: dict[str, float | str] = {}
    for place, feature in enumerate(dataset.schema.features):
        if feature.domain is not None:
            counts = np.bincount(dataset.source.features[:, place].astype(np.int64), minlength=len(feature.domain))
            found[feature.name] = feature.domain[int(counts.argmax())]
    return found


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(f"'{name}'" for name in names[:most]) + (", ..." if len(names) > most else "")
