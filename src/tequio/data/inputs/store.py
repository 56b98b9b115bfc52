"""Columns of tables that are larger than memory, in mapped files that the user's cache keeps.

A table is kept under the hash of the file that it was made of, and made once. Its columns lie in blocks of rows, which
are looked at one at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.fetch import write_atomically
from tequio.data.inputs.column import Column
from tequio.data.inputs.pieces import Kind, Piece, values_of
from tequio.data.mapped import Mapping
from tequio.data.scratch import lock, remove, sweep, tables_folder, writing_to
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.data.inputs.column import Columns
    from tequio.data.inputs.pieces import Sink

    Place = list[Any]
    """A piece's type, where it lies, and where what belongs to it does."""
    Buffer = bytes | memoryview


STORED_BYTES = 64 << 20
"""Tables in smaller files are read into memory."""

_FORMAT = 2
_RESIDENT_BYTES = 64 << 20
_CLOCK_NANOSECONDS = 2_000_000_000


class Writer:
    """A sink that writes the blocks to a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / "data").open("wb")
        self._rows: list[int] = []
        self._pieces: list[list[Place]] = []

    def restart(self) -> None:
        """Forget all blocks."""
        self._file.seek(0)
        self._file.truncate()
        self._rows, self._pieces = [], []

    def add(self, pieces: Sequence[Piece]) -> None:
        """One more block: a piece of each column."""
        with writing_to(self._folder):
            self._rows.append(len(pieces[0].values))
            self._pieces.append([self._written(piece) for piece in pieces])

    def finish(self, kinds: Sequence[Kind]) -> None:
        """Write down what the columns are and where their pieces lie."""
        with writing_to(self._folder):
            self._file.close()
            document = {"format": _FORMAT, "bytes": (self._folder / "data").stat().st_size, "rows": self._rows,
                        "columns": [{"name": kind.name, "text": kind.is_text, "whole": kind.whole, "dated": kind.dated,
                                     "dtype": kind.dtype.str, "missing": kind.missing} for kind in kinds],
                        "pieces": self._pieces}
            (self._folder / "columns.json").write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _written(self, piece: Piece) -> Place:
        """Where the piece lies: its type and place, and the place and length of its texts where it has such."""
        if piece.texts is None:
            return [piece.values.dtype.str, self._append(np.ascontiguousarray(piece.values).data)]
        texts = json.dumps(piece.texts).encode()
        return [piece.values.dtype.str, self._append(np.ascontiguousarray(piece.values).data), self._append(texts),
                len(texts)]

    def _append(self, data: Buffer) -> int:
        at = self._file.tell()
        self._file.write(data)
        self._file.write(bytes(-self._file.tell() % 8))
        return at


class Table:
    """A stored table, mapped."""

    def __init__(self, folder: Path) -> None:
        document = json.loads((folder / "columns.json").read_text(encoding="utf-8"))
        if document["format"] != _FORMAT or document["bytes"] != (folder / "data").stat().st_size:
            raise ValueError(f"'{folder}' is damaged")
        self.rows: list[int] = document["rows"]
        self.kinds = [_kind(**facts) for facts in document["columns"]]
        self._pieces: list[list[Place]] = document["pieces"]
        self._mapping: Mapping | None = None
        if document["bytes"]:
            with (folder / "data").open("rb") as stream:
                self._mapping = Mapping(stream)

    def columns(self) -> Columns:
        """All columns by name."""
        return {kind.name: StoredColumn(self, place) for place, kind in enumerate(self.kinds)}

    def read(self, place: int, block: int) -> Piece:
        """One column in one block of rows."""
        assert self._mapping is not None
        dtype, at, *texts = self._pieces[block][place]
        values = self._mapping.array(dtype, [self.rows[block]], at)
        self._mapping.touch(values.nbytes, _RESIDENT_BYTES)
        return Piece(values, json.loads(self._mapping.array("u1", [texts[1]], texts[0]).tobytes()) if texts else None)


def _kind(name: str, text: bool, whole: bool, dated: bool, dtype: str, missing: int) -> Kind:
    return Kind(name, not text, text, dated, missing, np.dtype(dtype), _whole=whole)


class StoredColumn(Column):
    """A column of a stored table: its values are read whenever they are asked for, at best block by block."""

    def __init__(self, table: Table, place: int, kept: NDArray[np.bool_] | None = None, filling: str = "") -> None:
        kind = table.kinds[place]
        for name, value in (("name", kind.name), ("whole", kind.whole), ("dated", kind.dated), ("_table", table),
                            ("_place", place), ("_kind", kind), ("_kept", kept), ("_filling", filling)):
            object.__setattr__(self, name, value)

    _table: Table
    _place: int
    _kind: Kind
    _kept: NDArray[np.bool_] | None
    _filling: str

    @property
    def is_text(self) -> bool:
        """Whether values are texts, not numbers."""
        return self._kind.is_text

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.dtype(object) if self.is_text else self._kind.dtype

    @property
    def values(self) -> Array:
        """All values, in memory."""
        return np.concatenate([np.empty(0, self.dtype), *(block.values for block in self.blocks())])

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which values are missing."""
        if self._filling or not self._kind.missing:
            return np.broadcast_to(np.False_, sum(self._table.rows) if self._kept is None else int(self._kept.sum()))
        return np.concatenate([np.empty(0, bool), *(block.missing for block in self.blocks())])

    def blocks(self) -> Iterator[Column]:
        """The column in blocks of rows, of which one at a time lies in memory."""
        start = 0
        for block, rows in enumerate(self._table.rows):
            piece = self._table.read(self._place, block)
            values, missing = values_of(self._kind, piece), piece.missing
            if self._filling:
                values[missing], missing = self._filling, np.zeros(rows, bool)
            if self._kept is not None:
                kept = self._kept[start:start + rows]
                values, missing = values[kept], missing[kept]
            start += rows
            yield Column(self.name, values, missing, self.whole, self.dated)

    def take(self, rows: Array) -> Column:
        """Some rows of the column; they stay where they are if they are chosen by yes and no."""
        if rows.dtype != bool:
            return Column(self.name, self.values[rows], self.missing[rows], self.whole, self.dated)
        kept = rows
        if self._kept is not None:
            kept = self._kept.copy()
            kept[kept] = rows
        return StoredColumn(self._table, self._place, kept, self._filling)

    def filled(self, text: str) -> Column:
        """The column with a text in place of what is missing."""
        return StoredColumn(self._table, self._place, self._kept, text)


