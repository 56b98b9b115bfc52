"""The rows that are looked at: all of them or, of a large table, a sample that is the same each time."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs import table_of
from tequio.data.inputs.column import columns_of
from tequio.data.inputs.reading import opened_csv
from tequio.data.inputs.tables import columns_from_arrow, columns_from_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.inputs.column import Columns


MOST_ROWS = 50_000
"""Of a table with more rows than this, so many are looked at."""

_SEED = 0
_LARGE_BYTES = 4 << 20


@dataclass(frozen=True, eq=False)
class Sample:
    """Named columns, of how many rows they are a sample, and what the table says of itself: its target, and keys of
    `[data]` that it takes none of."""

    columns: Columns
    rows: int
    target: str | Sequence[str] | None = None
    said: tuple[str, ...] = ()


def sampled(data: Any, most: int = MOST_ROWS) -> Sample:
    """A table in a file or an object, at most so many rows of it."""
    if isinstance(data, str | PathLike):
        return Sample(*_of_file(Path(data), most))
    content, target, said = table_of(data)
    return Sample(*_of_columns(content, most), target, said)


def _of_columns(content: Columns, most: int) -> tuple[Columns, int]:
    rows = len(next(iter(content.values())).values) if content else 0
    if rows <= most:
        return content, rows
    chosen = _chosen(rows, most)
    return {name: column.take(chosen) for name, column in content.items()}, rows


def _of_file(path: Path, most: int) -> tuple[Columns, int]:
    large = path.is_file() and path.stat().st_size > _LARGE_BYTES
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if large and kind.lower() == ".parquet":
        return _of_parquet(path, most)
    if large and kind.lower() in (".csv", ".tsv", ".txt"):
        return _of_csv(path, most)
    return _of_columns(columns_from_file(path), most)


def _of_csv(path: Path, most: int) -> tuple[Columns, int]:
    """Two passes, so that no more than the sample is held in memory."""
    with opened_csv(path) as (_, lines):
        rows = sum(1 for _ in lines)
    wanted = np.zeros(rows, dtype=bool)
    wanted[_chosen(rows, most)] = True
    with opened_csv(path) as (header, lines):
        kept = [line for line, keep in zip(lines, wanted, strict=True) if keep]
    values = [np.array(column, dtype=object) for column in zip(*kept, strict=True)]
    return columns_of(dict(zip(header, values, strict=True)), parse=True), rows


def _of_parquet(path: Path, most: int) -> tuple[Columns, int]:
    import pyarrow as pa
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    rows, start, parts = file.metadata.num_rows, 0, []
    chosen = _chosen(rows, most)
    for batch in file.iter_batches():
        first, last = np.searchsorted(chosen, (start, start + len(batch)))
        parts.append(batch.take(pa.array(chosen[first:last] - start)))
        start += len(batch)
    return columns_from_arrow(pa.Table.from_batches(parts)), rows


def _chosen(rows: int, most: int) -> NDArray[np.int64]:
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(_SEED).choice(rows, most, replace=False))
