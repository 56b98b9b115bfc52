"""What a party keeps of a run on its disk: after each task its state and its reply.

A task that is asked for again is answered from here, so that it is done once however often links break. A run that is
resumed from a checkpoint finds the state of that moment, and what was done after it in vain is forgotten. Of a run that
is over the last state stays, which is the party's part of the model, until its owner cleans up.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.engines.network.files import private_folder, write_private
from tequio.errors import PayloadError, RunError
from tequio.federation import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tequio.engines.network.homes import PartyHome
    from tequio.federation.payload import Payload

_PREFIX, _OVER = "task-", "over"
_BEGINNING = 1 << 16


@dataclass(frozen=True)
class Record:
    """One task that was done: on top of which state, which work it was, the state after it, and the reply."""

    position: int
    base: int
    digest: str
    state: Payload
    reply: bytes | memoryview
    seconds: float


class Journal:
    """The records of one run."""

    def __init__(self, folder: Path, beginning: Payload | None = None) -> None:
        """`beginning` is the state before the first task, where there is one."""
        self._folder, self._beginning = folder, beginning or {}
        self._last: Record | None = None
        self._over = (folder / _OVER).exists()
        # Kept in memory, because looking into the folder for every task would cost more than the task.
        self._positions = {int(path.name.removeprefix(_PREFIX)) for path in folder.glob(_PREFIX + "*")}

    def find(self, position: int, base: int, digest: str) -> Record | None:
        """The record of this very work, if it was done."""
        record = self._read(position)
        return record if record is not None and (record.base, record.digest) == (base, digest) else None

    def state(self, base: int) -> Payload:
        """The state after a task, or before the first one."""
        if not base:
            return self._beginning
        record = self._read(base)
        if record is None:
            raise RunError(f"the state after task {base} of run '{self._folder.name}' is not on this party's disk",
                           remedy="restore the party's folder from a backup, or start the run anew")
        return record.state

    def last_state(self) -> Payload:
        """The state after the last task; empty where nothing was done."""
        return self.state(max(self._positions, default=0))

    def add(self, record: Record) -> None:
        """Keep a record, and forget those that it makes void: they came after a state that the run went back from."""
        reply = np.frombuffer(record.reply, np.uint8)  # an array is written without being copied
        content = payloads.encode_pieces({**vars(record), "reply": reply})
        if self._over:  # it goes on, to more rounds
            (self._folder / _OVER).unlink(missing_ok=True)
            self._over = False
        # A reply can be made again; a state that others build on cannot.
        write_private(private_folder(self._folder) / f"{_PREFIX}{record.position:012d}", *content,
                      sync=bool(record.state))
        self._last = record
        self._positions.add(record.position)
        self._forget(position for position in self._positions
                     if position > record.base and position != record.position)

    def prune(self, keep: int) -> None:
        """Forget what no checkpoint refers to any more."""
        self._forget(position for position in self._positions if position < keep)

    def end(self) -> None:
        """The run is over: keep the last state only, until `clean` takes it away."""
        if not self._positions:
            return  # nothing was done, and nothing is kept
        self._forget(position for position in self._positions if position < max(self._positions))
        write_private(private_folder(self._folder) / _OVER, b"", sync=False)
        self._over = True

    def forget(self) -> None:
        """Nothing of it is needed any more."""
        self._positions.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _forget(self, positions: Iterable[int]) -> None:
        for position in list(positions):
            self._path(position).unlink(missing_ok=True)
            self._positions.discard(position)

    def _path(self, position: int) -> Path:
        return self._folder / f"{_PREFIX}{position:012d}"

    def _read(self, position: int) -> Record | None:
        if self._last is not None and self._last.position == position:
            return self._last
        if position not in self._positions:
            return None
        try:
            content = payloads.decode(_bytes_of(self._path(position)), shared=True)
        except FileNotFoundError:
            return None
        except PayloadError as cause:
            raise RunError(f"'{self._path(position)}' is damaged: {cause.message}",
                           remedy="restore the party's folder from a backup, or start the run anew") from cause
        self._last = Record(**{**content, "reply": np.asarray(content["reply"], np.uint8).data})
        return self._last


@dataclass(frozen=True)
class Kept:
    """What a party's folder holds of a run: how long ago it ended, or was last asked for if it did no work here (None:
    it goes on), and its bytes on the disk."""

    run: str
    days: float | None
    bytes: int
    paths: tuple[Path, ...]


def kept_runs(home: PartyHome, now: float) -> list[Kept]:
    """What is kept of each run: journal and states, its approval, and what it announced."""
    runs, approvals, announced = (home.folder / place for place in ("runs", "approvals", "announced"))
    names = {path.name for path in runs.glob("*")} | {path.stem for path in approvals.glob("*.json")} | {
        path.name for path in announced.glob("*")}
    found = []
    for run in sorted(names):
        places = (runs / run, approvals / f"{run}.json", announced / run)
        paths = tuple(path for path in places if path.exists())
        size = sum(path.stat().st_size for place in paths for path in (place, *place.rglob("*")) if path.is_file())
        last = [runs / run / _OVER] if (runs / run).exists() else paths
        days = (now - max(path.stat().st_mtime for path in last)) / 86400 if last[0].exists() else None
        found.append(Kept(run, days, size, paths))
    return found


def clean(home: PartyHome, older_than_days: float, now: float, *, delete: bool = True) -> tuple[list[Kept], list[Kept]]:
    """Delete what is kept of runs that ended so long ago: what was deleted, and what was left."""
    found = kept_runs(home, now)
    old = [run for run in found if run.days is not None and run.days >= older_than_days]
    for path in (path for run in old if delete for path in run.paths):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return old, [run for run in found if run not in old]


def _bytes_of(path: Path) -> memoryview:
    """A file's bytes in memory of our own, in which large arrays may stay."""
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
        memory = payloads.room(path.stat().st_size, memoryview(beginning))
        memory[:len(beginning)] = beginning
        file.readinto(memory[len(beginning):])
    return memory
