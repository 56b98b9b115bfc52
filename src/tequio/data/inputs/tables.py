"""Tables from files and from other libraries' tables, as named columns.

Data frames and Hugging Face datasets are read by what they offer (`columns`, `column_names`, `features`), without
importing their libraries.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs import store
from tequio.data.inputs.column import columns_of
from tequio.data.inputs.encoding import image_or_array
from tequio.data.inputs.pieces import InMemory
from tequio.data.inputs.reading import arrow_values, read_csv, read_parquet, refuse_twice
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns
    from tequio.data.inputs.pieces import Kind, Sink


def require_file(path: Path, key: str = "") -> None:
    """Refuse a path where there is no file, with the nearest one that there is; `key` is where it was written."""
    if path.is_file():
        return
    if path.is_dir():
        raise DataError(f"'{path}' is a folder", remedy=f"give the path of a file in it{f' in {key}' if key else ''}")
    near = get_close_matches(path.name, [entry.name for entry in path.parent.glob("*")], n=1)
    remedy = f"did you mean '{near[0]}'?" if near else "give the path of a file that exists"
    if key:
        remedy = f"{remedy} Then set {key} = \"{path.with_name(near[0])}\"" if near else f"set {key} to one that exists"
    raise DataError(f"there is no file '{path}'", remedy=remedy)


def columns_from_file(path: Path) -> Columns:
    """Columns of a CSV, TSV (both also .gz) or Parquet file. A large file is converted once, and kept in the cache."""
    require_file(path)
    reader = _READERS.get(file_ending(path))
    if reader is None:
        raise DataError(f"'{path.name}' is of no known file type", remedy=f"tables are read from {', '.join(_READERS)} "
                        "files")
    if path.stat().st_size >= store.STORED_BYTES:
        return store.stored_columns(path, reader)
    sink = InMemory()
    return sink.columns(reader(path, sink))


def file_ending(path: Path) -> str:
    """What a file's name ends with, in small letters and without '.gz'."""
    return (path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix).lower()


def columns_from_arrow(table: Any) -> Columns:
    """Columns of a pyarrow table."""
    refuse_twice(table.column_names, "the table")
    return columns_of({name: arrow_values(table.column(name)) for name in table.column_names})


def columns_from_frame(frame: Any) -> Columns:
    """Columns of a pandas or polars data frame, or of anything with `columns` whose columns have `to_numpy`."""
    names = [str(name) for name in frame.columns]
    refuse_twice(names, "the table")
    return columns_of({name: frame[key].to_numpy() for name, key in zip(names, frame.columns, strict=True)})


def has_text(data: Any) -> bool:
    """Whether this is a data frame with a column that does not hold numbers (or yes and no) only."""
    return hasattr(data, "columns") and hasattr(data, "dtypes") and any(not _is_numeric(kind) for kind in data.dtypes)


def _is_numeric(kind: Any) -> bool:
    letter = getattr(kind, "kind", "")  # polars has names instead
    return letter in "fiub" if letter else bool(kind.is_numeric()) or str(kind) == "Boolean"


_READERS: dict[str, Callable[[Path, Sink], list[Kind]]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_csv,
    ".parquet": read_parquet,
}

TABLE_ENDINGS = frozenset(_READERS)
"""How the names of files end that hold a table."""


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
