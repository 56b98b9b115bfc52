"""Messages between the coordinator's process and its workers: a skeleton, and arrays in shared memory or behind it."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tequio.federation.payload import put_together, take_apart

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_ALIGNMENT = 64
# Payloads were checked where they were made; the message around them may be nested deeper than a payload may.
_ROOM = -64
_LENGTH = struct.Struct("<Q")


class Segment:
    """A growing piece of shared memory, backed by a file that both sides map."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: mmap.mmap | None = None

    def view(self, length: int, *, create: bool = False) -> memoryview:
        """The first `length` bytes, (re)mapped as needed."""
        if self._map is None or len(self._map) < length:
            self._map = None  # views still in use keep the old map alive until they go
            if create:
                with self.path.open("a+b") as file:
                    file.truncate(-(-length * 5 // 4 // mmap.PAGESIZE) * mmap.PAGESIZE)
            with self.path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        return memoryview(self._map)[:length]


def pack(message: dict[str, Any], segment: Segment) -> bytes:
    """Put the message's arrays into the segment; the returned bytes say where each one is."""
    head, arrays, starts, end = _plan(message)
    if end:
        memory = segment.view(end, create=True)
        for values, start in zip(arrays, starts, strict=True):
            np.frombuffer(memory, values.dtype, values.size, start).reshape(values.shape)[...] = values
    return head


def pack_whole(message: dict[str, Any]) -> bytes:
    """The message with its arrays in one piece, for a worker that shares no memory with this process."""
    head, arrays, _, _ = _plan(message)
    parts: list[Any] = [_LENGTH.pack(len(head)), head, bytes(-(_LENGTH.size + len(head)) % _ALIGNMENT)]
    for values in arrays:  # joined straight from where they lie, because they may be large
        parts += [np.ascontiguousarray(values).reshape(-1).view(np.uint8), bytes(-values.nbytes % _ALIGNMENT)]
    return b"".join(parts)


def unpack_whole(data: bytes, *, copy: bool) -> dict[str, Any]:
    """The message back from one piece. Without `copy` its arrays are read-only views of it."""
    length, = _LENGTH.unpack_from(data)
    start = -(-(_LENGTH.size + length) // _ALIGNMENT) * _ALIGNMENT
    skeleton, places, _ = msgspec.msgpack.decode(data[_LENGTH.size:_LENGTH.size + length])
    return _join(skeleton, places, memoryview(data)[start:], copy=copy)


def unpack(data: bytes, segment: Segment, *, copy: bool) -> dict[str, Any]:
    """The message back. Without `copy` its arrays are read-only views that hold until the sender reuses the segment."""
    skeleton, places, end = msgspec.msgpack.decode(data)
    return _join(skeleton, places, segment.view(end).toreadonly() if end else memoryview(b""), copy=copy)


def _plan(message: dict[str, Any]) -> tuple[bytes, list[NDArray[Any]], list[int], int]:
    """The message without its arrays, the arrays, where each is to start, and where the last one ends."""
    arrays: dict[str, NDArray[Any]] = {}
    skeleton = take_apart(message, arrays, depth=_ROOM)
    places, end = [], 0
    for path, values in arrays.items():
        places.append((path, values.dtype.str, values.shape, end))
        end += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
    head = msgspec.msgpack.encode((skeleton, places, end))
    return head, list(arrays.values()), [place[-1] for place in places], end


def _join(skeleton: Any, places: list[Any], memory: memoryview, *, copy: bool) -> dict[str, Any]:
    arrays: dict[str, NDArray[Any]] = {}
    for path, kind, shape, start in places:
        count = int(np.prod(shape, dtype=np.int64))
        values = np.frombuffer(memory, kind, count, start).reshape(shape) if count else np.empty(shape, kind)
        arrays[path] = values.copy() if copy else values
    message: dict[str, Any] = put_together(skeleton, arrays, _ROOM)
    return message
