"""Long parts of messages in pieces: cut where they leave, put together where they arrive, within limits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tequio.engines.network.wire import LARGEST_BODY, Chunk, frame
from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.engines.network.wire import Place

_OPEN_TRANSFERS = 8
_numbers = itertools.count(1)


class Part:
    """Bytes on their way. Those too long for one message leave in frames that are the same for every receiver."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.transfer = next(_numbers) if len(content) > LARGEST_BODY // 4 else 0

    @property
    def place(self) -> Place:
        """How a message refers to it."""
        return self.transfer, len(self.content)

    @property
    def inline(self) -> bytes:
        """What goes into the message's own body."""
        return b"" if self.transfer else self.content

    def frames(self) -> Iterator[bytes]:
        """The pieces that go before the message."""
        if self.transfer:
            view = memoryview(self.content)
            for offset in range(0, len(view), LARGEST_BODY):
                yield frame(Chunk(self.transfer, len(view), offset), view[offset:offset + LARGEST_BODY])


class Assembly:
    """Puts parts together again. A sender that sends more than it may, or out of order, is cut off by an error."""

    def __init__(self, maximum_bytes: int) -> None:
        self._maximum = maximum_bytes
        self._open: dict[int, tuple[int, bytearray]] = {}

    def take(self, chunk: Chunk, body: memoryview) -> None:
        """Add a piece."""
        total, content = self._open.setdefault(chunk.transfer, (chunk.total, bytearray()))
        if len(self._open) > _OPEN_TRANSFERS or total != chunk.total or chunk.offset != len(content):
            raise PayloadError("the pieces of a message do not fit together")
        waiting = sum(len(held) for _, held in self._open.values())
        if total > self._maximum or waiting + len(body) > self._maximum or len(content) + len(body) > total:
            raise PayloadError(f"a message of {total} bytes is longer than the {self._maximum} allowed")
        content += body

    def parts(self, places: Sequence[Place], body: memoryview) -> list[bytes | bytearray]:
        """The parts that a message refers to, from its own body and from what came before it."""
        found: list[bytes | bytearray] = []
        start = 0
        for transfer, length in places:
            if transfer:
                total, content = self._open.pop(transfer, (0, bytearray()))
                if total != length or len(content) != length:
                    raise PayloadError("a message refers to a part that did not arrive whole")
                found.append(content)
            else:
                found.append(bytes(body[start:start + length]))
                start += length
        if start != len(body):
            raise PayloadError("a message's body is longer or shorter than it says")
        return found
