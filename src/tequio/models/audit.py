"""What was done to a model in use: one line per step, each sealed with the hash of the line before it.

    {"number": 3, "time": ..., "who": ..., "what": "share", "version": 2, "why": ..., "state": {...}, "facts": {...},
     "before": SHA-256 of line 2, "sha256": SHA-256 of this line without this field}

The last line says how things stand, so a step is one append: it happened or it did not. A line that was changed, taken
out or put in breaks the chain. Lines cut off at the end do not: keep the last hash elsewhere to notice that too.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tequio.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Entry = dict[str, Any]
"""One step, as its line says."""

FILE = "audit.jsonl"
_FIRST = "0" * 64
_WAIT_SECONDS, _PAUSE_SECONDS = 10.0, 0.02


@dataclass(frozen=True)
class Audit:
    """The steps of one model."""

    path: Path

    def entries(self) -> list[Entry]:
        """All steps, once the chain is known to be whole."""
        before, found = _FIRST, []
        for number, line in enumerate(self._lines(), 1):
            entry = _parsed(line)
            if entry is None or entry.get("number") != number or entry.get("before") != before \
                    or entry.get("sha256") != _seal(entry):
                raise RunError(f"line {number} of '{self.path}' is not what was written",
                               remedy="somebody changed the log of what was done: restore the model's folder from a "
                                      "copy, and find out who did it")
            before = entry["sha256"]
            found.append(entry)
        return found

    def state(self) -> Entry | None:
        """How things stand, from the last line alone; none where nothing was done yet."""
        lines = self._lines()
        entry = _parsed(lines[-1]) if lines else None
        if lines and (entry is None or entry.get("sha256") != _seal(entry)):
            raise RunError(f"the last line of '{self.path}' is not what was written",
                           remedy="see which lines were changed: tequio models audit NAME")
        return None if entry is None else dict(entry["state"])

    def add(self, what: str, state: Mapping[str, object], *, version: int, why: str = "",
            facts: Mapping[str, object] | None = None) -> Entry:
        """Note a step. Its line is on the disk when this returns."""
        entries = self.entries()
        entry = {"number": len(entries) + 1, "time": datetime.now(UTC).isoformat(timespec="microseconds"),
                 "who": _who(), "what": what, "version": version, "why": why, "state": dict(state),
                 "facts": dict(facts or {}), "before": entries[-1]["sha256"] if entries else _FIRST}
        entry["sha256"] = _seal(entry)
        whole = sum(len(line) + 1 for line in self._lines())
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.ftruncate(descriptor, whole)  # a line that broke off is a step that never happened
                rest = memoryview(f"{json.dumps(entry)}\n".encode())
                while rest:
                    rest = rest[os.write(descriptor, rest):]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as cause:
            raise RunError(f"'{self.path}' cannot be written: {cause.strerror or cause}",
                           remedy="nothing was done; free some space, or let yourself write the folder") from cause
        return entry

    def _lines(self) -> list[bytes]:
        """Whole lines only."""
        return self.path.read_bytes().split(b"\n")[:-1] if self.path.is_file() else []


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others out while something is decided and done. The lock ends with the process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as cause:
        raise RunError(f"'{folder}' cannot be written: {cause.strerror or cause}",
                       remedy="let yourself write it, or name another folder: --folder PATH") from cause
    try:
        _claim(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _claim(descriptor: int, folder: Path) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            import fcntl

            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise RunError(f"another process is changing '{folder}'",
                               remedy="wait for it, then try again") from None
            time.sleep(_PAUSE_SECONDS)
        except (ImportError, OSError):
            return None  # some systems and some network folders know no locks


def _seal(entry: Entry) -> str:
    plain = {key: value for key, value in entry.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _parsed(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("state"), dict) else None


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a process of a user without a name
        return ""
