"""An aggregator: parties dial it, it dials the coordinator, and their results leave it merged where they can be.

It keeps nothing: whatever is lost with it is sent again by the coordinator, and answered from the parties' journals.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from tequio import __version__
from tequio.engines.network.certificates import Identity, fingerprint
from tequio.engines.network.wire import (
    HIGHEST,
    LOWEST,
    Begin,
    Chunk,
    Drop,
    End,
    Hello,
    Left,
    Members,
    Merged,
    Part,
    Relayed,
    TaskFailed,
    TaskRequest,
    TaskResult,
    Welcome,
    Withdraw,
    clipped,
    frame,
    from_coordinator,
)
from tequio.errors import ConfigError, PermissionDenied, TequioError, crossing
from tequio.federation import payload as payloads
from tequio.federation.task import find_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.hub import Link
    from tequio.engines.network.telemetry import Telemetry
    from tequio.engines.network.wire import Assembly, FromCoordinator, FromParty, Message, PartRef

    Send = Callable[[Iterable[bytes]], None]
    from collections.abc import Callable, Collection, Sequence

    from tequio.federation.payload import Payload

    Merge = Callable[[Sequence[Payload]], Payload]
    Key = tuple[str, str, int, tuple[str, ...], bytes]


class Aggregator:
    """Both ends of an aggregator: the hub of its parties' links, and its own link to the coordinator.

    Whoever makes one says how to `send_up`, and how to `open` its door once it knows its parties.
    """

    def __init__(self, home: PartyHome, telemetry: Telemetry) -> None:
        self._home, self._telemetry = home, telemetry
        self._lock = threading.RLock()
        self._links: dict[str, Link] = {}
        self._members: dict[str, tuple[str, ...]] = {}
        self._gathering = Gathering()
        self._known = False
        self.send_up: Send = lambda frames: None
        self.open: Callable[[], None] = lambda: None

    @property
    def facts(self) -> dict[str, int]:
        """The port that parties dial."""
        return {"port": int(self._home.facts["listen"].rpartition(":")[2])}

    @property
    def bind(self) -> str:
        """The address to listen on."""
        return self._home.bind

    def identity(self, stem: str) -> Identity:
        """The aggregator's own key and certificate, or the authority's certificate, whose key it does not have."""
        return self._home.identity if stem == "coordinator" else Identity(b"", self._home.authority)

    def admit(self, name: str, certificate: bytes) -> None:
        """Refuse whoever is not one of the group's parties."""
        if fingerprint(certificate) not in self._members.get(name, ()):
            raise PermissionDenied(f"no party '{name[:80]}' with this certificate dials this aggregator",
                                   remedy="dial the address that you joined with, or wait until the coordinator is up")

    def greeting(self) -> Hello:
        """What the coordinator hears first."""
        return Hello(self._home.facts["name"], LOWEST, HIGHEST, __version__, 0, "", aggregator=True)

    def connect(self, link: Link) -> None:
        """A party dialled in."""
        name = link.hello.name
        with self._lock:
            older, self._links[name] = self._links.get(name), link
        self._up(name, link.hello)
        if older is not None:
            older.close()

    def disconnect(self, link: Link) -> None:
        """A party's link ended."""
        with self._lock:
            if self._links.get(link.hello.name) is not link:
                return
            del self._links[link.hello.name]
        self._up(link.hello.name, Left())

    def receive(self, link: Link, message: FromParty, parts: list[bytes | memoryview]) -> bool:
        """A party said something: a result may wait for those of its group, anything else goes on."""
        name = link.hello.name
        with self._lock:
            if isinstance(message, TaskResult):
                fault = self._gathering.take(name, message, parts[0])
                if fault:
                    self._up(name, TaskFailed(message.run, message.position, message.digest, clipped(fault)))
                elif fault is None:
                    part = Part(parts[0], lasting=True)
                    said = TaskResult(message.run, message.position, message.digest, message.seconds, part.ref)
                    self._up(name, said, part)
            else:
                if isinstance(message, TaskFailed):
                    self._gathering.leave(name, message.run, message.position)
                self._up(name, message)
            self._hand_on()
        return True

    def on_message(self, message: FromCoordinator, body: memoryview, assembly: Assembly) -> None:
        """The coordinator said something, mostly to one of the parties."""
        if isinstance(message, Chunk):
            assembly.take(message, body)
        elif isinstance(message, Drop):
            assembly.drop(message.transfer)
        elif isinstance(message, Relayed):
            self._down(message.name, *from_coordinator(bytes(body)), assembly)
        elif isinstance(message, Members):
            self._regroup(dict(message.fingerprints))
        elif isinstance(message, Welcome):
            self._telemetry.log("connected", coordinator=message.version, protocol=message.protocol)
            with self._lock:
                for name, link in self._links.items():
                    self._up(name, link.hello)

    def _regroup(self, members: dict[str, tuple[str, ...]]) -> None:
        with self._lock:
            gone = [link for name, link in self._links.items() if name not in members]
            self._members = members
        for link in gone:
            link.close()
        if not self._known:  # before this it could not tell its parties from others
            self._known = True
            self.open()

    def _down(self, name: str, message: FromCoordinator, body: memoryview, assembly: Assembly) -> None:
        with self._lock:
            link = self._links.get(name)
            if isinstance(message, Withdraw):
                self._gathering.leave(name, message.run, message.position)
                return self._hand_on()
            if isinstance(message, End):
                self._gathering.forget(message.run)
            parts = assembly.parts(_refs(message), body, keep=True)
            if isinstance(message, TaskRequest):
                self._gathering.expect(name, message, parts, self._members)
            if link is not None:  # else it gets it when it is back
                link.send(_again(message, [Part(part, lasting=True) for part in parts]))
        return None

    def _hand_on(self) -> None:
        for message, content in self._gathering.ready():
            self._telemetry.log("merged", run=message.run, parties=len(message.answers), bytes=content.ref[1])
            self.send_up(_with(content, frame(message, content.inline)))

    def _up(self, name: str, message: Message, part: Part | None = None) -> None:
        inner = frame(message, part.inline) if part is not None else frame(message)
        self.send_up(_with(part, frame(Relayed(name), inner)))


