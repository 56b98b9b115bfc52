"""An audit log that cannot be changed unnoticed: each line holds the hash of the line before it."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tequio.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FIRST = "0" * 64
_LONGEST_TEXT = 500


class AuditLog:
    """Appends entries; one writer at a time. What others sent is cut short, so that they cannot fill the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._number, self._last = _end_of(path)

    def note(self, event: str, **facts: Any) -> None:
        """Add an entry."""
        with self._lock:
            entry = {"number": self._number + 1, "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                     "event": event, **{key: _short(value) for key, value in facts.items()}, "previous": self._last}
            sealed = {**entry, "hash": _hash(entry)}
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, json.dumps(sealed).encode() + b"\n")
            finally:
                os.close(descriptor)
            self._number, self._last = entry["number"], sealed["hash"]


def verify(path: Path) -> int:
    """How many entries an unbroken log has; an error names the first line that is not as it was written."""
    previous, count = _FIRST, 0
    for number, entry in _entries(path):
        told = entry.pop("hash", None)
        if entry.get("previous") != previous or entry.get("number") != number or told != _hash(entry):
            raise RunError(f"line {number} of the audit log '{path}' was changed, or a line before it is missing",
                           remedy="keep the file as evidence and find out who can write it")
        previous, count = str(told), number
    return count


def entries(path: Path) -> list[dict[str, Any]]:
    """All entries, oldest first."""
    return [entry for _, entry in _entries(path)]


def _entries(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, {}


def _end_of(path: Path) -> tuple[int, str]:
    number = 0
    entry: dict[str, Any] = {}
    for number, entry in _entries(path):  # noqa: B007 - the last one is wanted
        pass
    return number, str(entry.get("hash", _FIRST))


def _hash(entry: dict[str, Any]) -> str:
    return sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value
