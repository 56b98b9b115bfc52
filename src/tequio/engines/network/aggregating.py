"""An aggregator: parties dial it, it dials the coordinator, and what its group's results can be merged into goes on.

It keeps nothing: whatever is lost with it is sent again by the coordinator, and answered by the parties' journals.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tequio import __version__
from tequio.engines.network.certificates import Identity, fingerprint
from tequio.engines.network.gathering import Gathering
from tequio.engines.network.transfers import Part
from tequio.engines.network.wire import (
    HIGHEST,
    LOWEST,
    Begin,
    Chunk,
    Drop,
    End,
    Failed,
    Hello,
    Left,
    Members,
    Relayed,
    Result,
    Welcome,
    Withdraw,
    Work,
    clipped,
    frame,
    from_coordinator,
)
from tequio.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.hub import Link
    from tequio.engines.network.telemetry import Telemetry
    from tequio.engines.network.transfers import Assembly
    from tequio.engines.network.wire import FromCoordinator, FromParty, Message

    Send = Callable[[Iterable[bytes]], None]


class Aggregator:
    """Both ends of an aggregator: the hub of its parties' links, and the hearer of the coordinator.

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
    def facts(self) -> dict[str, Any]:
        """The port that parties dial."""
        return {"port": int(self._home.facts["listen"].rpartition(":")[2])}

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
            if isinstance(message, Result):
                fault = self._gathering.take(name, message, parts[0])
                if fault:
                    self._up(name, Failed(message.run, message.position, message.digest, clipped(fault)))
                elif fault is None:
                    part = Part(parts[0], lasting=True)
                    said = Result(message.run, message.position, message.digest, message.seconds, part.place)
                    self._up(name, said, part)
            else:
                if isinstance(message, Failed):
                    self._gathering.leave(name, message.run, message.position)
                self._up(name, message)
            self._hand_on()
        return True

    def hear(self, message: FromCoordinator, body: memoryview, assembly: Assembly) -> None:
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
            parts = assembly.parts(_places(message), body, keep=True)
            if isinstance(message, Work):
                self._gathering.expect(name, message, parts, self._members)
            if link is not None:  # else it is told when it is back
                link.send(_again(message, [Part(part, lasting=True) for part in parts]))
        return None

    def _hand_on(self) -> None:
        for message, content in self._gathering.ready():
            self._telemetry.log("merged", run=message.run, parties=len(message.answers), bytes=content.place[1])
            self.send_up(_with(content, frame(message, content.inline)))

    def _up(self, name: str, message: Message, part: Part | None = None) -> None:
        inner = frame(message, part.inline) if part is not None else frame(message)
        self.send_up(_with(part, frame(Relayed(name), inner)))


def _with(part: Part | None, last: bytes) -> Iterator[bytes]:
    yield from part.frames if part is not None else ()
    yield last


def _places(message: Any) -> list[Any]:
    return list(message.parts) if isinstance(message, Work) else [message.part] if isinstance(message, Begin) else []


def _again(message: FromCoordinator, parts: list[Part]) -> Iterator[bytes]:
    """The same message with its parts as they are cut here."""
    from msgspec.structs import replace

    for part in parts:
        yield from part.frames
    places = tuple(part.place for part in parts)
    changed = replace(message, parts=places) if isinstance(message, Work) else \
        replace(message, part=places[0]) if isinstance(message, Begin) else message
    yield frame(changed, *(part.inline for part in parts))
