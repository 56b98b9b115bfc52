"""The coordinator's end of all links: who is there, which runs they take part in, and what each was asked to do.

Links live on the event loop of the service and runs on threads of their own; they meet here, under one lock.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from tequio.engines.network.wire import Begin, Declined, End, Failed, Ready, Result, Waiting, Withdraw, Work, frame
from tequio.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tequio.engines.network.transfers import Part
    from tequio.engines.network.wire import FromParty, Hello

    Note = Callable[..., None]


@dataclass(frozen=True, eq=False)
class Link:
    """One party's open link, its own or (`relayed`) through an aggregator."""

    hello: Hello
    send: Callable[[Iterable[bytes]], None]
    close: Callable[[], None]
    relayed: bool = False


@dataclass(frozen=True, eq=False)
class Errand:
    """A task on its way to one party and back."""

    work: Work
    parts: tuple[Part, Part, Part]
    ticket: int
    expires: float
    bytes_down: int

    def frames(self) -> Iterator[bytes]:
        """All that is sent for it."""
        for part in self.parts:
            yield from part.frames
        yield frame(self.work, *(part.inline for part in self.parts))


@dataclass(frozen=True)
class Arrival:
    """What came back for an errand: the bytes of a reply, or why there is none."""

    party: int
    errand: Errand
    content: bytes | memoryview | None = None
    seconds: float = 0.0
    cause: str = ""
    remedy: str = ""


@dataclass(eq=False)
class Desk:
    """One run's correspondence. `announcements` holds what each party is told at its beginning."""

    run: str
    names: Sequence[str]
    announcements: Sequence[Part]
    errands: dict[int, Errand] = field(default_factory=dict)
    answers: dict[int, Ready | Waiting | Declined] = field(default_factory=dict)
    inbox: SimpleQueue[Arrival] = field(default_factory=SimpleQueue)

    def frames(self, party: int) -> Iterator[bytes]:
        """What a party that dials in has to be told: that there is this run, and what it still owes."""
        part = self.announcements[party]
        yield from part.frames
        yield frame(Begin(self.run, part.place), part.inline)
        errand = self.errands.get(party)
        if errand is not None:
            yield from errand.frames()


