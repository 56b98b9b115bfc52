"""Predictions as a CSV or Parquet file that grows batch by batch."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra, RunError
from tequio.experiments.predicting import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]
    Write = Callable[[Columns], None]


@contextmanager
def written_to(path: Path | None) -> Iterator[Write]:
    """A function that appends columns to a file. Until all is written, the file has another name."""
    if path is None:
        yield lambda columns: None
        return
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ConfigError(f"predictions cannot be written as '{path.name}'", remedy="give a .csv or .parquet file")
    opened = _csv_file if path.suffix.lower() == ".csv" else _parquet_file
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened(unfinished) as write:
            yield write
        unfinished.replace(path)
    except OSError as cause:
        raise RunError(f"'{path}' cannot be written: {cause.strerror or cause}",
                       remedy="choose another place with --out") from cause
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _csv_file(path: Path) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")

        def write(columns: Columns) -> None:
            if not file.tell():
                out.writerow(columns)
            out.writerows(["" if value is None else value for value in line.values()] for line in lines_of(columns))

        yield write


@contextmanager
def _parquet_file(path: Path) -> Iterator[Write]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as cause:
        raise MissingExtra("pyarrow", "frames", f"writing '{path.name}'") from cause
    made: list[Any] = []

    def write(columns: Columns) -> None:
        table = pyarrow.table({name: pyarrow.array(values.tolist() if values.dtype == object else values,
                                                   from_pandas=True) for name, values in columns.items()})
        if not made:
            # A column that begins with empty cells only says nothing about its type; anything can become text.
            types = [pyarrow.field(one.name, pyarrow.string() if pyarrow.types.is_null(one.type) else one.type)
                     for one in table.schema]
            made.append(parquet.ParquetWriter(path, pyarrow.schema(types)))
        made[0].write_table(table.cast(made[0].schema))

    try:
        yield write
    finally:
        for writer in made:
            writer.close()
