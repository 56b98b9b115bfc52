"""A party's end of its link: it dials out, answers, and dials again when the link breaks."""

from __future__ import annotations

import queue
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from tequio.engines.network.enrolment import RenewingParty
from tequio.engines.network.grpc_setup import LINK, dialling_options, require_grpc, why_not
from tequio.engines.network.site import LARGEST_PAYLOAD, answer
from tequio.engines.network.wire import (
    Assembly,
    Begin,
    Chunk,
    End,
    Expiring,
    Goodbye,
    Renewed,
    TaskRequest,
    Waiting,
    Welcome,
    frame,
    from_coordinator,
)
from tequio.errors import EngineError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.site import Site
    from tequio.engines.network.telemetry import Telemetry
    from tequio.engines.network.wire import FromCoordinator, Hello

    OnMessage = Callable[[FromCoordinator, memoryview, Assembly], None]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
_LOOK_AROUND = 1.0


class _Call(Protocol):
    def cancel(self) -> object: ...


class Dialler:
    """Keeps a link to the coordinator: greets, hands on messages, and dials again with growing pauses."""

    def __init__(self, home: PartyHome, telemetry: Telemetry, greeting: Callable[[], Hello],
                 on_message: OnMessage) -> None:
        self._home, self._telemetry, self._greeting, self._on_message = home, telemetry, greeting, on_message
        self._grpc = require_grpc()
        self._stop = threading.Event()
        self._outgoing: queue.SimpleQueue[Iterable[bytes] | None] = queue.SimpleQueue()
        self._call: _Call | None = None
        self._renewing = RenewingParty(home, telemetry, self.send)

    @property
    def stopped(self) -> bool:
        """Whether it serves no more."""
        return self._stop.is_set()

    def serve(self, patience: int = 0) -> None:
        """Dial, and dial again, with growing and random pauses; give up after `patience` attempts (0: never)."""
        attempts, draw = 0, random.Random()
        while not self._stop.is_set():
            if self._talk():
                attempts = 0
            attempts += 1
            if patience and attempts >= patience:
                raise EngineError(f"the coordinator cannot be reached at {self._home.facts['address']}",
                                  remedy="check that it runs and that this address can be reached from here")
            pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 10), LONGEST_PAUSE) * draw.uniform(0.5, 1.0)
            self._stop.wait(pause)

    def send(self, frames: Iterable[bytes]) -> None:
        """Send on the present link; what is sent between links is lost, and asked for again."""
        self._outgoing.put(frames)

    def stop(self) -> None:
        """End the link and serve no more."""
        self._stop.set()
        if self._call is not None:
            self._call.cancel()

    def _talk(self) -> bool:
        """One link from greeting to end; whether the coordinator welcomed us."""
        identity, grpc = self._home.identity, self._grpc
        credentials = grpc.ssl_channel_credentials(self._home.authority, identity.key, identity.certificate)
        address, welcomed = self._home.facts["address"], False
        outgoing: queue.SimpleQueue[Iterable[bytes] | None] = queue.SimpleQueue()
        outgoing.put([frame(self._greeting())])
        self._outgoing = outgoing
        with grpc.secure_channel(address, credentials, options=dialling_options(self._home.dials)) as channel:
            self._call = call = channel.stream_stream(LINK)(_frames(outgoing))
            assembly = Assembly(LARGEST_PAYLOAD)
            try:
                for data in call:
                    message, body = from_coordinator(data)
                    welcomed = welcomed or isinstance(message, Welcome)
                    self._take(message, body, assembly)
            except grpc.RpcError as cause:
                self._telemetry.log("link lost", address=address,
                                    cause=f"{cause.code().name}: {why_not(cause.details())}")
            except PayloadError as cause:
                self._telemetry.note("link cut", address=address, cause=str(cause))
            finally:
                outgoing.put(None)
                call.cancel()
        return welcomed

    def _take(self, message: FromCoordinator, body: memoryview, assembly: Assembly) -> None:
        if isinstance(message, Goodbye):
            self._telemetry.note("sent away", cause=message.cause)
            raise EngineError(f"the coordinator sent this party away: {message.cause}", remedy=message.remedy)
        if isinstance(message, Expiring):
            self._renewing.ask(message)
        elif isinstance(message, Renewed):
            self._renewing.take(message)
        else:
            self._on_message(message, body, assembly)


class PartyLink:
    """Serves a site until it is told to stop. One thread reads, one works, gRPC's own writes."""

    def __init__(self, home: PartyHome, site: Site, telemetry: Telemetry) -> None:
        self._site, self._telemetry = site, telemetry
        self._dialler = Dialler(home, telemetry, site.greeting, self._on_message)
        self._tasks: deque[tuple[TaskRequest, list[bytes | memoryview]]] = deque()
        self._waiting: dict[str, bytes | memoryview] = {}
        self._something = threading.Condition()

    def serve(self, *, patience: int = 0) -> None:
        """Dial and answer; give up after `patience` attempts to dial (0: never)."""
        threading.Thread(target=self._run_tasks, name="tequio-tasks", daemon=True).start()
        self._dialler.serve(patience)

    def stop(self) -> None:
        """End the link and serve no more."""
        self._dialler.stop()
        with self._something:
            self._something.notify_all()

    def _on_message(self, message: FromCoordinator, body: memoryview, assembly: Assembly) -> None:
        if isinstance(message, Chunk):
            assembly.take(message, body)
        elif isinstance(message, Welcome):
            self._telemetry.log("connected", coordinator=message.version, protocol=message.protocol)
        elif isinstance(message, Begin):
            self._begin(message.run, assembly.parts([message.part], body)[0])
        elif isinstance(message, End):
            self._waiting.pop(message.run, None)
            self._site.end(message.run)
        elif isinstance(message, TaskRequest):
            self._queue(message, assembly.parts(message.parts, body))

    def _begin(self, run: str, announcement: bytes | memoryview) -> None:
        said = self._site.begin(run, announcement)
        with self._something:
            self._waiting.pop(run, None)
            if isinstance(said, Waiting):
                self._waiting[run] = announcement
            self._something.notify_all()
        self._dialler.send([frame(said)])

    def _queue(self, request: TaskRequest, parts: list[bytes | memoryview]) -> None:
        with self._something:
            # Of one run only the latest order counts: what came before it is no longer waited for.
            for held in [held for held in self._tasks if held[0].run == request.run]:
                self._tasks.remove(held)
            self._tasks.append((request, parts))
            self._something.notify_all()

    def _run_tasks(self) -> None:
        from tequio.engines.inline import one_thread

        one_thread()
        while not self._dialler.stopped:
            with self._something:
                ready = next((held for held in self._tasks if held[0].run not in self._waiting), None)
                if ready is None:
                    self._something.wait(_LOOK_AROUND if self._waiting else None)
                else:
                    self._tasks.remove(ready)
                undecided = list(self._waiting.items())
            if ready is not None:
                self._dialler.send(answer(self._site, *ready))
            else:
                self._ask_again(undecided)

    def _ask_again(self, undecided: list[tuple[str, bytes | memoryview]]) -> None:
        """See whether a person has decided in the meantime."""
        for run, announcement in undecided:
            said = self._site.begin(run, announcement)
            if not isinstance(said, Waiting):
                self._waiting.pop(run, None)
                self._dialler.send([frame(said)])


def _frames(outgoing: queue.SimpleQueue[Iterable[bytes] | None]) -> Iterator[bytes]:
    while (frames := outgoing.get()) is not None:
        yield from frames
