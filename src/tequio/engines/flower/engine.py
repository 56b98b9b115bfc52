"""The engine inside a Flower app: a hub of parties, as over links of our own, behind the nodes of a federation.

A node starts afresh for every request. So each request begins with the announcement of its run, and a party that keeps
the run waiting is asked again, because it cannot speak unasked. What the hub sends to a party (`TaskRequest`, see
engines/network/engine.py) travels in a `NodeRequest`, and what the party answers (`TaskResult`) in a `NodeReply`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from tequio.engines.flower.directory import NodeDirectory
from tequio.engines.flower.transport import NodeRequest, split_requests
from tequio.engines.network.hub import Hub, check_version
from tequio.engines.network.wire import (
    Assembly,
    Begin,
    Chunk,
    Declined,
    End,
    Hello,
    Ready,
    TaskFailed,
    TaskRequest,
    TaskResult,
    Waiting,
    clipped,
    from_party,
)
from tequio.errors import EngineError, PayloadError, TequioError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.engines.flower.transport import NodeReply, Transport
    from tequio.engines.network.telemetry import Telemetry
    from tequio.federation.exchange import Engine


_MEGABYTE = 1 << 20


@register("engine", "flower")
@dataclass(frozen=True)
class Flower:
    """Parties behind the SuperNodes of a Flower federation, reached by a Flower app.

    Parameters:
        deadline: seconds that a party has for one task, with the way there and back (0: as long as it takes)
        absence: seconds that a party may be away before a task there counts as failed
        wait: seconds to wait for the parties' SuperNodes, and for them to take part, before the run starts
        maximum_reply_megabytes: replies longer than this are refused
    """

    deadline: Annotated[float, Ge(0)] = 0.0
    absence: Annotated[float, Ge(0)] = 60.0
    wait: Annotated[float, Ge(0)] = 300.0
    maximum_reply_megabytes: Annotated[int, Ge(1)] = 1024

    def create(self) -> Engine:
        """Refused: Flower starts the coordinator, and only there is a way to the parties."""
        raise EngineError("the engine 'flower' works inside a Flower app, which the SuperLink starts",
                          remedy="write the app (tequio flower app FILE.toml DIR), then: flwr run DIR")

    def service(self) -> FlowerService:
        """Refused likewise."""
        raise EngineError("there is no Flower federation outside of a Flower app", remedy="see: tequio flower --help")


class FlowerService:
    """Brings the parties of a federation to a hub, while it is started."""

    def __init__(self, config: Flower, transport: Transport, telemetry: Telemetry) -> None:
        self.hub = Hub(telemetry.note, telemetry.count, "start their SuperNodes")
        self._dispatcher = Dispatcher(transport, self.hub, telemetry, config.maximum_reply_megabytes * _MEGABYTE)

    def start(self) -> None:
        """Ask the federation's nodes who they are."""
        self._dispatcher.start()

    def stop(self) -> None:
        """Let the nodes go."""
        self._dispatcher.stop()


POLL = 0.5
ASK_AGAIN = 10.0
LOOK_FOR_NODES = 3.0
LAST_WORDS = 60.0


@dataclass(eq=False)
class _Node:
    """A node that is there: which runs were announced to it, what it is to be sent next and when, and what it owes."""

    number: int
    begun: dict[str, list[bytes]] = field(default_factory=dict)
    waiting: deque[tuple[float, NodeRequest]] = field(default_factory=deque)
    owed: dict[str, NodeRequest] = field(default_factory=dict)


