"""How commands on the same machine talk to a coordinator that runs: a loopback port, and a secret in its folder."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import socketserver
import threading
from typing import TYPE_CHECKING

from tequio.engines.network.files import write_private
from tequio.errors import EngineError, TequioError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tequio.engines.network.files import Document

    Handler = Callable[[Document], Mapping[str, object]]

_FILE = "control.json"
_LONGEST_LINE = 1 << 20
_SECONDS = 10.0


class Control:
    """Answers questions by name, each with one JSON document."""

    def __init__(self, folder: Path, handlers: Mapping[str, Handler]) -> None:
        self._path, self._handlers, self._secret = folder / _FILE, handlers, secrets.token_hex(16)
        control = self

        class Answering(socketserver.StreamRequestHandler):
            timeout = _SECONDS

            def handle(self) -> None:
                self.wfile.write(json.dumps(control.answer(self.rfile.readline(_LONGEST_LINE))).encode() + b"\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True

    def start(self) -> None:
        """Listen, and say where in the coordinator's folder."""
        facts = {"port": self._server.server_address[1], "secret": self._secret}
        write_private(self._path, json.dumps(facts).encode(), sync=False)
        threading.Thread(target=self._server.serve_forever, name="tequio-control", daemon=True).start()

    def stop(self) -> None:
        """Listen no more."""
        self._path.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()

    def answer(self, line: bytes) -> Mapping[str, object]:
        """What a question is answered with; never raises."""
        try:
            question = json.loads(line)
            if not hmac.compare_digest(str(question["secret"]).encode(), self._secret.encode()):
                return {"error": "the secret is wrong"}
            return self._handlers[question["ask"]](question)
        except TequioError as cause:
            return {"error": cause.message, "remedy": cause.remedy}
        except Exception as cause:
            return {"error": f"{type(cause).__name__}: {cause}"}


def ask(home: Path, question: str, **facts: object) -> Document | None:
    """The answer of the coordinator that runs in this folder; nothing where none runs."""
    try:
        running = json.loads((home / _FILE).read_bytes())
        with socket.create_connection(("127.0.0.1", running["port"]), timeout=_SECONDS) as connection:
            connection.sendall(json.dumps({"ask": question, "secret": running["secret"], **facts}).encode() + b"\n")
            with connection.makefile("rb") as reader:
                answer: Document = json.loads(reader.readline(_LONGEST_LINE))
    except (OSError, ValueError, KeyError):
        return None  # none runs, or it was killed and left its file behind
    if "error" in answer:
        raise EngineError(f"the coordinator refused: {answer['error']}", remedy=answer.get("remedy", ""))
    return answer
