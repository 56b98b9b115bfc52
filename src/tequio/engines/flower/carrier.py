"""The coordinator's end: it calls the roll, posts what the hub sends to a party, and brings the hub the answers.

A node starts afresh for every letter. So each letter begins with the announcement of its run, and a party that keeps
the run waiting is asked again, because it cannot speak unasked.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from tequio.engines.flower.post import Letter, sorted_out
from tequio.engines.flower.roll import Roll
from tequio.engines.network.greetings import check_version
from tequio.engines.network.transfers import Assembly
from tequio.engines.network.wire import (
    Begin,
    Chunk,
    Declined,
    End,
    Failed,
    Hello,
    Ready,
    Result,
    Waiting,
    Work,
    clipped,
    from_party,
)
from tequio.errors import PayloadError, TequioError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.engines.flower.post import Answer, Post
    from tequio.engines.network.hub import Hub
    from tequio.engines.network.telemetry import Telemetry

POLL = 0.5
ASK_AGAIN = 10.0
LOOK_FOR_NODES = 3.0
LAST_WORDS = 60.0


@dataclass(eq=False)
class _Node:
    """A node that is there: what it was told of runs, what it is to be sent next and when, and what it owes."""

    number: int
    begun: dict[str, list[bytes]] = field(default_factory=dict)
    waiting: deque[tuple[float, Letter]] = field(default_factory=deque)
    owed: dict[str, Letter] = field(default_factory=dict)


class Carrier:
    """Carries letters on a thread of its own, until it is stopped."""

    def __init__(self, post: Post, hub: Hub, telemetry: Telemetry, maximum_reply_bytes: int) -> None:
        self._post, self._hub, self._telemetry, self._maximum = post, hub, telemetry, maximum_reply_bytes
        self._roll = Roll(hub, telemetry.note, self._from_hub)
        self._nodes: dict[int, _Node] = {}
        self._outgoing: SimpleQueue[tuple[int, list[bytes]]] = SimpleQueue()
        self._stop = threading.Event()
        self._look_at = 0.0
        self._thread = threading.Thread(target=self._work, name="tequio-flower", daemon=True)

    def start(self) -> None:
        """Begin to call the roll."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the parties had some time to hear of a run that is over."""
        self._stop.set()
        self._thread.join()

    def turn(self, now: float) -> None:
        """Look who is there, post what the hub has for them, and fetch answers."""
        if now >= self._look_at:
            self._look_at = now + LOOK_FOR_NODES
            self._look_for_nodes()
        self._take_from_hub(now)
        for node in list(self._nodes.values()):
            self._send_due(node, now)
        owed = {name: node for node in self._nodes.values() for name in node.owed}
        for answer in self._post.fetch(owed) if owed else ():
            node = owed[answer.letter]
            if node is self._nodes.get(node.number):
                self._hear(node, node.owed.pop(answer.letter), answer, now)
        self._roll.settle(now)

    def _work(self) -> None:
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
        letters = [*node.owed.values(), *(letter for _, letter in node.waiting)]
        return any(isinstance(letter.message, End) for letter in letters)

    def _from_hub(self, number: int, frames: Iterable[bytes]) -> None:
        """Called by the hub on threads of runs."""
        self._outgoing.put((number, list(frames)))

    def _look_for_nodes(self) -> None:
        there = self._post.nodes()
        for number in self._nodes.keys() - there:
            self._lose(number)
        for number in sorted(there - self._nodes.keys()):
            self._nodes[number] = _Node(number, waiting=deque([(0.0, Letter())]))
            self._roll.call(number)

    def _lose(self, number: int) -> None:
        """A node is gone with all that it owed. If it comes back, its party is asked again."""
        del self._nodes[number]
        self._roll.leave(number)

    def _take_from_hub(self, now: float) -> None:
        while True:
            try:
                number, frames = self._outgoing.get_nowait()
            except Empty:
                return
            node = self._nodes.get(number)
            for letter in sorted_out(frames) if node is not None else ():
                assert node is not None
                self._queue(node, letter, now)

    def _queue(self, node: _Node, letter: Letter, now: float) -> None:
        # Of one run only the latest counts: what came before it is no longer waited for.
        node.waiting = deque(held for held in node.waiting if not letter.run or held[1].run != letter.run)
        if isinstance(letter.message, Begin):
            node.begun[letter.run] = letter.frames
        else:
            letter = Letter([*node.begun.get(letter.run, ()), *letter.frames], letter.message)
        node.waiting.append((now, letter))

    def _send_due(self, node: _Node, now: float) -> None:
        later: deque[tuple[float, Letter]] = deque()
        while node.waiting:
            due, letter = node.waiting.popleft()
            if due > now:
                later.append((due, letter))
                continue
            node.owed[self._post.send(node.number, letter)] = letter
            self._telemetry.count("bytes_sent", sum(map(len, letter.frames)))
        node.waiting = later

    def _hear(self, node: _Node, letter: Letter, answer: Answer, now: float) -> None:
        if answer.away:
            self._lose(node.number)
        elif answer.error:
            self._fail(node, letter, f"its SuperNode says: {answer.error}", now)
        else:
            self._telemetry.count("bytes_received", sum(map(len, answer.frames)))
            try:
                self._read(node, letter, answer.frames, now)
            except TequioError as cause:
                self._telemetry.count("refusals", kind="message")
                self._fail(node, letter, f"its answer was refused: {cause.message}", now)

    def _read(self, node: _Node, letter: Letter, frames: list[bytes], now: float) -> None:
        assembly, waits = Assembly(self._maximum), False
        for data in frames:
            message, body = from_party(data)
            if isinstance(message, Chunk):
                assembly.take(message, body)
                continue
            parts = assembly.parts([message.part] if isinstance(message, Result) else [], body)
            if isinstance(message, Hello) and letter.message is None and not message.aggregator:
                check_version(message)
                self._roll.answer(node.number, message)
                continue
            if letter.message is None or not isinstance(message, Ready | Waiting | Declined | Result | Failed):
                raise PayloadError(f"a message '{type(message).__name__}' has no place in this answer")
            waits = waits or isinstance(message, Waiting)
            link = None if isinstance(letter.message, End) else self._roll.link(node.number)
            if link is not None:
                self._hub.receive(link, message, parts)
        if waits:
            node.waiting.append((now + ASK_AGAIN, letter))

    def _fail(self, node: _Node, letter: Letter, cause: str, now: float) -> None:
        """An answer is of no use: a task counts as failed, a run as declined, and the roll is called again."""
        self._telemetry.note("answer refused", node=str(node.number), run=letter.run, cause=cause)
        message, link = letter.message, self._roll.link(node.number)
        if message is None:
            self._roll.mute(node.number, cause)
            node.waiting.append((now + ASK_AGAIN, letter))
        elif isinstance(message, Begin) and link is not None:
            self._hub.receive(link, Declined(message.run, clipped(cause)), [])
        elif isinstance(message, Work) and link is not None:
            self._hub.receive(link, Failed(message.run, message.position, message.digest, clipped(cause)), [])
