"""What gRPC itself says on stderr, as structured lines: it tells of refused handshakes nowhere else."""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from tequio.engines.network.telemetry import Telemetry

if TYPE_CHECKING:
    from tequio.engines.network.audit import AuditLog

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
