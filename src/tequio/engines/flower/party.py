"""The party's end: one request in, one reply out, by the same rules as over a link of our own.

A SuperNode starts a new process for every request, so a party may stay up beside it with its rows open. The two talk
over a loopback port with a secret in the party's folder. Only bytes are sent and read, never objects.
"""

from __future__ import annotations

import json
import secrets
import socket
import traceback
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING

from tequio.engines.network.files import write_private
from tequio.engines.network.site import LARGEST_PAYLOAD, answer
from tequio.engines.network.wire import (
    LARGEST_FRAME,
    Assembly,
    Begin,
    Chunk,
    End,
    Ready,
    TaskRequest,
    frame,
    from_coordinator,
)
from tequio.errors import EngineError, PayloadError, crossing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from tequio.engines.network.site import Site

    Answering = Callable[[list[bytes]], list[bytes]]


def answer_request(site: Site, frames: Sequence[bytes]) -> list[bytes]:
    """A party's reply: its greeting to an empty request, else what its site makes of each message."""
    if not frames:
        return [frame(site.greeting())]
    assembly, said = Assembly(LARGEST_PAYLOAD), list[bytes]()
    for data in frames:
        message, body = from_coordinator(data)
        if isinstance(message, Chunk):
            assembly.take(message, body)
        elif isinstance(message, Begin):
            verdict = site.begin(message.run, assembly.parts([message.part], body)[0])
            said.append(frame(verdict))
            if not isinstance(verdict, Ready):
                break
        elif isinstance(message, TaskRequest):
            said.extend(answer(site, message, assembly.parts(message.parts, body)))
        elif isinstance(message, End):
            site.end(message.run)
        else:
            raise PayloadError(f"a request cannot hold a message such as {type(message).__name__}")
    return said


_FILE = "resident.json"
_BROKEN = (OSError, EOFError, ValueError, KeyError, AuthenticationError)
_DONE, _FAILED = b"done", b"failed"


class PartyDaemon:
    """Answers requests, one after another, until it is stopped."""

    def __init__(self, folder: Path, answer: Answering) -> None:
        self._path, self._answer, self._is_open = folder / _FILE, answer, True
        secret = secrets.token_hex(32)
        self._listener = Listener(("127.0.0.1", 0), authkey=secret.encode())
        facts = {"port": self._listener.address[1], "secret": secret}
        write_private(self._path, json.dumps(facts).encode(), sync=False)

    def serve(self) -> None:
        """Wait for requests until it is closed."""
        while self._is_open:
            try:
                with self._listener.accept() as line:
                    self._serve_one(line)
            except _BROKEN:
                continue  # a stranger without the secret, or a process that was killed while it waited

    def close(self) -> None:
        """Be gone: from now on the SuperNode's processes do the work themselves."""
        self._path.unlink(missing_ok=True)
        self._is_open = False
        with suppress(OSError):
            socket.create_connection(self._listener.address, 1).close()  # wakes the thread that waits for requests
        self._listener.close()

    def _serve_one(self, line: Connection) -> None:
        frames = _receive(line)
        try:
            said, answers = _DONE, self._answer(frames)
        except Exception as cause:
            traceback.print_exc()
            said, answers = _FAILED, ["; ".join(crossing(cause)).encode()]
        line.send_bytes(said)
        _send(line, answers)


def ask_daemon(folder: Path, frames: Sequence[bytes]) -> list[bytes] | None:
    """The answer of the party that stays up for this folder; nothing where none does, or where it went away."""
    try:
        facts = json.loads((folder / _FILE).read_bytes())
        with Client(("127.0.0.1", facts["port"]), authkey=facts["secret"].encode()) as line:
            _send(line, frames)
            said, answers = line.recv_bytes(16), _receive(line)
    except _BROKEN:
        return None
    if said != _DONE:
        raise EngineError(b"".join(answers).decode(errors="replace"))
    return answers


def _send(line: Connection, frames: Sequence[bytes]) -> None:
    line.send_bytes(str(len(frames)).encode())
    for data in frames:
        line.send_bytes(data)


def _receive(line: Connection) -> list[bytes]:
    return [line.recv_bytes(LARGEST_FRAME) for _ in range(int(line.recv_bytes(20)))]
