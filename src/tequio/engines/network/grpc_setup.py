"""gRPC as it is used here: one long-lived stream per party, kept alive, with messages of bounded size.

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
from tequio.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from tequio.engines.network.telemetry import AuditLog


LINK = "/tequio.Coordinator/Link"
_ALIVE_EVERY, _ALIVE_WITHIN = 20_000, 10_000

CHANNEL_OPTIONS = [
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
]


def require_grpc() -> ModuleType:
    """The grpc module, or what to install."""
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
