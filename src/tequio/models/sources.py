"""What people hand over as rows, some rows at a time; files are never in memory as a whole.

A part is a table with named columns (dict, data frame, Arrow table), arrays as (features, target), or a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.dataset import Dataset
from tequio.data.inputs.column import Column
from tequio.data.inputs.encoding import arrays_from_torch
from tequio.data.inputs.reading import opened_csv
from tequio.data.inputs.tables import columns_from_file
from tequio.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.inputs.shapes import Table

BATCH = 64_000
"""The most rows that are answered at a time; a multiple of what torch learners take at once."""

_STEP, _VALUES = 1_000, 1_048_576


def batch_rows(columns: int) -> int:
    """Rows to answer at a time: so many that a batch of numbers stays in the processor's cache."""
    return min(max(_VALUES // max(columns, 1) // _STEP, 1) * _STEP, BATCH)


def batches(data: Table, size: int = BATCH) -> Iterator[Any]:
    """Parts of what people have, `size` rows each."""
    if isinstance(data, str | PathLike):
        yield from _file_batches(Path(data), size)
        return
    data = usual_form(data)
    if isinstance(data, Dataset):
        count = len(data)
    elif isinstance(data, Mapping):
        count = max((len(values.values if isinstance(values, Column) else values) for values in data.values()),
                    default=0)
    elif isinstance(data, tuple):
        count = data[0].shape[0]
    else:
        count = data.shape[0] if hasattr(data, "shape") else data.num_rows if hasattr(data, "num_rows") else len(data)
    if not count and not isinstance(data, Dataset):
        raise no_rows()
    if count <= size:
        yield data
    else:
        yield from (_cut(data, start, min(start + size, count)) for start in range(0, count, size))


def usual_form(data: Table) -> Any:
    """One row, a list of rows, tensors and torch datasets as a table or as arrays; anything else as it is."""
    if isinstance(data, Mapping):
        return _table(data)
    if hasattr(data, "index") and hasattr(data, "iloc") and getattr(data, "ndim", 2) == 1:
        return {str(name): [value] for name, value in zip(data.index, data.tolist(), strict=True)}
    if isinstance(data, list):
        return _from_list(data)
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"a tuple of {len(data)} parts is no table of rows",
                            remedy="give rows as a list, or as (features, target)")
        return _array(data[0]), data[1]
    if isinstance(data, np.ndarray) or sparse.issparse(data) or hasattr(data, "detach"):
        return _array(data)
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        return data.collect()  # a lazy frame of polars
    if isinstance(data, Dataset) or hasattr(data, "columns") or hasattr(data, "column_names"):
        return data
    if hasattr(data, "tensors") or (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return arrays_from_torch(data)
    raise DataError(f"rows cannot be read from a {type(data).__name__}",
                    remedy="give a data frame, a dict of columns, an array, or the path of a CSV or Parquet file")


def no_rows() -> DataError:
    """Nothing to answer."""
    return DataError("there are no rows to answer", remedy="give at least one row")


def _table(data: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Named columns; a dict of single values is one row."""
    single = [name for name, values in data.items() if not isinstance(values, Column) and
              (isinstance(values, str | bytes) or not np.ndim(values))]
    if not single:
        return {str(name): values for name, values in data.items()}
    if len(single) < len(data):
        raise DataError(f"'{single[0]}' is a single value, and other columns are lists of values",
                        remedy="give one row as a dict of single values, or all columns as lists")
    return {str(name): [value] for name, value in data.items()}


def _from_list(rows: Sequence[Any]) -> Any:
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(str(name) for row in rows for name in row))
        named = [{str(name): value for name, value in row.items()} for row in rows]
        return {name: np.array([*(row.get(name) for row in named), None], dtype=object)[:-1] for name in names}
    try:
        return _array(np.asarray(rows))
    except ValueError as cause:
        raise DataError("the rows in this list have different lengths", remedy="give each row all columns") from cause


def _array(data: Table) -> Any:
    if hasattr(data, "detach"):
        data = data.detach().cpu().numpy()
    if sparse.issparse(data):
        return data.tocsr()
    values = np.asarray(data)
    if values.dtype == object and values.ndim > 1:
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError):
            return values  # text, which the columns of a table may hold
    return values


def _cut(data: Table, start: int, stop: int) -> Any:
    if isinstance(data, Dataset):
        return data.take(np.arange(start, stop))
    if isinstance(data, tuple):
        return data[0][start:stop], None if data[1] is None else data[1][start:stop]
    if isinstance(data, Mapping):
        return {name: values.take(np.arange(start, stop)) if isinstance(values, Column) else values[start:stop]
                for name, values in data.items()}
    return data.iloc[start:stop] if hasattr(data, "iloc") else data[start:stop]  # pandas has a name of its own for it


def _file_batches(path: Path, size: int) -> Iterator[Any]:
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if not path.is_file() or suffix not in (".csv", ".tsv", ".txt", ".parquet"):
        columns_from_file(path)  # says what is wrong with the name
    parts = (_parquet_batches if suffix == ".parquet" else _csv_batches)(path, size)
    first = next(parts, None)
    if first is None:
        raise DataError(f"'{path}' names columns but has no rows", remedy="put one row per line below the names")
    yield first
    yield from parts


def _csv_batches(path: Path, size: int) -> Iterator[dict[str, Any]]:
    """Texts as they stand in the file: whether they are numbers, the model says, and not the other rows of a part."""
    with opened_csv(path) as (header, rows):
        while block := list(islice(rows, size)):
            values = [np.array(column, dtype=object) for column in zip(*block, strict=True)]
            yield dict(zip(header, values, strict=True))


def _parquet_batches(path: Path, size: int) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as cause:
        raise MissingExtra("pyarrow", "frames", f"reading '{path.name}'") from cause
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(size):
                if batch.num_rows:
                    yield pyarrow.Table.from_batches([batch])
    except (pyarrow.ArrowException, OSError) as cause:
        raise DataError(f"'{path}' cannot be read as a Parquet file: {cause}") from cause


def column_names(data: Table) -> list[str]:
    """The columns of a data frame, as far as they have names."""
    named = getattr(data, "columns", ()) if hasattr(data, "to_numpy") else getattr(data, "column_names", ())
    return [str(name) for name in named]


def is_pandas(data: Table) -> bool:
    """Whether it is a pandas frame or a column of one."""
    return hasattr(data, "iloc")
