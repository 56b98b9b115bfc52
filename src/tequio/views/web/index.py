"""The list of runs in a folder, kept in memory and read again where files changed, and which processes write them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.experiments.running import store
from tequio.experiments.running.headline import main_metric
from tequio.experiments.running.store import BASELINES, EVENTS
from tequio.views.web.reading import DAMAGE, first_headline, last_facts, read_config, read_summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.experiments.running.store import Plain


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


def headline(metrics: Plain, wanted: str = "") -> tuple[str, float | None]:
    """The metric that stands for a run, and its value: at the coordinator, else at the parties."""
    for prefix in _HEADLINES:
        names = [name.split(".")[1] for name in metrics if name.startswith(prefix)]
        if names:
            metric = prefix + main_metric(names, wanted)
            name = metric if metric in metrics else f"{metric}.mean"
            value = metrics.get(name)
            return name, float(value) if isinstance(value, int | float) else None
    return "", None


def _finished(id: str, folder: Path) -> Entry:
    summary = read_summary(folder)
    if not (folder / store.CONFIG).is_file():
        raise FileNotFoundError(f"{store.CONFIG} is missing")
    metric, value = headline(summary["metrics"], str(summary.get("headline", "")))
    rounds = int(summary["rounds"])
    return Entry(id, FINISHED, str(summary["name"]), str(summary["algorithm"]), str(summary["data"]),
                 int(summary["seed"]), rounds, rounds, metric, value)


def _unfinished(id: str, folder: Path) -> Entry:
    given = read_config(folder)
    facts = last_facts(folder / store.EVENTS)
    metric, value = headline(facts.row, first_headline(folder / store.EVENTS))
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


_LOCKS = Path("/proc/locks")
_FRESH_SECONDS = 60


class Writers:
    """The locks of one moment."""

    def __init__(self, locks: Path = _LOCKS) -> None:
        try:
            self._holders: dict[int, int] | None = dict(_held(locks.read_text(encoding="ascii")))
        except OSError:
            self._holders = None

    def process(self, folder: Path) -> int:
        """The process that writes this run or one of its baselines; 0 where there is none or it is not known."""
        return next((pid for pid in map(self._holder, _event_files(folder)) if pid and pid > 0), 0)

    def is_written(self, folder: Path) -> bool:
        """Whether some process is writing this run or one of its baselines."""
        if self._holders is not None:
            return any(self._holder(path) is not None for path in _event_files(folder))
        return any(time.time() - path.stat().st_mtime < _FRESH_SECONDS for path in _event_files(folder))

    def _holder(self, path: Path) -> int | None:
        return (self._holders or {}).get(path.stat().st_ino)


def _event_files(folder: Path) -> Iterator[Path]:
    for path in (folder / EVENTS, *(folder / BASELINES).glob(f"*/{EVENTS}")):
        if path.is_file():
            yield path


def _held(text: str) -> Iterator[tuple[int, int]]:
    """Inode and process of every exclusive lock in lines such as '1: FLOCK ADVISORY WRITE 4711 fe:00:22 0 EOF'."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 5 and words[1:4] == ["FLOCK", "ADVISORY", "WRITE"]:
            yield int(words[5].rpartition(":")[2]), int(words[4])