class Dispatcher:
    """Sends requests and fetches replies on a thread of its own, until it is stopped."""

    def __init__(self, transport: Transport, hub: Hub, telemetry: Telemetry, maximum_reply_bytes: int) -> None:
        self._transport, self._hub, self._telemetry, self._maximum = transport, hub, telemetry, maximum_reply_bytes
        self._directory = NodeDirectory(hub, telemetry.note, self._on_hub_frames)
        self._nodes: dict[int, _Node] = {}
        self._outgoing: SimpleQueue[tuple[int, list[bytes]]] = SimpleQueue()
        self._stop = threading.Event()
        self._look_at = 0.0
        self._thread = threading.Thread(target=self._run, name="tequio-flower", daemon=True)

    def start(self) -> None:
        """Begin to look for nodes."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the parties had some time to hear of a run that is over."""
        self._stop.set()
        self._thread.join()

    def turn(self, now: float) -> None:
        """Look who is there, send what the hub has for them, and fetch replies."""
        if now >= self._look_at:
            self._look_at = now + LOOK_FOR_NODES
            self._look_for_nodes()
        self._take_from_hub(now)
        for node in list(self._nodes.values()):
            self._send_due(node, now)
        owed = {name: node for node in self._nodes.values() for name in node.owed}
        for reply in self._transport.fetch(owed) if owed else ():
            node = owed[reply.request]
            if node is self._nodes.get(node.number):
                self._on_reply(node, node.owed.pop(reply.request), reply, now)
        self._directory.settle(now)

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                self.turn(time.monotonic())
                said = ""
            except Exception as cause:  # the federation may come back; until then its parties count as away
                if said != repr(cause):
                    said = repr(cause)
                    self._telemetry.note("federation out of reach", cause=said)
                for number in list(self._nodes):
                    self._lose(number)
            self._stop.wait(POLL)
        self._say_goodbye(time.monotonic() + LAST_WORDS)

    def _say_goodbye(self, until: float) -> None:
        """A run's end counts for nothing once the app is over, so the answers are waited for."""
        self._take_from_hub(time.monotonic())
        try:
            while time.monotonic() < until and any(self._ends(node) for node in self._nodes.values()):
                self.turn(time.monotonic())
                time.sleep(POLL)
        except Exception as cause:
            self._telemetry.note("federation out of reach", cause=repr(cause))

    def _ends(self, node: _Node) -> bool:
        requests = [*node.owed.values(), *(request for _, request in node.waiting)]
        return any(isinstance(request.message, End) for request in requests)

    def _on_hub_frames(self, number: int, frames: Iterable[bytes]) -> None:
        """Called by the hub on threads of runs."""
        self._outgoing.put((number, list(frames)))

    def _look_for_nodes(self) -> None:
        there = self._transport.nodes()
        for number in self._nodes.keys() - there:
            self._lose(number)
        for number in sorted(there - self._nodes.keys()):
            self._nodes[number] = _Node(number, waiting=deque([(0.0, NodeRequest())]))
            self._directory.expect(number)

    def _lose(self, number: int) -> None:
        """A node is gone with all that it owed. If it comes back, its party is asked again."""
        del self._nodes[number]
        self._directory.leave(number)

    def _take_from_hub(self, now: float) -> None:
        while True:
            try:
                number, frames = self._outgoing.get_nowait()
            except Empty:
                return
            node = self._nodes.get(number)
            for request in split_requests(frames) if node is not None else ():
                assert node is not None
                self._queue(node, request, now)

    def _queue(self, node: _Node, request: NodeRequest, now: float) -> None:
        # Of one run only the latest counts: what came before it is no longer waited for.
        node.waiting = deque(held for held in node.waiting if not request.run or held[1].run != request.run)
        if isinstance(request.message, Begin):
            node.begun[request.run] = request.frames
        else:
            request = NodeRequest([*node.begun.get(request.run, ()), *request.frames], request.message)
        node.waiting.append((now, request))

    def _send_due(self, node: _Node, now: float) -> None:
        later: deque[tuple[float, NodeRequest]] = deque()
        while node.waiting:
            due, request = node.waiting.popleft()
            if due > now:
                later.append((due, request))
                continue
            node.owed[self._transport.send(node.number, request)] = request
            self._telemetry.count("bytes_sent", sum(map(len, request.frames)))
        node.waiting = later

    def _on_reply(self, node: _Node, request: NodeRequest, reply: NodeReply, now: float) -> None:
        if reply.away:
            self._lose(node.number)
        elif reply.error:
            self._fail(node, request, f"its SuperNode says: {reply.error}", now)
        else:
            self._telemetry.count("bytes_received", sum(map(len, reply.frames)))
            try:
                self._read(node, request, reply.frames, now)
            except TequioError as cause:
                self._telemetry.count("refusals", kind="message")
                self._fail(node, request, f"its answer was refused: {cause.message}", now)

    def _read(self, node: _Node, request: NodeRequest, frames: list[bytes], now: float) -> None:
        assembly, waits = Assembly(self._maximum), False
        for data in frames:
            message, body = from_party(data)
            if isinstance(message, Chunk):
                assembly.take(message, body)
                continue
            parts = assembly.parts([message.part] if isinstance(message, TaskResult) else [], body)
            if isinstance(message, Hello) and request.message is None and not message.aggregator:
                check_version(message)
                self._directory.claim(node.number, message)
                continue
            if request.message is None or not isinstance(message, Ready | Waiting | Declined | TaskResult | TaskFailed):
                raise PayloadError(f"a message '{type(message).__name__}' has no place in this answer")
            waits = waits or isinstance(message, Waiting)
            link = None if isinstance(request.message, End) else self._directory.link(node.number)
            if link is not None:
                self._hub.receive(link, message, parts)
        if waits:
            node.waiting.append((now + ASK_AGAIN, request))

    def _fail(self, node: _Node, request: NodeRequest, cause: str, now: float) -> None:
        """A reply is of no use: a task counts as failed, a run as declined, and a node is asked again who it is."""
        self._telemetry.note("answer refused", node=str(node.number), run=request.run, cause=cause)
        message, link = request.message, self._directory.link(node.number)
        if message is None:
            self._directory.reject(node.number, cause)
            node.waiting.append((now + ASK_AGAIN, request))
        elif isinstance(message, Begin) and link is not None:
            self._hub.receive(link, Declined(message.run, clipped(cause)), [])
        elif isinstance(message, TaskRequest) and link is not None:
            self._hub.receive(link, TaskFailed(message.run, message.position, message.digest, clipped(cause)), [])
