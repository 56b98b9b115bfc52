"""What travels on a link: small typed messages, each with bytes behind it. No pickle, no code, nothing but this.

    magic 'tqn1' | header length (u32) | header (msgpack) | body
"""

from __future__ import annotations

import struct
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tequio.errors import PayloadError

MAGIC = b"tqn1"
LOWEST, HIGHEST = 1, 2
"""Versions of this protocol that are spoken here. Since 2 certificates are renewed."""

LARGEST_HEADER = 1 << 20
LARGEST_BODY = 1 << 20
LARGEST_FRAME = LARGEST_HEADER + LARGEST_BODY + 64
_PREFIX = struct.Struct("<4sI")

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=2000)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Place = tuple[Count, Count]
"""A part of a message: the transfer that brought it (0: it is in the body), and its length."""


class Message(Struct, frozen=True, tag_field="kind"):
    """One of those below."""


class Hello(Message, frozen=True, tag="hello"):
    """A party: who it is, what it speaks, and what its policy lets it tell about its data.

    `share` says which simulated share it holds, if any: a hash of the data and of how they were dealt. An `aggregator`
    holds no data and speaks for parties that dial it.
    """

    name: Name
    lowest: Count
    highest: Count
    version: Name
    rows: Count
    schema: Annotated[str, Meta(max_length=LARGEST_HEADER // 2)]
    share: Text = ""
    aggregator: bool = False


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
    part: Place


class Ready(Message, frozen=True, tag="ready"):
    """A party takes part in a run."""

    run: Name


class Waiting(Message, frozen=True, tag="waiting"):
    """A party has to wait before it takes part, such as for the approval of a person."""

    run: Name
    cause: Text


class Declined(Message, frozen=True, tag="declined"):
    """A party does not take part in a run."""

    run: Name
    cause: Text
    remedy: Text = ""


class Work(Message, frozen=True, tag="work"):
    """The coordinator: run a task. The same `position` and `digest` mean the same work, which is done once.

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
    parts: tuple[Place, Place, Place]


class Result(Message, frozen=True, tag="result"):
    """A party: what came of a task."""

    run: Name
    position: Count
    digest: Name
    seconds: float
    part: Place


class Failed(Message, frozen=True, tag="failed"):
    """A party: why there is no result. Where in its code it went wrong stays with the party."""

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
    part: Place


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
    """The coordinator: the certificate that this party shows ends in so many days."""

    days: float


class Renew(Message, frozen=True, tag="renew"):
    """A party: a request for a certificate of a new key."""

    request: Annotated[bytes, Meta(max_length=8192)]


class Renewed(Message, frozen=True, tag="renewed"):
    """The coordinator: the new certificate."""

    certificate: Annotated[bytes, Meta(max_length=65536)]


FromParty = Hello | Ready | Waiting | Declined | Result | Failed | Chunk | Relayed | Left | Merged | Renew
FromCoordinator = Welcome | Goodbye | Begin | Work | End | Chunk | Relayed | Members | Withdraw | Drop | Expiring \
    | Renewed

_decoders = {"party": msgspec.msgpack.Decoder(FromParty), "coordinator": msgspec.msgpack.Decoder(FromCoordinator)}


def frame(message: Message, *body: bytes | memoryview) -> bytes:
    """A message and its body as bytes."""
    header = msgspec.msgpack.encode(message)
    return b"".join((_PREFIX.pack(MAGIC, len(header)), header, *body))


def from_party(data: bytes) -> tuple[FromParty, memoryview]:
    """A party's message and its body; anything but a whole and well-formed message is refused."""
    return _unframed(data, "party")


def from_coordinator(data: bytes) -> tuple[FromCoordinator, memoryview]:
    """The coordinator's message and its body."""
    return _unframed(data, "coordinator")


def clipped(text: str) -> str:
    """A text that fits a message."""
    return text if len(text) <= 2000 else text[:1997] + "..."


def _unframed(data: bytes, sender: str) -> tuple[Any, memoryview]:
    if len(data) < _PREFIX.size or len(data) > LARGEST_FRAME:
        raise PayloadError(f"a message of {len(data)} bytes is too short or too long")
    magic, length = _PREFIX.unpack_from(data)
    end = _PREFIX.size + length
    if magic != MAGIC or length > LARGEST_HEADER or end > len(data) or len(data) - end > LARGEST_BODY:
        raise PayloadError("these bytes are not a message of this protocol")
    view = memoryview(data)
    try:
        return _decoders[sender].decode(view[_PREFIX.size:end]), view[end:]
    except (msgspec.MsgspecError, RecursionError, ValueError) as cause:
        raise PayloadError(f"a message cannot be read: {cause}") from None
