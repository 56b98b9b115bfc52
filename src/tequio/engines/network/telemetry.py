"""What an operator sees: structured log lines, counters for Prometheus, and the audit log.

The audit log cannot be changed unnoticed: each line holds the hash of the line before it. What others can bring about
as often as they like is written a number of times, and then summed up, so that they cannot fill the disk.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter, OrderedDict
from datetime import UTC, datetime
from errno import ENOSPC
from hashlib import sha256
from ipaddress import ip_network
from typing import TYPE_CHECKING, TextIO
from urllib.parse import unquote

from tequio.errors import EngineError, MissingExtra, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric

    from tequio.engines.network.files import Document
    from tequio.engines.network.hub import Hub


_CALLERS = 4096


class Allowance:
    """How often each of many callers may do something: `burst` times at once, and `per_second` in the long run.

    Only the last callers are remembered, so that its memory is bounded.
    """

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst, self._per_second = burst, per_second
        self._left: OrderedDict[object, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def spend(self, caller: object, amount: float = 1.0) -> bool:
        """Whether the caller may do it; 0 asks whether it could do it once."""
        with self._lock:
            now = time.monotonic()
            left, before = self._left.pop(caller, (self._burst, now))
            left = min(left + (now - before) * self._per_second, self._burst)
            granted = left >= max(amount, 1.0)
            self._left[caller] = (left - amount if granted else left, now)
            if len(self._left) > _CALLERS:
                self._left.popitem(last=False)
            return granted


def address_of(peer: str) -> str:
    """The address in gRPC's name of a caller; of version 6 the network, within which one machine may take any."""
    kind, _, rest = peer.partition(":")
    host = unquote(rest.rpartition(":")[0]).strip("[]").partition("%")[0]
    return str(ip_network(f"{host}/64", strict=False)) if kind == "ipv6" else host


_AT_WILL = frozenset({
    "answer refused", "certificate renewed", "claim refused", "connected", "disconnected", "enrolled",
    "enrolment confirmed", "enrolment refused", "handshake refused", "link cut", "link refused", "person read",
    "person refused", "question accepted", "question over", "rehearsal accepted", "rehearsal declined",
    "rehearsal over", "renewal refused", "run accepted", "run declined", "run over", "sent away", "task failed",
    "task refused", "unexpected message",
})
"""What another side can bring about as often as it likes, with no work of its own."""

_ENTRIES, _ENTRIES_PER_SECOND, _OF_STRANGERS = 100, 0.2, 10
_MOST_SUMS, _SECONDS_TO_SUM_UP = 256, 30.0


class Telemetry:
    """Notes events and counts things. Without a log it only counts."""

    def __init__(self, audit: AuditLog | None = None, stream: TextIO | None = None) -> None:
        self._audit, self._stream = audit, stream
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._room = Allowance(_ENTRIES, _ENTRIES_PER_SECOND)
        self._room_of_strangers = Allowance(_ENTRIES * _OF_STRANGERS, _ENTRIES_PER_SECOND * _OF_STRANGERS)
        self._left_out: Counter[tuple[str, str]] = Counter()

    def note(self, event: str, **facts: object) -> None:
        """Something worth keeping: to the audit log and, as a line of JSON, to the operator's log."""
        if event in _AT_WILL and self._leaves_out(event, facts):
            return
        if self._audit is not None:
            self._audit.note(event, **facts)
        self.log(event, **facts)

    def sum_up(self) -> None:
        """Note what was left out since the last time."""
        with self._lock:
            left_out, self._left_out = self._left_out, Counter()
        for (event, who), count in left_out.items():
            self.note("left out", what=event, who=who, count=count, text=f"{count} more of these were left out")

    def _leaves_out(self, event: str, facts: dict[str, object]) -> bool:
        """Whether there were too many of these of the same party or address; they are counted instead."""
        peer = str(facts.get("peer", ""))
        known = str(facts.get("via") or facts.get("party") or facts.get("person") or "")
        who = known or (address_of(peer) if peer else "")
        if self._room.spend((event, who)) and (known or not peer or self._room_of_strangers.spend(event)):
            return False
        with self._lock:
            begins = not self._left_out
            key = (event, who)
            self._left_out[key if key in self._left_out or len(self._left_out) < _MOST_SUMS else (event, "others")] += 1
        if begins:
            later = threading.Timer(_SECONDS_TO_SUM_UP, self.sum_up)
            later.daemon = True
            later.start()
        return True

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
_LONGEST_TEXT, _LONGEST_LINE = 500, 1 << 20


class AuditLog:
    """Appends entries; one writer at a time. What others sent is cut short, so that they cannot fill the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        lost = _cut_unfinished(path)
        self._number, self._last = _end_of(path)
        if lost:
            self.note("entry lost", bytes=lost, text="the last entry was never written to its end")

    def note(self, event: str, **facts: object) -> None:
        """Add an entry."""
        with self._lock:
            short = {key: value[:_LONGEST_TEXT] if isinstance(value, str) else value for key, value in facts.items()}
            entry = {"number": self._number + 1, "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                     "event": event, **short, "previous": self._last}
            digest = _hash(entry)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                line = json.dumps({**entry, "hash": digest}).encode() + b"\n"
                if (written := os.write(descriptor, line)) != len(line):
                    os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                    raise OSError(ENOSPC, "there is no room for an entry of the audit log")
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


def _cut_unfinished(path: Path) -> int:
    """Take a last line without an end off a log, which a crash left there; how many bytes it had."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(length - _LONGEST_LINE, 0))
        lost = len(file.read().rpartition(b"\n")[2])
        file.truncate(length - lost)
    return lost


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
