"""The files of a run as plain data, without believing that they are whole: summary, config, events, curves."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tequio.errors import RunError
from tequio.experiments.config.toml import read_toml
from tequio.experiments.running import store
from tequio.experiments.running.table import Table, read_csv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tequio.experiments.running.store import Plain

    Columns = dict[str, list[float | None]]


DAMAGE = (OSError, ValueError, TypeError, LookupError, AttributeError)
"""What reading a file can end in that someone has damaged."""


def read_summary(folder: Path) -> Plain:
    """The summary of a finished run; an error that says so where it is damaged."""
    try:
        summary = json.loads((folder / store.SUMMARY).read_text(encoding="utf-8"))
    except ValueError as cause:
        raise RunError(f"{store.SUMMARY} is damaged: {cause}", remedy="run it again") from None
    if not isinstance(summary, dict) or not isinstance(summary.get("metrics"), dict):
        raise RunError(f"{store.SUMMARY} is not that of a run", remedy="run it again")
    return summary


def read_config(folder: Path) -> Plain:
    """The config of a run as its file says it; an error where it is not that of a run."""
    given = read_toml(folder / store.CONFIG)
    tables = [given.get(name) for name in ("data", "algorithm")]
    if not all(isinstance(table, dict) and isinstance(table.get("name"), str) for table in tables):
        raise RunError(f"{store.CONFIG} is not that of a run", remedy="run it again")
    return given


def read_table(path: Path) -> Table:
    """A table of a run; empty where it is not there or damaged."""
    try:
        return read_csv(path)
    except (OSError, ValueError):
        return Table()


def read_text(path: Path, most: int = 200_000) -> str:
    """The start of a text file; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


_TAIL_BYTES = 1 << 16
_MOST_BYTES = 1 << 22
_MOST_ROUNDS = 400
_INTERRUPTED = "KeyboardInterrupt"
# What a browser is told in words; everything else is in the numbers of the rounds.
_TOLD = ("note", "warning", "error", "failure", "drop", "quorum")


@dataclass
class Batch:
    """What happened since the last look: rounds, how often parties were chosen, and what to say in words.

    `offset` is where the next look begins. `cut` says that the file is shorter than it was: the run went back to a
    checkpoint, and what was shown before is no longer true.
    """

    offset: int
    rounds: list[Plain] = field(default_factory=list)
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
    row: Plain = field(default_factory=dict)
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


def first_headline(path: Path) -> str:
    """The metric that stands for a run, as the first event of its file says; empty where it does not."""
    first = next(_events(read_text(path, _TAIL_BYTES).encode().splitlines()), {})
    return str(first.get("headline", ""))


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


def _numbers(event: Plain) -> Plain:
    return {name: value for name, value in event.items() if isinstance(value, int | float)}


def _told(kind: str, event: Plain) -> str:
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


def _events(lines: Iterable[bytes]) -> Iterator[Plain]:
    """Lines that are events; what is damaged is passed over."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event


AXES = {"round": "rounds", "seconds": "seconds", "bytes": "bytes sent by training", "clock.seconds": "virtual seconds"}
"""What a curve can run along, and what that is called."""

_DIGITS = 7
_NOT_DRAWN = ("messages", "bytes_up", "bytes_down")


def run_curves(folder: Path, label: str) -> list[Plain]:
    """The curves of a run and of the baselines beside it."""
    from tequio.experiments.running.results import BASELINES  # slow to import, and the list of runs needs no curves

    places = {label: folder} | {name: folder / store.BASELINES / name for name in BASELINES}
    found = {name: columns_of(read_table(place / store.METRICS)) for name, place in places.items()}
    return [{"label": name, "columns": columns} for name, columns in found.items() if columns or name == label]


def columns_of(metrics: Table) -> Columns:
    """A run's metrics column by column; seconds and bytes are added up, so that they can be an axis."""
    rows = [dict(row) for row in metrics.rows]
    seconds, sent = 0.0, 0.0
    for row in rows:
        seconds += _number(row.get("seconds")) or 0.0
        sent += (_number(row.get("bytes_up")) or 0.0) + (_number(row.get("bytes_down")) or 0.0)
        row |= {"seconds": seconds, "bytes": sent}
    kept = thinned(rows)
    names = ["round", "seconds", "bytes", *(name for name in metrics.columns if "." in name)]
    return {name: [_number(row.get(name)) for row in kept] for name in names} if rows else {}


def metric_names(curves: Iterable[Plain], first: str = "") -> list[str]:
    """The metrics that some curve has, the most telling first: `first` if it is there."""
    names = dict.fromkeys(name for one in curves for name in one["columns"])
    drawn = [name for name in names if name not in (*AXES, *_NOT_DRAWN)]
    order = ("test.", "parties.", "validation.", "train.")
    return sorted(drawn, key=lambda name: (name != first, next((place for place, prefix in enumerate(order)
                                                                if name.startswith(prefix)), len(order)),
                                           name.endswith("loss")))


def _number(value: Any) -> float | None:
    """A number that JSON can hold, short enough to send many of."""
    if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.{_DIGITS}g}")
