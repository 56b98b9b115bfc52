"""gRPC as it is used here: one long-lived stream a party, kept alive, with messages of bounded size."""

from __future__ import annotations

import os
from typing import Any

from tequio.engines.network.wire import LARGEST_FRAME
from tequio.errors import MissingExtra

LINK = "/tequio.Coordinator/Link"
OPERATE = "/tequio.Coordinator/Operate"
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


def require_grpc() -> Any:
    """The grpc module, or what to install."""
    # Its own logging of refused handshakes goes to stderr past every setting of ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc
        import grpc.aio
    except ImportError:
        raise MissingExtra("grpcio", "network", "the network engine") from None
    return grpc
