"""A file of one line of JSON per event that only grows: processes take turns, and a line is on disk before it counts.

What was begun and never finished, because a process was killed, was never written.
"""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, ClassVar

from tequio.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class GrowingFile(ABC):
    """What such files have in common; a subclass counts lines and says what it is called in errors."""

    called: ClassVar[str] = "file"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._read_to, self._file = 0, (0, 0)
        self._forget()

    @abstractmethod
    def _forget(self) -> None:
        """Count from nothing, because another file has taken the place of this one."""

    @abstractmethod
    def _take(self, plain: dict[str, Any]) -> None:
        """Count one line."""

    @contextmanager
    def _at_work(self, *, to_write: bool = True) -> Iterator[None]:
        """With the file locked and all of it known."""
        with self._mutex:
            if not to_write and not self.path.exists():
                yield
                return
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as cause:
                raise self._unusable(cause) from cause
            with os.fdopen(descriptor, "r+b", buffering=0) as stream:
                _wait_for(descriptor)
                self._catch_up(stream)
                self._stream = stream
                yield

    def _catch_up(self, stream: IO[bytes]) -> None:
        """Read what others wrote. A last line without an end was never finished, so that its release did not leave."""
        status = os.fstat(stream.fileno())
        if self._file != (status.st_dev, status.st_ino) or status.st_size < self._read_to:
            self._forget()
            self._read_to, self._file = 0, (status.st_dev, status.st_ino)
        if status.st_size == self._read_to:
            return
        stream.seek(self._read_to)
        lines, _, rest = stream.read().rpartition(b"\n")
        for line in filter(None, lines.split(b"\n")):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as cause:
                raise RunError(f"the {self.called} '{self.path}' is damaged, and what was released cannot be known",
                               remedy="restore it from a backup") from cause
        self._read_to = status.st_size - len(rest)
        if rest:
            os.ftruncate(stream.fileno(), self._read_to)

    def _write(self, plain: dict[str, Any]) -> None:
        line = json.dumps(plain, separators=(",", ":")).encode() + b"\n"
        descriptor = self._stream.fileno()
        try:
            written = os.write(descriptor, line)
            os.fsync(descriptor)
        except OSError as cause:
            raise self._unusable(cause) from cause
        if written != len(line):
            os.ftruncate(descriptor, self._read_to)
            raise self._unusable(OSError("there is no room"))
        self._read_to += len(line)
        self._take(plain)

    def _unusable(self, cause: OSError) -> RunError:
        return RunError(f"the {self.called} '{self.path}' cannot be written: {cause.strerror or cause}",
                        remedy="free some space there, or check who may write the folder")


def _wait_for(descriptor: int) -> None:
    """Take turns with other processes; the system ends a turn with the process, however it ends."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return  # some systems and some network folders know no locks


def now() -> str:
    """When a line is written."""
    return datetime.now(UTC).isoformat(timespec="seconds")
