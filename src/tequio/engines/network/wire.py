"""What travels on a link: small typed messages, each with bytes behind it. No pickle, no code, nothing but this.

    magic 'tqn1' | header length (u32) | header (msgpack) | body

Parts too long for one body are cut where they leave and put together where they arrive, within limits.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tequio.errors import PayloadError
from tequio.federation import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MAGIC = b"tqn1"
LOWEST, HIGHEST = 1, 3
"""Versions of this protocol that are spoken here. Since 2 certificates are renewed, since 3 runs are rehearsed."""

LARGEST_HEADER = 1 << 20
LARGEST_BODY = 1 << 20
LARGEST_FRAME = LARGEST_HEADER + LARGEST_BODY + 64
_PREFIX = struct.Struct("<4sI")

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=2000)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
PartRef = tuple[Count, Count]
"""Where a part of a message is: the transfer that brought it (0: it is in the body), and its length."""


class Message(Struct, frozen=True, tag_field="kind"):
    """One of those below."""


class Hello(Message, frozen=True, tag="hello"):
    """A party: who it is, which versions it speaks, and what its policy lets it say about its data.

    `share` says which simulated share it holds, if any: a hash of the data and of how they were dealt. An `aggregator`
    holds no data and speaks for parties that dial it. `key` is the public key by which the party signs: that of its
    certificate, where it has one.
    """

    name: Name
    lowest: Count
    highest: Count
    version: Name
    rows: Count
    schema: Annotated[str, Meta(max_length=LARGEST_HEADER // 2)]
    share: Text = ""
    aggregator: bool = False
    key: Annotated[bytes, Meta(max_length=64)] = b""


class Welcome(Message, frozen=True, tag="welcome"):
    """The coordinator: which version of the protocol is spoken from here on."""

    protocol: Count
    version: Name


class Goodbye(Message, frozen=True, tag="goodbye"):
    """The coordinator: why this link is not wanted."""

    cause: Text
    remedy: Text = ""


class Begin(Message, frozen=True, tag="begin"):
    """The coordinator: a run starts or goes on; the part holds the announcement."""

    run: Name
    part: PartRef


class Ready(Message, frozen=True, tag="ready"):
    """A party takes part in a run. Of one that is rehearsed: with that many made-up rows, or why with none yet."""

    run: Name
    rows: Count = 0
    note: Text = ""


class Waiting(Message, frozen=True, tag="waiting"):
    """A party has to wait before it takes part, such as for the approval of a person."""

    run: Name
    cause: Text


class Declined(Message, frozen=True, tag="declined"):
    """A party does not take part in a run."""

    run: Name
    cause: Text
    remedy: Text = ""


class TaskRequest(Message, frozen=True, tag="work"):
    """The coordinator: run a task. The same `position` and `digest` mean the same request, which is carried out once.

    `base` is the position after which the party's state is to be taken; states before `keep` are no longer needed. The
    parts are: settings and stages; the payload of all parties; the payload of this one.
    """

    run: Name
    position: Count
    base: Count
    keep: Count
    digest: Name
    task: Name
    round: Count
    parts: tuple[PartRef, PartRef, PartRef]


class TaskResult(Message, frozen=True, tag="result"):
    """A party: its reply to a request."""

    run: Name
    position: Count
    digest: Name
    seconds: float
    part: PartRef


class TaskFailed(Message, frozen=True, tag="failed"):
    """A party: why there is no reply. Where in its code it went wrong stays with the party."""

    run: Name
    position: Count
    digest: Name
    cause: Text
    remedy: Text = ""


class End(Message, frozen=True, tag="end"):
    """The coordinator: a run is over."""

    run: Name


class Chunk(Message, frozen=True, tag="chunk"):
    """Either side: a piece of a part that is too long for one body."""

    transfer: Annotated[int, Meta(ge=1, le=1 << 62)]
    total: Count
    offset: Count


class Relayed(Message, frozen=True, tag="relayed"):
    """Between an aggregator and the coordinator: the body is a message from or for one of its parties."""

    name: Name


class Left(Message, frozen=True, tag="left"):
    """An aggregator: a party of its group is not there any more."""


class Merged(Message, frozen=True, tag="merged"):
    """An aggregator: one result for several of its parties, who are told apart by their tasks (name, position, digest).

    It is one message, so that all of them have answered or none.
    """

    run: Name
    answers: tuple[tuple[Name, Count, Name], ...]
    seconds: float
    part: PartRef


class Members(Message, frozen=True, tag="members"):
    """The coordinator to an aggregator: its parties, and the fingerprints of the certificates that each may show."""

    fingerprints: dict[Name, tuple[Name, ...]]


class Withdraw(Message, frozen=True, tag="withdraw"):
    """The coordinator to an aggregator: a party's answer to a task is no longer waited for."""

    run: Name
    position: Count


