"""Files of tables, read block by block: text tables with the csv module or with pyarrow, Parquet files with pyarrow.

Whether a column of a text table holds numbers is only known at its end. A file that turns out to hold numbers and texts
in one column is read a second time, with that column as texts.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.inputs.column import MISSING_MARKERS
from tequio.data.inputs.pieces import Kind, Piece, piece_of_texts, piece_of_values
from tequio.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from tequio.data.dataset import Array
    from tequio.data.inputs.pieces import Sink

    Arrow = Any
    """An object of pyarrow, which is not imported where it is not there."""


ARROW_BYTES = 4 << 20
"""Smaller text tables are read by the csv module, which takes no time to import."""

_DELIMITERS = ",;\t|"
_BLOCK_CELLS = 1 << 19
_BLOCK_BYTES = 8 << 20  # pyarrow's streaming reader is quickest about here
_PARQUET_ROWS = 1 << 16


def read_csv(path: Path, sink: Sink) -> list[Kind]:
    """Put the blocks of a delimited text file with a header line (may be gzipped) into a sink; what its columns hold.

    Comma, semicolon, tab or bar is found from the header.
    """
    with opened_csv(path) as (names, _):
        pass
    if path.stat().st_size >= ARROW_BYTES and _has_arrow():
        try:
            return _read(names, lambda texts: _arrow_blocks(path, names, texts), sink)
        except _NotForArrow:  # the csv module can read it, or says what is wrong with it
            sink.restart()
    return _read(names, lambda texts: _csv_blocks(path, texts), sink)


def read_parquet(path: Path, sink: Sink) -> list[Kind]:
    """Put the blocks of a Parquet file into a sink; what its columns hold."""
    try:
        from pyarrow import ArrowException, default_memory_pool, parquet
    except ImportError as cause:
        raise MissingExtra("pyarrow", "frames", f"reading '{path.name}'") from cause
    try:
        # without a buffer, a whole group of rows would lie in memory
        with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            names = list(file.schema_arrow.names)
            refuse_twice(names, f"'{path}'")
            return _read(names, lambda _: _parquet_blocks(file), sink)
    except (ArrowException, OSError) as cause:
        raise DataError(f"'{path}' cannot be read as a Parquet file: {cause}") from cause
    finally:
        default_memory_pool().release_unused()


def _read(names: Sequence[str], blocks: Callable[[Collection[int]], Iterable[list[Piece]]], sink: Sink) -> list[Kind]:
    """All blocks into the sink; again where columns turn out to hold numbers and texts, which are then texts."""
    texts: set[int] = set()
    while True:
        kinds = [Kind(name) for name in names]
        for pieces in blocks(texts):
            for kind, piece in zip(kinds, pieces, strict=True):
                kind.see(piece)
            sink.add(pieces)
        texts = {place for place, kind in enumerate(kinds) if kind.numbers and kind.texts}
        if not texts:
            return kinds
        texts |= {place for place, kind in enumerate(kinds) if kind.texts}
        sink.restart()


@contextmanager
def opened_csv(path: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """The names of the columns, and the lines below them as lists of texts, to be read while the file is open."""
    with _lines_of(path, encoding) as lines:
        first = next(iter(lines), "")
        if not first.strip():
            raise DataError(f"'{path}' is empty" if not first else f"the first line of '{path}' is empty",
                            remedy="the first line has to name the columns")
        reader = csv.reader(chain([first], lines), delimiter=_delimiter(first))
        header = [name.strip() for name in next(reader)]
        refuse_twice(header, f"'{path}'")
        yield header, _checked_rows(reader, len(header), path)


@contextmanager
def _lines_of(path: Path, encoding: str = "utf-8-sig") -> Iterator[Iterable[str]]:
    try:
        with gzip.open(path, "rt", encoding=encoding, newline="") if path.suffix == ".gz" else \
                path.open(encoding=encoding, newline="") as lines:
            yield lines
    except csv.Error as cause:
        raise DataError(f"'{path}' cannot be read as a text table: {cause}", remedy="look for a quote that is opened "
                        "and never closed") from cause
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as cause:
        raise DataError(f"'{path}' cannot be read as a text table in {encoding.removesuffix('-sig')}: {cause}",
                        remedy="say how it is encoded: data.mapping = {encoding = \"cp1252\"}") from cause


def _delimiter(first: str) -> str:
    return max(_DELIMITERS, key=first.count)


def _checked_rows(reader: Any, width: int, path: Path) -> Iterator[list[str]]:
    for row in reader:
        if len(row) == width:
            yield row
        elif row:
            raise DataError(f"line {reader.line_num} of '{path}' has {len(row)} values, the header names {width} "
                            "columns", remedy="quote values that contain the delimiter, and let the first "
                            "line name the columns")


def refuse_twice(names: list[str], where: str) -> None:
    """Refuse two columns of one name."""
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise DataError(f"{where} has {times} columns called '{name}'", remedy="rename all but one of them where the "
                        "table names its columns")


def _csv_blocks(path: Path, texts: Collection[int]) -> Iterator[list[Piece]]:
    with opened_csv(path) as (names, rows):
        while block := list(islice(rows, max(_BLOCK_CELLS // len(names), 1))):
            yield [_piece_of_cells(name, cells, parse=place not in texts)
                   for place, (name, cells) in enumerate(zip(names, zip(*block, strict=True), strict=True))]


def _piece_of_cells(name: str, cells: Sequence[str], *, parse: bool) -> Piece:
    known: dict[str, int] = {}
    codes = np.fromiter((known.setdefault(cell, len(known)) for cell in cells), np.int64, len(cells))
    return piece_of_texts(name, tuple(known), codes, parse=parse)


class _NotForArrow(Exception):
    """pyarrow cannot read a text table."""


def _has_arrow() -> bool:
    try:
        import pyarrow
    except ImportError:
        return False
    return bool(pyarrow)


def _arrow_blocks(path: Path, names: Sequence[str], texts: Collection[int]) -> Iterator[list[Piece]]:
    import pyarrow
    from pyarrow import csv as arrow_csv

    with _lines_of(path) as lines:
        first = next(iter(lines))
    if first.count('"') % 2:
        raise _NotForArrow  # a header of several lines
    try:
        with (pyarrow.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream,
              arrow_csv.open_csv(
                  stream, arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=names, skip_rows=1),
                  arrow_csv.ParseOptions(delimiter=_delimiter(first), newlines_in_values=True),
                  arrow_csv.ConvertOptions(
                      column_types=dict.fromkeys(names, pyarrow.string()), null_values=sorted(MISSING_MARKERS),
                      strings_can_be_null=True, quoted_strings_can_be_null=True)) as reader):
            for batch in _read_ahead(reader):
                yield [_piece_of_strings(name, column, parse=place not in texts)
                       for place, (name, column) in enumerate(zip(names, batch.columns, strict=True))]
    except (pyarrow.ArrowException, OSError) as cause:
        raise _NotForArrow from cause
    finally:
        pyarrow.default_memory_pool().release_unused()


def _read_ahead(reader: Any) -> Iterator[Any]:
    """The batches of a reader, which reads the next one while its user works on one."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, reader, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, reader, None)
            yield batch