class Hub:
    """All links and all runs of a coordinator."""

    def __init__(self, note: Note, count: Note, remedy: str = "start them (tequio party run)") -> None:
        self._note, self._count, self._remedy = note, count, remedy
        self.trouble: dict[str, str] = {}
        self._changed = threading.Condition(threading.RLock())
        self._links: dict[str, Link] = {}
        self._known: dict[str, Hello] = {}
        self._since: dict[str, float] = {}
        self._desks: dict[str, Desk] = {}
        self._ways: dict[str, Link] = {}

    def connect(self, link: Link) -> None:
        """A party dialled in: an older link of its own ends, and it hears of the runs it takes part in."""
        name = link.hello.name
        with self._changed:
            older = self._links.get(name)
            self._links[name], self._known[name] = link, link.hello
            self._since[name] = time.monotonic()
            if link.relayed:
                self._ways[name] = link
            for desk in self._desks.values():
                if name in desk.names:
                    link.send(desk.frames(desk.names.index(name)))
            self._changed.notify_all()
        if older is not None:
            older.close()

    def disconnect(self, link: Link) -> None:
        """A link ended; what its party owes waits for its return."""
        with self._changed:
            if self._links.get(link.hello.name) is link:
                del self._links[link.hello.name]
                self._since[link.hello.name] = time.monotonic()
                self._changed.notify_all()

    def lose_way(self, link: Link) -> None:
        """The aggregator between us and a party is gone."""
        self.disconnect(link)
        with self._changed:
            if self._ways.get(link.hello.name) is link:
                del self._ways[link.hello.name]

    def wait(self, is_enough: Callable[[dict[str, Hello]], bool], seconds: float) -> dict[str, Hello]:
        """The parties that are there once they are enough, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: is_enough(self.present()), seconds)
            return self.present()

    def expect(self, names: Sequence[str], seconds: float) -> dict[str, Hello]:
        """The greetings of these parties, once all are there."""
        there = self.wait(lambda here: here.keys() >= set(names), seconds)
        missing = [name for name in names if name not in there]
        if missing:
            raise self.absent(f"{len(missing)} of {len(names)} parties did not dial in within {seconds:g} s: "
                              f"{', '.join(missing[:5])}")
        return {name: there[name] for name in names}

    def absent(self, what: str) -> EngineError:
        """The error about parties that are not there, with what is known to be in their way."""
        known = "".join(f"; {cause}" for cause in list(self.trouble.values())[:3])
        return EngineError(what + known, remedy=f"{self._remedy}, or raise engine.wait")

    def present(self) -> dict[str, Hello]:
        """Who is there, in the order of names."""
        with self._changed:
            return {name: self._links[name].hello for name in sorted(self._links)}

    def links(self) -> list[Link]:
        """All that are open, also those through aggregators."""
        with self._changed:
            return list(self._links.values())

    def drop(self, name: str) -> None:
        """End a party's link."""
        with self._changed:
            link = self._links.get(name)
        if link is not None:
            link.close()

    def away(self, name: str) -> float:
        """For how many seconds a party has been away; 0 where it is there."""
        with self._changed:
            return 0.0 if name in self._links else time.monotonic() - self._since.setdefault(name, time.monotonic())

    def engaged(self, name: str) -> bool:
        """Whether a run counts on that party."""
        with self._changed:
            return any(name in desk.names for desk in self._desks.values())

    def open(self, desk: Desk) -> None:
        """Start a run's correspondence."""
        with self._changed:
            if desk.run in self._desks:
                raise EngineError(f"the run '{desk.run}' is under way already", remedy="wait for it or stop it")
            self._desks[desk.run] = desk
            for party, name in enumerate(desk.names):
                if name in self._links:
                    self._links[name].send(desk.frames(party))

    def announce(self, desk: Desk) -> None:
        """Tell everybody of a run again, after its announcements changed."""
        with self._changed:
            desk.answers.clear()
            for party, name in enumerate(desk.names):
                if name in self._links:
                    self._links[name].send(desk.frames(party))

    def wait_for_answers(self, desk: Desk, seconds: float) -> None:
        """Until every party has said whether it takes part, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(desk.answers) == len(desk.names) and not any(
                isinstance(answer, Waiting) for answer in desk.answers.values()), seconds)

    def close(self, desk: Desk, *, finished: bool) -> None:
        """End a run's correspondence; those who are there hear of it if the run is over."""
        with self._changed:
            self._desks.pop(desk.run, None)
            for name in desk.names if finished else ():
                if name in self._links:
                    self._links[name].send([frame(End(desk.run))])

    def give(self, desk: Desk, party: int, errand: Errand) -> None:
        """Ask a party to do something, now or when it comes back. It takes the place of what it was asked before."""
        with self._changed:
            answer = desk.answers.get(party)
            if isinstance(answer, Declined):
                desk.inbox.put(Arrival(party, errand, cause=answer.cause, remedy=answer.remedy))
                return
            desk.errands[party] = errand
            link = self._links.get(desk.names[party])
            if link is not None:
                link.send(errand.frames())

    def take_back(self, desk: Desk, party: int, errand: Errand) -> bool:
        """Wait no longer for an answer; whether one was still awaited."""
        with self._changed:
            if desk.errands.get(party) is not errand:
                return False
            del desk.errands[party]
            way = self._ways.get(desk.names[party])
            if way is not None:  # an aggregator would go on waiting for it
                way.send([frame(Withdraw(desk.run, errand.work.position))])
            return True

    def receive(self, link: Link, message: FromParty, parts: list[bytes | memoryview]) -> bool:
        """A party said something about a run; whether it was waited for."""
        name, run = link.hello.name, message.run  # type: ignore[union-attr]
        with self._changed:
            desk = self._desks.get(run)
            if desk is None or name not in desk.names:
                self._note("unexpected message", party=name, run=run, message=type(message).__name__)
                return False
            party = desk.names.index(name)
            if isinstance(message, Result | Failed):
                return self._arrived(desk, party, message, parts)
            if isinstance(message, Ready | Waiting | Declined):
                self._answered(desk, party, message)
            return True

    def _answered(self, desk: Desk, party: int, message: Ready | Waiting | Declined) -> None:
        desk.answers[party] = message
        self._changed.notify_all()
        if isinstance(message, Declined):
            self._note("run declined", party=desk.names[party], run=desk.run, cause=message.cause)
            errand = desk.errands.pop(party, None)
            if errand is not None:
                desk.inbox.put(Arrival(party, errand, cause=message.cause, remedy=message.remedy))

    def _arrived(self, desk: Desk, party: int, message: Result | Failed, parts: list[bytes | memoryview]) -> bool:
        errand = desk.errands.get(party)
        if errand is None or (errand.work.position, errand.work.digest) != (message.position, message.digest):
            self._count("replies_ignored")  # sent twice, or too late
            return False
        del desk.errands[party]
        if isinstance(message, Result):
            desk.inbox.put(Arrival(party, errand, parts[0], message.seconds))
        else:
            desk.inbox.put(Arrival(party, errand, cause=message.cause, remedy=message.remedy))
        return True

    def status(self) -> dict[str, Any]:
        """Who is there and what goes on."""
        with self._changed:
            now = time.monotonic()
            parties = {name: {"connected": name in self._links, "seconds": round(now - self._since.get(name, now), 1),
                              "rows": hello.rows, "version": hello.version} for name, hello in self._known.items()}
            runs = {desk.run: {"parties": len(desk.names), "owing": [desk.names[party] for party in desk.errands],
                               "waiting": {desk.names[party]: answer.cause for party, answer in desk.answers.items()
                                           if isinstance(answer, Waiting | Declined)}}
                    for desk in self._desks.values()}
            return {"parties": parties, "runs": runs}


class Gateway(Protocol):
    """What brings parties to a hub, while it is started."""

    @property
    def hub(self) -> Hub:
        """Where they are brought."""
        ...

    def start(self) -> None:
        """Let them come."""
        ...

    def stop(self) -> None:
        """Let them go."""
        ...
