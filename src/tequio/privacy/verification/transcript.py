"""A record that cannot be changed unnoticed: each line holds the hash of the one before, and is signed.

    hash of a line = SHA-256(hash of the line before | SHA-256(the line's own facts))

so that whoever knows one hash can follow the chain by the short digests of lines that it has not seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypedDict

from tequio.errors import PayloadError
from tequio.federation.payload import Payload
from tequio.privacy.aggregation.keys import fresh_key, is_signed, signature, signing_public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

BEGINNING = "0" * 64


class Line(TypedDict):
    """A line: its number, the hash of the one before, what it says, and its own hash, signed."""

    index: int
    previous: str
    body: Payload
    hash: str
    signature: str


class Chain(TypedDict, total=False):
    """What a party has seen of a transcript: whose it is, and the last line."""

    coordinator: str
    index: int
    hash: str


class Transcript:
    """Lines so far, with the key that signs them. `write` is called with each new line before it is used."""

    def __init__(self, seed: bytes | None = None, lines: Sequence[Line] = (),
                 write: Callable[[Line], None] = lambda line: None) -> None:
        self._seed = seed or fresh_key()
        self.lines = list(lines)
        self._write = write

    @property
    def public(self) -> bytes:
        """By this key the lines can be checked."""
        return signing_public(self._seed)

    @property
    def last_hash(self) -> str:
        """Hash of the last line."""
        return self.lines[-1]["hash"] if self.lines else BEGINNING

    def append(self, kind: str, facts: Mapping[str, object]) -> Line:
        """Add, sign and write a line."""
        if not self.lines and kind != "start":
            self.append("start", {"coordinator": self.public.hex()})
        index, previous, body = len(self.lines), self.last_hash, {"kind": kind, **facts}
        hash_ = chained(previous, digest_of(index, body))
        line: Line = {"index": index, "previous": previous, "body": body, "hash": hash_,
                      "signature": signature(self._seed, hash_.encode()).hex()}
        self._write(line)
        self.lines.append(line)
        return line

    def links(self, since: int, until: int) -> list[str]:
        """Digests of the lines after one place and before another, to follow the chain by."""
        return [digest_of(line["index"], line["body"]) for line in self.lines[since + 1:until]]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a line."""

    line: int
    what: str


def digest_of(index: int, body: Payload) -> str:
    """Of a line's place and its own facts."""
    return sha256(canonical([index, body])).hexdigest()


def chained(previous: str, digest: str) -> str:
    """The hash of a line from the hash before it and its digest."""
    return sha256(bytes.fromhex(previous) + bytes.fromhex(digest)).hexdigest()


def canonical(value: object) -> bytes:
    """The same bytes for the same facts, everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def broken_lines(lines: Sequence[Line], public: bytes | None = None) -> Iterator[Finding]:
    """Lines that were changed, added, left out or put elsewhere; by the key that the first line names, or a known one.

    Only the first line of a chain can be believed to be the right one if the key is known from elsewhere.
    """
    try:
        key = public or bytes.fromhex(lines[0]["body"]["coordinator"])
    except (KeyError, IndexError, TypeError, ValueError):
        yield Finding(0, "it does not name the coordinator's key")
        return
    previous = BEGINNING
    for place, line in enumerate(lines):
        try:
            what = _wrong_with(line, place, previous, key)
            previous = str(line["hash"])
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            what = f"it is no line of a transcript ({cause!r})"
        if what:
            yield Finding(place, what)
            return


def _wrong_with(line: Line, place: int, previous: str, key: bytes) -> str:
    if line["index"] != place or line["previous"] != previous:
        return "it does not follow the line before: a line was left out, added or moved"
    if line["hash"] != chained(previous, digest_of(line["index"], line["body"])):
        return "its facts were changed after it was written"
    if not is_signed(key, bytes.fromhex(line["signature"]), str(line["hash"]).encode()):
        return "it is not signed by the coordinator"
    return ""


def follow(known: Chain, line: Line, links: Sequence[str]) -> None:
    """Refuse a line to which the chain does not lead from what a party has seen before."""
    hash_, index = known.get("hash", BEGINNING), known.get("index", -1)
    for digest in links:
        hash_, index = chained(hash_, digest), index + 1
    wrong = _wrong_with(line, index + 1, hash_, bytes.fromhex(known["coordinator"]))
    if wrong:
        raise PayloadError(f"line {line.get('index')} of the transcript cannot be believed: {wrong}",
                           remedy="the coordinator has changed what it told before, or somebody speaks in its name")
