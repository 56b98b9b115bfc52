"""Long parts of messages in pieces: cut where they leave, put together where they arrive, within limits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.engines.network.wire import LARGEST_BODY, Chunk, frame
from tequio.errors import PayloadError
from tequio.federation import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tequio.engines.network.wire import Place

Bytes = bytes | memoryview
_OPEN_TRANSFERS = 8
_numbers = itertools.count(1)


class Part:
    """Bytes on their way. Those too long for one message leave in frames that are the same for every receiver.

    Frames are cut at once, which copies the bytes once, however many receive them; `lasting` bytes, which nobody
    changes and one receives, are cut as they leave.
    """

    def __init__(self, *pieces: bytes | memoryview, lasting: bool = False) -> None:
        self._size = sum(map(len, pieces))
        self._transfer = next(_numbers) if self._size > LARGEST_BODY // 4 else 0
        self.inline = b"" if self._transfer else b"".join(pieces)
        self._pieces = pieces if self._transfer and lasting else ()
        self._frames = list(self._cut(pieces)) if self._transfer and not lasting else []

    @property
    def place(self) -> Place:
        """How a message refers to it."""
        return self._transfer, self._size

    @property
    def frames(self) -> Iterable[bytes]:
        """The frames that go before the message."""
        return self._cut(self._pieces) if self._pieces else self._frames

    def _cut(self, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
        offset = 0
        for body in _bodies(pieces):
            yield frame(Chunk(self._transfer, self._size, offset), *body)
            offset += sum(map(len, body))


def _bodies(pieces: Iterable[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes in groups of views, each group as long as a body may be."""
    body: list[memoryview] = []
    space = LARGEST_BODY
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            body.append(view[:space])
            view, space = view[space:], space - len(body[-1])
            if not space:
                yield body
                body, space = [], LARGEST_BODY
    if body:
        yield body


@dataclass
class _Arriving:
    content: memoryview
    filled: int = 0


class Assembly:
    """Puts parts together again. A sender that sends more than it may, or out of order, is cut off by an error."""

    def __init__(self, maximum_bytes: int) -> None:
        self._maximum = maximum_bytes
        self._open: dict[int, _Arriving] = {}

    def take(self, chunk: Chunk, body: memoryview) -> None:
        """Add a piece."""
        begun = self._open.get(chunk.transfer)
        waiting = sum(len(held.content) for held in self._open.values()) + (chunk.total if begun is None else 0)
        if waiting > self._maximum or chunk.offset + len(body) > chunk.total:
            raise PayloadError(f"a message of {chunk.total} bytes is longer than the {self._maximum} allowed")
        if begun is None:  # memory that nobody writes to costs nothing
            begun = self._open[chunk.transfer] = _Arriving(payloads.room(chunk.total, body))
        if len(self._open) > _OPEN_TRANSFERS or len(begun.content) != chunk.total or chunk.offset != begun.filled:
            raise PayloadError("the pieces of a message do not fit together")
        begun.content[chunk.offset:chunk.offset + len(body)] = body
        begun.filled += len(body)

    def drop(self, transfer: int) -> None:
        """Forget a part that was kept."""
        self._open.pop(transfer, None)

    def parts(self, places: Sequence[Place], body: memoryview, *, keep: bool = False) -> list[Bytes]:
        """The parts that a message refers to, from its own body and from what came before it.

        They are forgotten then, or else kept for other messages until they are dropped.
        """
        found: list[Bytes] = []
        start = 0
        for transfer, length in places:
            if transfer:
                arrived = self._open.get(transfer) if keep else self._open.pop(transfer, None)
                if arrived is None or len(arrived.content) != length or arrived.filled != length:
                    raise PayloadError("a message refers to a part that did not arrive whole")
                found.append(arrived.content)
            else:
                found.append(bytes(body[start:start + length]))
                start += length
        if start != len(body):
            raise PayloadError("a message's body is longer or shorter than it says")
        return found