def stored_columns(source: Path, read: Callable[[Path, Sink], list[Kind]]) -> Columns:
    """The columns of a file, from the table that the cache keeps of it; made if there is none of its present content.

    A table gets its name only when it is whole, so that no other process ever sees a part of one.
    """
    folder = tables_folder()
    place = folder / source_key(source, folder)
    with suppress(OSError, ValueError, KeyError, TypeError):
        table = Table(place)
        os.utime(place)
        return table.columns()
    before = _stamp(source)
    with writing_to(folder):
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".table-"))
    handle = os.open(temporary, os.O_RDONLY) if os.name == "posix" else -1
    try:
        if handle >= 0:
            lock(handle)
        writer = Writer(temporary)
        try:
            writer.finish(read(source, writer))
        finally:
            writer.close()
        if _stamp(source) != before:
            raise DataError(f"'{source}' changed while it was read", remedy="run the command again when it is complete")
        remove(place)  # there may be a damaged one
        try:
            os.rename(temporary, place)
        except OSError:  # another process was faster with the same table
            place = temporary
        table = Table(place)
        sweep(folder, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # what is mapped stays readable
        if handle >= 0:
            os.close(handle)
    return table.columns()


def source_key(source: Path, folder: Path) -> str:
    """The name of a file's stored table: the hash of its content, which is not read again until the file changes."""
    memory, stamp, now = folder / "sources.json", _stamp(source), time.time_ns()
    known: dict[str, list[Any]] = {}
    with suppress(OSError, ValueError):
        known = json.loads(memory.read_bytes())
    path = str(source.resolve())
    found = known.get(path)
    if found is not None and found[:-1] == stamp and (folder / str(found[-1])).is_dir():
        return str(found[-1])
    with source.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    digest.update(f"{_FORMAT} {''.join(source.suffixes[-2:]).lower()}".encode())
    key = digest.hexdigest()[:40]
    # a file written to just now could change again within the same tick of its clock
    if now - max(stamp[1], stamp[2]) > _CLOCK_NANOSECONDS:
        known = {each: entry for each, entry in known.items() if (folder / str(entry[-1])).is_dir()}
        with suppress(DataError):  # without room for this the file is only read once more next time
            write_atomically(memory, json.dumps({**known, path: [*stamp, key]}).encode())
    return key


def _stamp(source: Path) -> list[int]:
    found = source.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]
