"""The coordinator's numbers in the form that Prometheus reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import EngineError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.engines.network.hub import Hub
    from tequio.engines.network.telemetry import Telemetry

_COUNTERS = {
    "bytes_sent": "Bytes sent to parties", "bytes_received": "Bytes received from parties",
    "refusals": "Links, enrolments and messages that were refused",
    "replies_ignored": "Replies that came twice or too late",
}


def serve_metrics(port: int, hub: Hub, telemetry: Telemetry, address: str = "127.0.0.1") -> Any:
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

    def collect(self) -> Iterator[Any]:
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
