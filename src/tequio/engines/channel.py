"""Messages between the coordinator's process and its workers: a skeleton, and arrays in shared memory or behind it."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Any, Protocol

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


class Memory(Protocol):
    """Where the arrays of a message lie."""

    def view(self, length: int, *, create: bool = False) -> memoryview:
        """The first `length` bytes."""
        ...


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


def pack(message: dict[str, Any], segment: Memory) -> bytes:
    """Put the message's arrays into the segment; the returned bytes say where each one is."""
    arrays: dict[str, NDArray[Any]] = {}
    skeleton = take_apart(message, arrays, depth=_ROOM)
    places, end = [], 0
    for path, values in arrays.items():
        places.append((path, values.dtype.str, values.shape, end))
        end += -(-values.nbytes // _ALIGNMENT) * _ALIGNMENT
    if end:
        memory = segment.view(end, create=True)
        for values, (_, kind, shape, start) in zip(arrays.values(), places, strict=True):
            np.frombuffer(memory, kind, values.size, start).reshape(shape)[...] = values
    return msgspec.msgpack.encode((skeleton, places, end))


def pack_whole(message: dict[str, Any]) -> bytes:
    """The message with its arrays in one piece, for a worker that shares no memory with this process."""
    memory = _Piece()
    head = pack(message, memory)
    start = _start_of_arrays(len(head))
    return b"".join((_LENGTH.pack(len(head)), head, bytes(start - _LENGTH.size - len(head)), memory.content))


def unpack_whole(data: bytes, *, copy: bool) -> dict[str, Any]:
    """The message back from one piece. Without `copy` its arrays are read-only views of it."""
    length, = _LENGTH.unpack_from(data)
    head = data[_LENGTH.size:_LENGTH.size + length]
    return unpack(head, _Piece(memoryview(data)[_start_of_arrays(length):]), copy=copy)


def unpack(data: bytes, segment: Memory, *, copy: bool) -> dict[str, Any]:
    """The message back. Without `copy` its arrays are read-only views that hold until the sender reuses the segment."""
    skeleton, places, end = msgspec.msgpack.decode(data)
    arrays: dict[str, NDArray[Any]] = {}
    if end:
        memory = segment.view(end).toreadonly()
        for path, kind, shape, start in places:
            count = int(np.prod(shape, dtype=np.int64))
            values = np.frombuffer(memory, kind, count, start).reshape(shape)
            arrays[path] = values.copy() if copy else values
    message: dict[str, Any] = put_together(skeleton, arrays, _ROOM)
    return message


class _Piece:
    """Memory of this process alone."""

    def __init__(self, content: memoryview | None = None) -> None:
        self.content = content or memoryview(b"")

    def view(self, length: int, *, create: bool = False) -> memoryview:
        if create:
            self.content = memoryview(bytearray(length))
        return self.content[:length]


def _start_of_arrays(head: int) -> int:
    return -(-(_LENGTH.size + head) // _ALIGNMENT) * _ALIGNMENT
