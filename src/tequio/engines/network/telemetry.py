"""What an operator sees: structured log lines, counters for Prometheus, and the audit log.

The audit log cannot be changed unnoticed: each line holds the hash of the line before it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, TextIO

from tequio.errors import EngineError, MissingExtra, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric

    from tequio.engines.network.files import Document
    from tequio.engines.network.hub import Hub


class Telemetry:
    """Notes events and counts things. Without a log it only counts."""

    def __init__(self, audit: AuditLog | None = None, stream: TextIO | None = None) -> None:
        self._audit, self._stream = audit, stream
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, event: str, **facts: object) -> None:
        """Something worth keeping: to the audit log and, as a line of JSON, to the operator's log."""
        if self._audit is not None:
            self._audit.note(event, **facts)
        self.log(event, **facts)

    def log(self, event: str, **facts: object) -> None:
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


_FIRST = "0" * 64
_LONGEST_TEXT = 500


class AuditLog:
    """Appends entries; one writer at a time. What others sent is cut short, so that they cannot fill the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._number, self._last = _end_of(path)

    def note(self, event: str, **facts: object) -> None:
        """Add an entry."""
        with self._lock:
            short = {key: value[:_LONGEST_TEXT] if isinstance(value, str) else value for key, value in facts.items()}
            entry = {"number": self._number + 1, "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                     "event": event, **short, "previous": self._last}
            digest = _hash(entry)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, json.dumps({**entry, "hash": digest}).encode() + b"\n")
            finally:
                os.close(descriptor)
            self._number, self._last = self._number + 1, digest


def verify(path: Path) -> int:
    """How many entries an unbroken log has; an error names the first line that is not as it was written."""
    previous, count = _FIRST, 0
    for number, entry in _entries(path):
        stated = entry.pop("hash", None)
        if entry.get("previous") != previous or entry.get("number") != number or stated != _hash(entry):
            raise RunError(f"line {number} of the audit log '{path}' was changed, or a line before it is missing",
                           remedy="keep the file as evidence and find out who can write it")
        previous, count = str(stated), number
    return count


def entries(path: Path) -> list[Document]:
    """All entries, oldest first."""
    return [entry for _, entry in _entries(path)]


def _entries(path: Path) -> Iterator[tuple[int, Document]]:
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
    entry: Document = {}
    for number, entry in _entries(path):  # noqa: B007 - the last one is wanted
        pass
    return number, str(entry.get("hash", _FIRST))


def _hash(entry: Document) -> str:
    return sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


_COUNTERS = {
    "bytes_sent": "Bytes sent to parties", "bytes_received": "Bytes received from parties",
    "refusals": "Links, enrolments and messages that were refused",
    "replies_ignored": "Replies that came twice or too late",
}


def serve_metrics(port: int, hub: Hub, telemetry: Telemetry, address: str = "127.0.0.1") -> WSGIServer:
    """Answer at http://address:port/metrics; call `.shutdown()` on the result to stop."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise MissingExtra("prometheus-client", "network", "the metrics endpoint") from None
    registry = CollectorRegistry()
    registry.register(_Collector(hub, telemetry))
    try:
        server, _ = start_http_server(port, address, registry)
    except OSError as cause:
        raise EngineError(f"port {port} cannot be listened on: {cause}",
                          remedy="choose another --metrics-port") from None
    return server


class _Collector:
    def __init__(self, hub: Hub, telemetry: Telemetry) -> None:
        self._hub, self._telemetry = hub, telemetry

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self._hub.status()
        connected = sum(party["connected"] for party in status["parties"].values())
        yield GaugeMetricFamily("tequio_parties_connected", "Parties with an open link", connected)
        yield GaugeMetricFamily("tequio_runs", "Runs under way", len(status["runs"]))
        owing = sum(len(run["owing"]) for run in status["runs"].values())
        yield GaugeMetricFamily("tequio_tasks_pending", "Tasks that parties still owe", owing)
        counts = self._telemetry.counts()
        for name, meaning in _COUNTERS.items():
            family = CounterMetricFamily(f"tequio_{name}", meaning, labels=["kind"])
            for kind in sorted({kind for known, kind in counts if known == name} or {""}):
                family.add_metric([kind], counts.get((name, kind), 0))
            yield family