class Drop(Message, frozen=True, tag="drop"):
    """The coordinator to an aggregator: a part that came in pieces is not referred to again."""

    transfer: Count


class Expiring(Message, frozen=True, tag="expiring"):
    """The coordinator: the certificate that this party shows ends in this many days."""

    days: float


class Renew(Message, frozen=True, tag="renew"):
    """A party: a request for a certificate of a new key."""

    request: Annotated[bytes, Meta(max_length=8192)]


class Renewed(Message, frozen=True, tag="renewed"):
    """The coordinator: the new certificate."""

    certificate: Annotated[bytes, Meta(max_length=65536)]


FromParty = Hello | Ready | Waiting | Declined | TaskResult | TaskFailed | Chunk | Relayed | Left | Merged | Renew
FromCoordinator = Welcome | Goodbye | Begin | TaskRequest | End | Chunk | Relayed | Members | Withdraw | Drop \
    | Expiring | Renewed

_Sent = TypeVar("_Sent")
_party_decoder: msgspec.msgpack.Decoder[FromParty] = msgspec.msgpack.Decoder(FromParty)
_coordinator_decoder: msgspec.msgpack.Decoder[FromCoordinator] = msgspec.msgpack.Decoder(FromCoordinator)


def frame(message: Message, *body: bytes | memoryview) -> bytes:
    """A message and its body as bytes."""
    header = msgspec.msgpack.encode(message)
    return b"".join((_PREFIX.pack(MAGIC, len(header)), header, *body))


def from_party(data: bytes) -> tuple[FromParty, memoryview]:
    """A party's message and its body; anything but a whole and well-formed message is refused.

    Texts come without control characters: people read them in terminals, reports and logs.
    """
    message, body = _unframed(data, _party_decoder)
    if isinstance(message, Hello):
        message = replace(message, version=printable(message.version))
    elif isinstance(message, Waiting):
        message = replace(message, cause=printable(message.cause))
    elif isinstance(message, Declined | TaskFailed):
        message = replace(message, cause=printable(message.cause), remedy=printable(message.remedy))
    elif isinstance(message, Ready):
        message = replace(message, note=printable(message.note))
    return message, body


def from_coordinator(data: bytes) -> tuple[FromCoordinator, memoryview]:
    """The coordinator's message and its body."""
    return _unframed(data, _coordinator_decoder)


def printable(text: str) -> str:
    """A text on one line, in which nothing moves a cursor or changes a colour."""
    return text if text.isprintable() else "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text)


def clipped(text: str) -> str:
    """A text that fits a message."""
    return text if len(text) <= 2000 else text[:1997] + "..."


def _unframed(data: bytes, decoder: msgspec.msgpack.Decoder[_Sent]) -> tuple[_Sent, memoryview]:
    if len(data) < _PREFIX.size or len(data) > LARGEST_FRAME:
        raise PayloadError(f"a message of {len(data)} bytes is too short or too long")
    magic, length = _PREFIX.unpack_from(data)
    end = _PREFIX.size + length
    if magic != MAGIC or length > LARGEST_HEADER or end > len(data) or len(data) - end > LARGEST_BODY:
        raise PayloadError("these bytes are not a message of this protocol")
    view = memoryview(data)
    try:
        return decoder.decode(view[_PREFIX.size:end]), view[end:]
    except (msgspec.MsgspecError, RecursionError, ValueError) as cause:
        raise PayloadError(f"a message cannot be read: {cause}") from None


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
    def ref(self) -> PartRef:
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

    def parts(self, refs: Sequence[PartRef], body: memoryview, *, keep: bool = False) -> list[Bytes]:
        """The parts that a message refers to, from its own body and from what came before it.

        They are forgotten then, or else kept for other messages until they are dropped.
        """
        found: list[Bytes] = []
        start = 0
        for transfer, length in refs:
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
