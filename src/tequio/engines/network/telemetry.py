"""What an operator sees: structured log lines, the audit log, and counters for Prometheus."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tequio.engines.network.audit import AuditLog


class Telemetry:
    """Notes events and counts things. Without a log it only counts."""

    def __init__(self, audit: AuditLog | None = None, stream: TextIO | None = None) -> None:
        self._audit, self._stream = audit, stream
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, event: str, **facts: Any) -> None:
        """Something worth keeping: to the audit log and, as a line of JSON, to the operator's log."""
        if self._audit is not None:
            self._audit.note(event, **facts)
        self.log(event, **facts)

    def log(self, event: str, **facts: Any) -> None:
        """A line of JSON for the operator."""
        if self._stream is None:
            return
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": moment, "event": event, **facts}, default=str)
        with self._lock:
            print(line, file=self._stream, flush=True)

    def count(self, name: str, amount: int = 1, *, kind: str = "") -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, kind] += amount

    def counts(self) -> dict[tuple[str, str], int]:
        """All counters so far, by name and kind."""
        with self._lock:
            return dict(self._counts)


def to_stderr(audit: AuditLog | None) -> Telemetry:
    """Telemetry that writes its log lines to stderr."""
    return Telemetry(audit, sys.stderr)
