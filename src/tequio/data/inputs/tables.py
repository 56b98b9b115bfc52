"""Tables from files and from other libraries' tables, as named columns.

Data frames and Hugging Face datasets are read by what they offer (`columns`, `column_names`, `features`), without
importing their libraries.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs.column import Columns, columns_of
from tequio.data.inputs.encoding import image_or_array
from tequio.errors import DataError, MissingExtra, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns


_DELIMITERS = ",;\t|"


def columns_from_file(path: Path) -> Columns:
    """Columns of a CSV, TSV (both also .gz) or Parquet file."""
    if not path.is_file():
        close = nearest(path.name, (entry.name for entry in path.parent.glob("*"))) if path.parent.is_dir() else ""
        raise DataError(f"there is no file '{path}'", remedy=close or "check the path")
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    reader = _READERS.get(ending.lower())
    if reader is None:
        raise DataError(f"'{path.name}' is of no known file type", remedy=f"tables are read from {', '.join(_READERS)} "
                        "files")
    return reader(path)


def columns_from_csv(path: Path) -> Columns:
    """Columns of a delimited text file with a header line; comma, semicolon, tab or bar is found from the header."""
    with opened_csv(path) as (header, lines):
        rows = list(lines)
    values = [np.array(column, dtype=object) for column in zip(*rows, strict=True)] or [np.empty(0, dtype=object)
                                                                                        for _ in header]
    return columns_of(dict(zip(header, values, strict=True)), parse=True)


@contextmanager
def opened_csv(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """The names of the columns, and the lines below them as lists of texts, to be read while the file is open."""
    try:
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") if path.suffix == ".gz" else \
                path.open(encoding="utf-8-sig", newline="") as lines:
            yield _parse_csv(lines, path)
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as cause:
        raise DataError(f"'{path}' cannot be read as a UTF-8 text table: {cause}",
                        remedy="save it as UTF-8 CSV") from cause


def columns_from_parquet(path: Path) -> Columns:
    """Columns of a Parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as cause:
        raise MissingExtra("pyarrow", "frames", f"reading '{path.name}'") from cause
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as cause:
        raise DataError(f"'{path}' cannot be read as a Parquet file: {cause}") from cause
    return columns_from_arrow(table)


def columns_from_arrow(table: Any) -> Columns:
    """Columns of a pyarrow table."""
    _unique(table.column_names, "the table")
    return columns_of({name: _arrow_values(table.column(name)) for name in table.column_names})


def columns_from_frame(frame: Any) -> Columns:
    """Columns of a pandas or polars data frame, or of anything with `columns` whose columns have `to_numpy`."""
    names = [str(name) for name in frame.columns]
    _unique(names, "the table")
    return columns_of({name: frame[key].to_numpy() for name, key in zip(names, frame.columns, strict=True)})


def has_text(data: Any) -> bool:
    """Whether this is a data frame with a column that does not hold numbers (or yes and no) only."""
    return hasattr(data, "columns") and hasattr(data, "dtypes") and any(not _is_numeric(kind) for kind in data.dtypes)


def _is_numeric(kind: Any) -> bool:
    letter = getattr(kind, "kind", "")  # polars has names instead
    return letter in "fiub" if letter else bool(kind.is_numeric()) or str(kind) == "Boolean"


def _arrow_values(column: Any) -> Any:
    is_dictionary = hasattr(column.type, "value_type") and hasattr(column.type, "index_type")
    return (column.cast(column.type.value_type) if is_dictionary else column).to_numpy(zero_copy_only=False)


def _parse_csv(lines: Iterable[str], path: Path) -> tuple[list[str], Iterator[list[str]]]:
    first = next(iter(lines), "")
    if not first.strip():
        raise DataError(f"'{path}' is empty", remedy="the first line has to name the columns")
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(chain([first], lines), delimiter=delimiter)
    header = [name.strip() for name in next(reader)]
    _unique(header, f"'{path}'")
    return header, _checked_rows(reader, len(header), path)


def _checked_rows(reader: Any, width: int, path: Path) -> Iterator[list[str]]:
    for row in reader:
        if len(row) == width:
            yield row
        elif row:
            raise DataError(f"line {reader.line_num} of '{path}' has {len(row)} values, the header names {width} "
                            "columns", remedy="quote values that contain the delimiter")


def _unique(names: list[str], where: str) -> None:
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise DataError(f"{where} has {times} columns called '{name}'", remedy="rename all but one")


_READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": columns_from_csv,
    ".tsv": columns_from_csv,
    ".txt": columns_from_csv,
    ".parquet": columns_from_parquet,
}


def columns_or_arrays(data: Any, target: str | Sequence[str] | None
                      ) -> tuple[Columns | tuple[Any, ...], Sequence[str] | None]:
    """Named columns; or, where rows are images or vectors, (features, target) arrays and the names of the classes."""
    plain = data.with_format(None)
    arrays = {name: _values(plain, name) for name in data.column_names}
    wide = [name for name, values in arrays.items() if values.ndim > 1]
    if not wide:
        return columns_of({name: _named(data, name, values) for name, values in arrays.items()}), None
    others = [name for name in arrays if name not in wide]
    if len(wide) > 1 or len(others) > 1 or (isinstance(target, str) and target not in others):
        raise DataError(f"rows hold arrays in {wide} beside columns {others}; only one array column and one target can "
                        "be read", remedy="keep two columns with select_columns([...])")
    names = _class_names(data, others[0]) if others else None
    return (arrays[wide[0]], arrays[others[0]] if others else None), names


def _values(data: Any, name: str) -> Array:
    values = list(data[name])
    if values and (isinstance(values[0], list | tuple | np.ndarray) or hasattr(values[0], "getbands")):
        return np.stack([image_or_array(value) for value in values])
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _class_names(data: Any, name: str) -> Sequence[str] | None:
    feature = data.features.get(name) if getattr(data, "features", None) else None
    return getattr(feature, "names", None)


def _named(data: Any, name: str, values: Array) -> Array:
    names = _class_names(data, name)
    if names is None:
        return values
    return np.array([None if value is None else names[int(value)] for value in values], dtype=object)
