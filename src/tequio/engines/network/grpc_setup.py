"""gRPC as it is used here: TLS 1.3, and one long-lived stream per party, kept alive, with messages of bounded size.

What gRPC itself writes to stderr becomes structured log lines: it reports refused handshakes nowhere else.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from tequio.engines.network.telemetry import Telemetry
from tequio.engines.network.wire import LARGEST_FRAME
from tequio.errors import EngineError, MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from tequio.engines.network.telemetry import AuditLog


LINK = "/tequio.Coordinator/Link"
_WRONG_ROLE = re.compile("Hostname Verification Check failed|unsupported certificate purpose")
_ALIVE_EVERY, _ALIVE_WITHIN = 20_000, 10_000
_STREAMS = 16

CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", LARGEST_FRAME), ("grpc.max_send_message_length", LARGEST_FRAME),
    ("grpc.keepalive_time_ms", _ALIVE_EVERY), ("grpc.keepalive_timeout_ms", _ALIVE_WITHIN),
    ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1),
]
SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_FRAME), ("grpc.max_send_message_length", LARGEST_FRAME),
    ("grpc.keepalive_time_ms", 2 * _ALIVE_EVERY), ("grpc.keepalive_timeout_ms", _ALIVE_WITHIN),
    ("grpc.http2.min_ping_interval_without_data_ms", _ALIVE_EVERY // 2), ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1), ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", _ALIVE_EVERY), ("grpc.max_concurrent_streams", _STREAMS),
]

_SUITES_KEY, _SUITES = "GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384"
# gRPC has no option for the lowest version of TLS, but reads this variable when it is loaded. The suites of TLS 1.3 are
# always on. Of TLS 1.2 one is left, for RSA certificates, which no federation has: its handshakes find no shared suite.
_TOO_LATE = "grpc" in sys.modules and os.environ.get(_SUITES_KEY) != _SUITES
os.environ[_SUITES_KEY] = _SUITES


def dialling_options(dials: str) -> list[tuple[str, int | str]]:
    """For a channel to a machine whose certificate has to hold that name, wherever the machine is."""
    return [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", dials)]


def why_not(details: str) -> str:
    """Why a channel did not open, for an operator to read."""
    return (f"it shows no certificate of this federation's coordinator or aggregator ({details})"
            if _WRONG_ROLE.search(details) else details)


def require_grpc() -> ModuleType:
    """The grpc module, held to TLS 1.3, or what to install."""
    if _TOO_LATE:
        raise EngineError("gRPC was imported before this process could hold it to TLS 1.3",
                          remedy=f"import tequio.engines.network.grpc_setup first, or set {_SUITES_KEY}={_SUITES}")
    # Its own logging of refused handshakes goes to stderr past every setting of ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc
        import grpc.aio
    except ImportError:
        raise MissingExtra("grpcio", "network", "the network engine") from None
    module: ModuleType = grpc
    return module


_REFUSED = re.compile(rb"Handshake failed.*?OPENSSL_internal:([A-Z_]+)(?:: ([^\r\n]*))?")
_TROUBLE = re.compile(rb"^[EF]\d{4} ")


def telemetry_with_handshakes(audit: AuditLog) -> Telemetry:
    """Telemetry to stderr in which refused handshakes are noted too. To be called before gRPC is imported."""
    os.environ["GRPC_VERBOSITY"] = "INFO"
    kept = os.fdopen(os.dup(2), "w", encoding="utf-8")
    reading, writing = os.pipe()
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    sys.stderr = kept
    telemetry = Telemetry(audit, kept)
    threading.Thread(target=_listen, args=(reading, telemetry), name="tequio-stderr", daemon=True).start()
    return telemetry


def _listen(reading: int, telemetry: Telemetry) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            refused = _REFUSED.search(line)
            if refused:
                telemetry.note("handshake refused", cause=refused[1].decode().lower().replace("_", " "),
                               detail=(refused[2] or b"").decode(errors="replace"))
                telemetry.count("refusals", kind="handshake")
            elif _TROUBLE.match(line) or not re.match(rb"^[IW]\d{4} |WARNING: All log messages", line):
                telemetry.log("stderr", text=line.decode(errors="replace").rstrip())