# Of each byte of a cell: 0 where it occurs in integers, 1 in other plain numbers, 2 elsewhere.
_BYTE_KINDS = np.full(256, 2, np.uint8)
_BYTE_KINDS[list(b"0123456789+-")] = 0
_BYTE_KINDS[list(b".eE")] = 1


def _piece_of_strings(name: str, cells: Arrow, *, parse: bool) -> Piece:
    plain = _plain_numbers(cells) if parse else None
    if plain is not None:
        return plain
    encoded = cells.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy()
    return piece_of_texts(name, encoded.dictionary.to_pylist(), codes, parse=parse)


def _plain_numbers(cells: Arrow) -> Piece | None:
    """A piece of cells that are all written as numbers mostly are, at the speed of pyarrow; None for all others."""
    from pyarrow import ArrowInvalid, float64

    _, offsets, data = cells.buffers()
    if data is None or cells.null_count == len(cells):
        return None
    ends = np.frombuffer(offsets, np.int32, len(cells) + 1, 4 * cells.offset)
    letters = np.frombuffer(data, np.uint8)
    kind = _BYTE_KINDS[letters[ends[0]:ends[-1]]].max()
    starts = ends[:-1][np.diff(ends) > 1]
    zero_led = (letters[starts] == ord("0")) & (letters[starts + 1] - np.uint8(ord("0")) < 10)
    if kind == 2 or zero_led.any():  # '007' is a code
        return None
    try:
        numbers = cells.cast(float64())
    except ArrowInvalid:
        return None
    return Piece(numbers.to_numpy(zero_copy_only=False), whole=bool(kind == 0))


def _parquet_blocks(file: Arrow) -> Iterator[list[Piece]]:
    for batch in file.iter_batches(_PARQUET_ROWS):
        yield [_piece_of_arrow(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]


def _piece_of_arrow(name: str, column: Arrow) -> Piece:
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        return piece_of_values(name, arrow_values(column))
    encoded = column.dictionary_encode()
    return piece_of_texts(name, encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy(), parse=False)


def arrow_values(column: Arrow) -> Array:
    """The values of a pyarrow column."""
    kind = column.type
    if hasattr(kind, "storage_type"):  # a UUID, or a number whose digits a database gives as text
        is_number = getattr(kind, "type_name", "") == "numeric"
        values = [None if value is None else str(value) for value in column.to_pylist()]
        return np.array([np.nan if value is None else float(value) for value in values]) if is_number else \
            np.array(values, dtype=object)
    if str(kind).startswith("decimal"):
        column = column.cast("float64")
    elif hasattr(kind, "value_type") and hasattr(kind, "index_type"):
        column = column.cast(kind.value_type)
    found: Array = column.to_numpy(zero_copy_only=False)
    return found