def _with(part: Part | None, last: bytes) -> Iterator[bytes]:
    yield from part.frames if part is not None else ()
    yield last


def _refs(message: FromCoordinator) -> list[PartRef]:
    if isinstance(message, TaskRequest):
        return list(message.parts)
    return [message.part] if isinstance(message, Begin) else []


def _again(message: FromCoordinator, parts: list[Part]) -> Iterator[bytes]:
    """The same message with its parts as they are cut here."""
    from msgspec.structs import replace

    for part in parts:
        yield from part.frames
    refs = tuple(part.ref for part in parts)
    changed = replace(message, parts=refs) if isinstance(message, TaskRequest) else \
        replace(message, part=refs[0]) if isinstance(message, Begin) else message
    yield frame(changed, *(part.inline for part in parts))


_MOST = 64


@dataclass
class _Group:
    """A merge under way: of whom it is, what was asked, and what is there."""

    merge: Merge
    expected: set[str]
    requests: dict[str, TaskRequest] = field(default_factory=dict)
    results: dict[str, tuple[float, Payload]] = field(default_factory=dict)


class Gathering:
    """The merges of all runs. What was lost with an aggregator is asked for again, and parties answer from journals."""

    def __init__(self) -> None:
        self._groups: dict[Key, _Group] = {}

    def expect(self, name: str, request: TaskRequest, parts: Sequence[bytes | memoryview],
               members: Collection[str]) -> None:
        """A task goes to a party; if its results are merged, they are from now on."""
        merge = _merge_of(request.task)
        if merge is None:
            return
        together = tuple(map(str, payloads.decode(parts[2]).get("together", ()))) if parts[2] else ()
        key = (request.run, request.task, request.round, together, sha256(parts[1]).digest())
        if key not in self._groups:
            while len(self._groups) >= _MOST:
                del self._groups[next(iter(self._groups))]
            self._groups[key] = _Group(merge, {other for other in together if other in members})
        group = self._groups[key]
        group.requests[name] = request
        group.results.pop(name, None)

    def take(self, name: str, result: TaskResult, content: bytes | memoryview) -> str | None:
        """Keep a result that is to be merged: what is wrong with it, if anything. None: it is to go on as it is."""
        group = self._of(name, result.run, result.position)
        if group is None or group.requests[name].digest != result.digest:
            return None
        try:
            payload = payloads.decode(content, shared=True)
            group.merge([payload])
        except (TequioError, KeyError, TypeError, ValueError, AttributeError) as cause:
            self.leave(name, result.run, result.position)
            return f"its result cannot be merged: {crossing(cause)[0]}"
        group.results[name] = (result.seconds, payload)
        return ""

    def leave(self, name: str, run: str, position: int) -> None:
        """Wait no longer for a party."""
        group = self._of(name, run, position)
        if group is not None:
            group.expected.discard(name)
            group.requests.pop(name, None)

    def forget(self, run: str) -> None:
        """A run is over."""
        self._groups = {key: group for key, group in self._groups.items() if key[0] != run}

    def ready(self) -> list[tuple[Merged, Part]]:
        """The merges that are complete, each once."""
        done = [key for key, group in self._groups.items() if group.expected and group.results.keys() >= group.expected]
        return [_merged(key, self._groups.pop(key)) for key in done]

    def _of(self, name: str, run: str, position: int) -> _Group | None:
        return next((group for key, group in self._groups.items() if key[0] == run and name in group.requests
                     and group.requests[name].position == position), None)


def _merged(key: Key, group: _Group) -> tuple[Merged, Part]:
    """In the order in which the coordinator named the parties, so that sums do not depend on who was fastest."""
    names = [name for name in key[3] if name in group.expected]
    merged = group.merge([group.results[name][1] for name in names])
    content = Part(*payloads.encode_pieces(merged), lasting=True)
    answers = tuple((name, group.requests[name].position, group.requests[name].digest) for name in names)
    return Merged(key[0], answers, max(group.results[name][0] for name in names), content.ref), content


def _merge_of(task: str) -> Merge | None:
    try:
        return find_task(task).merge
    except ConfigError:
        return None  # a task of a plugin that only the parties have
