"""Which processes write which runs, found without touching their files.

A run holds a lock on its event file. Trying to take that lock would make a run that starts at the same moment believe
that it has a rival, so the kernel's list of locks is read instead. Where there is no such list, a run whose file grew a
moment ago counts as running.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tequio.experiments.store import BASELINES, EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

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
