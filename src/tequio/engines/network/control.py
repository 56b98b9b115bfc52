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
from tequio.errors import SEE_ITS_LOG, EngineError, TequioError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tequio.engines.network.files import Document

    Handler = Callable[[Document], Mapping[str, object]]

_FILE = "control.json"
_LONGEST_LINE = 1 << 20
_LONGEST_ANSWER = 1 << 26
_SECONDS, _SECONDS_TO_ANSWER = 10.0, 300.0
_MOST_CALLERS = 256
_SECONDS_TO_STOP = 0.05


class Control:
    """Answers questions by name, each with one JSON document."""

    def __init__(self, folder: Path, handlers: Mapping[str, Handler]) -> None:
        self._path, self._handlers, self._secret = folder / _FILE, handlers, secrets.token_hex(16)
        self._server: socketserver.TCPServer | None = None

    def start(self) -> None:
        """Listen, and say where in the coordinator's folder."""
        self._server = serve_lines(0, self.answer)
        facts = {"port": self._server.server_address[1], "secret": self._secret}
        write_private(self._path, json.dumps(facts).encode(), sync=False)

    def stop(self) -> None:
        """Listen no more."""
        self._path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def answer(self, line: bytes) -> Mapping[str, object]:
        """What a question is answered with; never raises."""
        try:
            question = json.loads(line)
            known = hmac.compare_digest(str(question["secret"]).encode(), self._secret.encode())
        except (ValueError, TypeError, KeyError):
            known = False
        if not known:  # any user of this machine can connect: only who can read the folder hears more
            return {"error": "the secret is wrong"}
        try:
            return self._handlers[question["ask"]](question)
        except TequioError as cause:
            return {"error": cause.message, "remedy": cause.remedy}
        except Exception as cause:
            return {"error": type(cause).__name__, "remedy": SEE_ITS_LOG}


def serve_lines(port: int, answer: Callable[[bytes], Mapping[str, object]],
                context: ssl.SSLContext | None = None) -> socketserver.TCPServer:
    """Answer lines on a loopback port, each with one JSON document; over TLS with a context."""

    class Answering(socketserver.StreamRequestHandler):
        timeout = _SECONDS

        def setup(self) -> None:
            if context is not None:  # in the thread of this caller, who may be slow
                self.request.settimeout(_SECONDS)
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def handle(self) -> None:
            self.wfile.write(json.dumps(answer(self.rfile.readline(_LONGEST_LINE))).encode() + b"\n")

        def finish(self) -> None:
            try:
                super().finish()
            finally:
                self.request.close()  # the server closes the socket that it accepted, which TLS has wrapped in another

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True
        free = threading.BoundedSemaphore(_MOST_CALLERS)

        def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
            """Answer in a thread. The port of people hangs up while it is too busy; the operator's never does."""
            if context is None or self.free.acquire(blocking=False):
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request: socket.socket | tuple[bytes, socket.socket],
                                   client_address: object) -> None:
            """Answer one caller."""
            try:
                super().process_request_thread(request, client_address)
            finally:
                if context is not None:
                    self.free.release()

        def handle_error(self, request: object, client_address: object) -> None:
            """A caller that broke off, or speaks another language, is no news."""

    server = Server(("127.0.0.1", port), Answering)
    threading.Thread(target=server.serve_forever, args=(_SECONDS_TO_STOP,), name="tequio-control", daemon=True).start()
    return server


def asked_over(connection: socket.socket, question: Mapping[str, object]) -> Document:
    """Send a question, and read its answer. One that was heard may be carried out, however late the answer is."""
    connection.sendall(json.dumps(question).encode() + b"\n")
    connection.settimeout(_SECONDS_TO_ANSWER)
    try:
        with connection.makefile("rb") as reader:
            answer: Document = json.loads(reader.readline(_LONGEST_ANSWER))
    except TimeoutError:
        raise EngineError(f"the coordinator has heard this, and has not answered within {_SECONDS_TO_ANSWER:g} s",
                          remedy="see whether it was done before you ask again: tequio coordinator status, or "
                                 "tequio coordinator proposals") from None
    return answer


def ask(home: Path, question: str, **facts: object) -> Document | None:
    """The answer of the coordinator that runs in this folder; nothing where none runs."""
    try:
        running = json.loads((home / _FILE).read_bytes())
        with socket.create_connection(("127.0.0.1", running["port"]), timeout=_SECONDS) as connection:
            answer = asked_over(connection, {"ask": question, "secret": running["secret"], **facts})
    except (OSError, ValueError, KeyError):
        return None  # none runs, or it was killed and left its file behind
    return granted(answer)


def granted(answer: Document) -> Document:
    """The answer, unless it is a refusal."""
    if "error" in answer:
        raise EngineError(f"the coordinator refused: {answer['error']}", remedy=answer.get("remedy", ""))
    return answer
