"""Rows in a file that is mapped into memory: a matrix larger than memory, which processes share.

The system keeps as much of such a file in memory as there is room for. A process gives the pages back that it has
read, so that its own share stays small.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tequio.data.scratch import lock, remove, sweep, tables_folder, writing_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tequio.data.dataset import Array


RESIDENT_BYTES = 256 << 20
"""How much of a mapped file a process holds before it gives the pages back to the system."""

_BLOCK_VALUES = 1 << 21


class Mapping:
    """A file in the address space of this process, and open for reading."""

    def __init__(self, stream: BinaryIO) -> None:
        self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._touched = 0
        self.handle = os.dup(stream.fileno())
        weakref.finalize(self, os.close, self.handle)

    def array(self, dtype: str, shape: Sequence[int], offset: int = 0) -> Array:
        """Values that lie at an offset."""
        return np.frombuffer(self._map, dtype, prod(shape), offset).reshape(shape)

    def touch(self, amount: int, most: int = RESIDENT_BYTES) -> None:
        """Note how many bytes were read, and give all pages back when that is more than `most`."""
        self._touched += amount
        if self._touched > most:
            self._touched = 0
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)


class Mapped(np.ndarray[Any, Any]):
    """A matrix in a file. Rows taken from it are plain arrays in memory, slices plain views.

    Single rows of a large one are read rather than mapped: a system may map megabytes for every row that is touched.
    """

    mapping: Mapping | None = None
    path: Path | None = None

    def __array_finalize__(self, whole: object) -> None:
        self.mapping = whole.mapping if isinstance(whole, Mapped) else None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, Mapped) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, np.ndarray) and key.ndim == 1 and key.dtype.kind in "iu" and self._reads_rows():
            return self.take(np.where(key < 0, key + len(self), key), 0,
                             np.empty((len(key), *self.shape[1:]), self.dtype))
        found = self.view(np.ndarray)[key]
        if self.mapping is not None and isinstance(found, np.ndarray):
            self.mapping.touch(self.nbytes if found.base is None else found.nbytes)
        return found

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """Values at some places, in memory; whole rows are read straight into `out`."""
        if axis != 0 or out is None or not out.flags.c_contiguous or not self._reads_rows():
            return self.view(np.ndarray).take(indices, axis, out, mode)
        assert self.mapping is not None
        handle, size, at, room = self.mapping.handle, self.strides[0], 0, out.reshape(-1).view(np.uint8).data
        for place in (np.asarray(indices) * size).tolist():
            if os.preadv(handle, [room[at:at + size]], place) != size:
                raise IndexError(f"there is no row {place // size} among {len(self)}")
            at += size
        return out

    def _reads_rows(self) -> bool:
        return self.path is not None and self.nbytes > RESIDENT_BYTES and hasattr(os, "preadv")


def mapped_rows(path: Path, shape: Sequence[int], dtype: str) -> Mapped:
    """The matrix in a file that another process, or this one, has written."""
    with path.open("rb") as stream:
        mapping = Mapping(stream)
    rows: Mapped = mapping.array(dtype, shape).view(Mapped)
    rows.mapping, rows.path = mapping, path
    return rows


def write_rows(blocks: Iterable[Array], dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """The matrix whose rows, of a shape each, come in blocks; mapped. Its file goes with it, or with the process."""
    folder = tables_folder()
    sweep(folder)
    rows = 0
    with writing_to(folder):
        handle, name = tempfile.mkstemp(dir=folder, prefix=".rows-")
    path = Path(name)
    try:
        with writing_to(folder), os.fdopen(os.dup(handle), "wb") as stream:
            lock(handle)
            for block in blocks:
                stream.write(np.ascontiguousarray(block, dtype).data)
                rows += len(block)
        if not rows or not prod(shape):
            _drop(path, handle)
            return np.empty((rows, *shape), dtype)
        matrix = mapped_rows(path, (rows, *shape), dtype.str)
    except BaseException:
        _drop(path, handle)
        raise
    weakref.finalize(matrix.mapping, _drop, path, handle)
    return matrix


def _drop(path: Path, handle: int) -> None:
    remove(path)
    os.close(handle)


def row_blocks(values: Array) -> Iterator[tuple[int, Array]]:
    """The rows of a matrix in blocks of a few million values, each with the number of its first row."""
    step = max(_BLOCK_VALUES // max(int(prod(values.shape[1:])), 1), 1)
    for start in range(0, len(values), step):
        yield start, values[start:start + step]
