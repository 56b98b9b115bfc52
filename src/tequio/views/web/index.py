"""The list of runs in a folder, kept in memory and read again only where files changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from tequio.errors import TequioError
from tequio.experiments import store
from tequio.views.web.events import last_facts
from tequio.views.web.reading import DAMAGE, read_config, read_summary
from tequio.views.web.writers import Writers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FINISHED, RUNNING, STOPPED, FAILED, CORRUPT = STATUSES = ("finished", "running", "stopped", "failed", "corrupt")
LOG = "dashboard.log"
"""What a run that the dashboard started says on its way."""

# A folder that holds one of these is a run, whole or not.
_MARKS = (store.SUMMARY, store.CONFIG, store.EVENTS, store.CHECKPOINT, store.METRICS)
_STAMPED = (*_MARKS, LOG)
_HEADLINES = ("test.", "parties.", "validation.")

Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Entry:
    """One run as the list shows it. `trouble` says what is wrong with a run that is corrupt or failed."""

    id: str
    status: str
    name: str = ""
    algorithm: str = ""
    data: str = ""
    seed: int | None = None
    round: int = 0
    rounds: int = 0
    metric: str = ""
    value: float | None = None
    changed: float = 0.0
    trouble: str = ""

    @property
    def changed_text(self) -> str:
        """When something was last written, for people."""
        return datetime.fromtimestamp(self.changed, UTC).strftime("%Y-%m-%d %H:%M")


class Index:
    """The runs of a folder and of the sweeps in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[Stamp, Entry]] = {}
        self._lock = Lock()

    def entries(self) -> list[Entry]:
        """All runs, the one that changed last first."""
        writers = Writers()
        with self._lock:
            found = {id: self._entry(id, folder, stamp, writers) for id, folder, stamp in _folders(self._root)}
            self._known = {id: self._known[id] for id in found}
        return sorted(found.values(), key=lambda entry: (-entry.changed, entry.id))

    def entry(self, id: str, folder: Path) -> Entry:
        """One run, as it is now."""
        with self._lock:
            return self._entry(id, folder, _stamp(folder), Writers())

    def _entry(self, id: str, folder: Path, stamp: Stamp, writers: Writers) -> Entry:
        known = self._known.get(id)
        if known is None or known[0] != stamp:
            changed = max((moment for moment, _ in stamp), default=0) / 1e9
            known = self._known[id] = (stamp, replace(read_entry(id, folder), changed=changed))
        entry = known[1]
        return replace(entry, status=RUNNING, trouble="") if entry.status != CORRUPT and \
            writers.is_written(folder) else entry


def read_entry(id: str, folder: Path) -> Entry:
    """A run from its files alone; whatever is wrong with them is part of the answer."""
    try:
        return _finished(id, folder) if (folder / store.SUMMARY).is_file() else _unfinished(id, folder)
    except (TequioError, *DAMAGE) as cause:
        return Entry(id, CORRUPT, name=folder.name, trouble=_reason(cause))


def log_text(folder: Path, most: int = 20_000) -> str:
    """The end of what the run's process said; empty where the dashboard did not start it."""
    path = folder / LOG
    if not path.is_file() or path.is_symlink():
        return ""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - most, 0))
        return file.read(most).decode("utf-8", "replace").strip()


def headline(metrics: dict[str, Any]) -> tuple[str, float | None]:
    """The metric that stands for a run, and its value: at the coordinator, else at the parties."""
    for prefix in _HEADLINES:
        names = [name.split(".")[1] for name in metrics if name.startswith(prefix)]
        if names:
            metric = prefix + next((name for name in names if name != "loss"), "loss")
            name = metric if metric in metrics else f"{metric}.mean"
            value = metrics.get(name)
            return name, float(value) if isinstance(value, int | float) else None
    return "", None


def _finished(id: str, folder: Path) -> Entry:
    summary = read_summary(folder)
    if not (folder / store.CONFIG).is_file():
        raise FileNotFoundError(f"{store.CONFIG} is missing")
    metric, value = headline(summary["metrics"])
    rounds = int(summary["rounds"])
    return Entry(id, FINISHED, str(summary["name"]), str(summary["algorithm"]), str(summary["data"]),
                 int(summary["seed"]), rounds, rounds, metric, value)


def _unfinished(id: str, folder: Path) -> Entry:
    given = read_config(folder)
    facts = last_facts(folder / store.EVENTS)
    metric, value = headline(facts.row)
    status, trouble = (FAILED, facts.error) if facts.failed else (STOPPED, "")
    if not facts.begun and (said := log_text(folder)):
        status, trouble = FAILED, said
    return Entry(id, status, str(given["name"]), str(given["algorithm"]["name"]), str(given["data"]["name"]),
                 int(given["seed"]), facts.round, int(given["rounds"]), metric, value, trouble=trouble)


def _folders(root: Path) -> Iterator[tuple[str, Path, Stamp]]:
    """Every run under the root; what holds no file of a run may be a sweep, whose cells are one level deeper."""
    for name in _inner(root):
        stamp = _stamp(root / name)
        if stamp:
            yield name, root / name, stamp
            continue
        for cell in _inner(root / name):
            inner = _stamp(root / name / cell)
            if inner:
                yield f"{name}/{cell}", root / name / cell, inner


def _inner(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as items:
            return [item.name for item in items if not item.name.startswith(".") and item.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _stamp(folder: Path) -> Stamp:
    """When the files of a run changed and how long they are; empty where there are none."""
    stamp = []
    for name in _STAMPED:
        try:
            known = os.stat(f"{folder}/{name}")
        except OSError:
            stamp.append((0, 0))
            continue
        stamp.append((known.st_mtime_ns, known.st_size))
    return tuple(stamp) if any(moment for moment, _ in stamp) else ()


def _reason(cause: Exception) -> str:
    if isinstance(cause, KeyError):
        return f"{cause.args[0]!r} is missing"
    return str(cause) if isinstance(cause, TequioError | OSError) else f"{type(cause).__name__}: {cause}"
