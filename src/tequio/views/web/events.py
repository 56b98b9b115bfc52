"""The event file of a run: its end for the list, and its growth for the live view."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_TAIL_BYTES = 1 << 16
_MOST_BYTES = 1 << 22
_MOST_ROUNDS = 400
_INTERRUPTED = "KeyboardInterrupt"
# What a browser is told in words; everything else is in the numbers of the rounds.
_TOLD = ("warning", "error", "failure", "drop", "quorum")


@dataclass
class Batch:
    """What happened since the last look: rounds, how often parties were chosen, and what to say in words.

    `offset` is where the next look begins. `cut` says that the file is shorter than it was: the run went back to a
    checkpoint, and what was shown before is no longer true.
    """

    offset: int
    rounds: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cut: bool = False

    def __bool__(self) -> bool:
        return bool(self.rounds or self.chosen or self.notes or self.cut)


@dataclass(frozen=True)
class LastFacts:
    """Where an event file ends."""

    begun: bool = False
    round: int = 0
    row: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    failed: bool = False


def last_facts(path: Path) -> LastFacts:
    """The last round and how the run ended, from the end of its event file."""
    begun, row, round, error, failed = False, dict[str, Any](), 0, "", False
    for event in reversed(list(_events(_end_of(path)))):
        if not begun and event["event"] == "error":
            error, failed = str(event.get("message", "")), event.get("kind") != _INTERRUPTED
        begun = True
        if event["event"] in ("round", "resume"):
            row, round = event, int(event.get("round", 0))
            break
    return LastFacts(begun, round, row, error, failed)


def read_batch(path: Path, offset: int) -> Batch:
    """What was written after `offset`, as far as its lines are whole."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < offset:
                return Batch(0, cut=True)
            file.seek(offset)
            content = file.read(_MOST_BYTES)
    except OSError:
        return Batch(offset)
    whole = content[:content.rfind(b"\n") + 1]
    return _gathered(Batch(offset + len(whole)), whole.splitlines())


def thinned(rows: list[Any], most: int = _MOST_ROUNDS) -> list[Any]:
    """At most about so many of the rows, at even distances, always with the last."""
    step = -(-len(rows) // most)
    return rows if step <= 1 else [*rows[:-1][::step], rows[-1]]


def _gathered(batch: Batch, lines: Iterable[bytes]) -> Batch:
    for event in _events(lines):
        kind = event["event"]
        if kind == "round":
            batch.rounds.append(_numbers(event))
        elif kind == "selection":
            for party in event.get("parties", ()):
                batch.chosen[str(party)] = batch.chosen.get(str(party), 0) + 1
        elif kind in _TOLD:
            batch.notes.append(_told(kind, event))
    batch.rounds = thinned(batch.rounds)
    return batch


def _numbers(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if isinstance(value, int | float)}


def _told(kind: str, event: dict[str, Any]) -> str:
    facts = {name: value for name, value in event.items() if name not in ("event", "time", "kind")}
    message = facts.pop("message", "") or ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"{kind}: {event.get('kind', '')} {message}".replace("  ", " ")


def _end_of(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, 2) - _TAIL_BYTES, 0)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return []
    return lines[1:] if start else lines


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Lines that are events; what is damaged is passed over."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event
