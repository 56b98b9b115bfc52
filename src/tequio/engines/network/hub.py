"""The coordinator's end of all links: who is there, which runs they take part in, and what each was asked to do.

Links live on the event loop of the service and runs on threads of their own; they meet here, under one lock.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict

from tequio import __version__
from tequio.engines.network.wire import (
    HIGHEST,
    LOWEST,
    Begin,
    Declined,
    End,
    Ready,
    TaskFailed,
    TaskRequest,
    TaskResult,
    Waiting,
    Withdraw,
    frame,
)
from tequio.errors import EngineError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tequio.engines.network.wire import FromParty, Hello, Part

    Note = Callable[..., None]
    OnWait = Callable[["Awaited"], None]

_SECONDS_BETWEEN_NOTES = 2.0
_NOT_HERE = "not connected"


class Awaited(TypedDict):
    """Whom a run waits for: who is there, why each of the others is missing, and how many more may be any party."""

    there: list[str]
    missing: dict[str, str]
    more: int


def say_nothing(awaited: Awaited) -> None:
    """For runs that nobody watches."""


@dataclass(frozen=True, eq=False)
class Link:
    """One party's open link, its own or (`relayed`) through an aggregator."""

    hello: Hello
    send: Callable[[Iterable[bytes]], None]
    close: Callable[[], None]
    relayed: bool = False


@dataclass(frozen=True, eq=False)
class PendingTask:
    """A request that one party has not answered yet, with the bytes that go with it."""

    party: int
    request: TaskRequest
    parts: tuple[Part, Part, Part]
    ticket: int
    expires: float
    bytes_down: int

    def frames(self) -> Iterator[bytes]:
        """All that is sent for it."""
        for part in self.parts:
            yield from part.frames
        yield frame(self.request, *(part.inline for part in self.parts))

    def failed(self, cause: str, remedy: str) -> Answer:
        """The answer where the party gives none."""
        request = self.request
        return self, TaskFailed(request.run, request.position, request.digest, cause, remedy), b""


Answer = tuple[PendingTask, TaskResult | TaskFailed, bytes | memoryview]
"""What was asked, what came back, and the bytes of the reply."""


@dataclass(eq=False)
class RunMailbox:
    """What goes out for one run, and what comes in.

    `announcements` are for each party at the beginning, `verdicts` say who takes part, `pending` are the requests that
    parties still owe an answer to, and `answers` those that the run has yet to read. Parties that do not speak the
    version `lowest` of the protocol hear nothing of the run.
    """

    run: str
    names: Sequence[str]
    announcements: Sequence[Part]
    verdicts: dict[int, Ready | Waiting | Declined] = field(default_factory=dict)
    pending: dict[int, PendingTask] = field(default_factory=dict)
    answers: SimpleQueue[Answer] = field(default_factory=SimpleQueue)
    lowest: int = LOWEST

    def frames(self, party: int) -> Iterator[bytes]:
        """What a party that dials in has to hear: that there is this run, and what it still owes."""
        part = self.announcements[party]
        yield from part.frames
        yield frame(Begin(self.run, part.ref), part.inline)
        pending = self.pending.get(party)
        if pending is not None:
            yield from pending.frames()


class Hub:
    """All links and all runs of a coordinator."""

    def __init__(self, note: Note, count: Note, remedy: str = "start them (tequio party run)") -> None:
        self._note, self._count, self._remedy = note, count, remedy
        self.trouble: dict[str, str] = {}
        self._changed = threading.Condition(threading.RLock())
        self._links: dict[str, Link] = {}
        self._known: dict[str, Hello] = {}
        self._since: dict[str, float] = {}
        self._mailboxes: dict[str, RunMailbox] = {}
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
            for mailbox in self._mailboxes.values():
                if name in mailbox.names and link.hello.highest >= mailbox.lowest:
                    link.send(mailbox.frames(mailbox.names.index(name)))
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

    def at_least(self, count: int, seconds: float, say: OnWait) -> dict[str, Hello]:
        """The parties that are there once they are enough, or when the time is over."""
        there = self._wait(lambda here: Awaited(there=list(here), missing={}, more=max(count - len(here), 0)),
                           seconds, say)
        if len(there) < count:
            raise self.absent(f"only {len(there)} parties dialled in within {seconds:g} s, data.minimum is {count}")
        return there

    def gathered(self, names: Sequence[str], count: int, seconds: float) -> dict[str, Hello]:
        """Those of these parties that are there in time; where none is named, all, once they are `count`."""
        there = self._wait(lambda here: Awaited(there=list(here), missing={
            name: _NOT_HERE for name in names if name not in here}, more=0 if names else max(count - len(here), 0)),
            seconds, say_nothing)
        return {name: hello for name, hello in there.items() if not names or name in names}

    def expect(self, names: Sequence[str], seconds: float, say: OnWait = say_nothing) -> dict[str, Hello]:
        """The greetings of these parties, once all are there."""
        there = self._wait(lambda here: Awaited(there=[name for name in names if name in here], more=0, missing={
            name: _NOT_HERE for name in names if name not in here}), seconds, say)
        missing = [name for name in names if name not in there]
        if missing:
            raise self.absent(f"{len(missing)} of {len(names)} parties did not dial in within {seconds:g} s: "
                              f"{', '.join(missing[:5])}")
        return {name: there[name] for name in names}

    def wait_for_verdicts(self, mailbox: RunMailbox, seconds: float, say: OnWait = say_nothing) -> None:
        """Until every party has said whether it takes part, or the time is over."""
        def awaited(here: dict[str, Hello]) -> Awaited:
            missing = {name: verdict.cause if isinstance(verdict, Waiting) else "no answer yet" if name in here
                       else _NOT_HERE for party, name in enumerate(mailbox.names)
                       if isinstance(verdict := mailbox.verdicts.get(party), Waiting | None)}
            return Awaited(there=[name for name in mailbox.names if name not in missing], missing=missing, more=0)

        self._wait(awaited, seconds, say)

    def _wait(self, look: Callable[[dict[str, Hello]], Awaited], seconds: float, say: OnWait) -> dict[str, Hello]:
        """Who is there once nobody is awaited any more, or when the time is over; in between, say who is awaited."""
        ends, said = time.monotonic() + seconds, None
        while True:
            with self._changed:
                if said is not None and look(self.present()) == said:
                    self._changed.wait(min(max(ends - time.monotonic(), 0.0), _SECONDS_BETWEEN_NOTES))
                there = self.present()
                awaited = look(there)
            if not (awaited["missing"] or awaited["more"]) or time.monotonic() >= ends:
                return there
            say(awaited)  # without the lock, which parties need to dial in
            said = awaited

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
            return any(name in mailbox.names for mailbox in self._mailboxes.values())

    def open(self, mailbox: RunMailbox) -> None:
        """Open a run's mailbox, and announce the run to those who are there."""
        with self._changed:
            if mailbox.run in self._mailboxes:
                raise EngineError(f"the run '{mailbox.run}' is under way already", remedy="wait for it or stop it")
            self._mailboxes[mailbox.run] = mailbox
            for party, name in enumerate(mailbox.names):
                if name in self._links and self._links[name].hello.highest >= mailbox.lowest:
                    self._links[name].send(mailbox.frames(party))

    def close(self, mailbox: RunMailbox, *, finished: bool) -> None:
        """Close a run's mailbox; those who are there hear of it if the run is over."""
        with self._changed:
            self._mailboxes.pop(mailbox.run, None)
            for name in mailbox.names if finished else ():
                if name in self._links:
                    self._links[name].send([frame(End(mailbox.run))])

    def submit(self, mailbox: RunMailbox, pending: PendingTask) -> None:
        """Send a party a request, now or when it comes back. It replaces what the party was asked before."""
        with self._changed:
            verdict = mailbox.verdicts.get(pending.party)
            if isinstance(verdict, Declined):
                mailbox.answers.put(pending.failed(verdict.cause, verdict.remedy))
                return
            mailbox.pending[pending.party] = pending
            link = self._links.get(mailbox.names[pending.party])
            if link is not None and link.hello.highest >= mailbox.lowest:
                link.send(pending.frames())

    def withdraw(self, mailbox: RunMailbox, pending: PendingTask) -> bool:
        """Wait no longer for an answer; whether one was still awaited."""
        with self._changed:
            if mailbox.pending.get(pending.party) is not pending:
                return False
            del mailbox.pending[pending.party]
            way = self._ways.get(mailbox.names[pending.party])
            if way is not None:  # an aggregator would go on waiting for it
                way.send([frame(Withdraw(mailbox.run, pending.request.position))])
            return True

    def receive(self, link: Link, message: FromParty, parts: list[bytes | memoryview]) -> bool:
        """A party said something about a run; whether it was waited for."""
        name = link.hello.name
        with self._changed:
            run = message.run if isinstance(message, Ready | Waiting | Declined | TaskResult | TaskFailed) else ""
            mailbox = self._mailboxes.get(run)
            if mailbox is None or name not in mailbox.names:
                self._note("unexpected message", party=name, run=run, message=type(message).__name__)
                return False
            party = mailbox.names.index(name)
            if isinstance(message, TaskResult | TaskFailed):
                return self._answered(mailbox, party, message, parts)
            if isinstance(message, Ready | Waiting | Declined):
                self._judged(mailbox, party, message)
            return True

    def _judged(self, mailbox: RunMailbox, party: int, verdict: Ready | Waiting | Declined) -> None:
        mailbox.verdicts[party] = verdict
        self._changed.notify_all()
        if isinstance(verdict, Declined):
            self._note("run declined", party=mailbox.names[party], run=mailbox.run, cause=verdict.cause)
            pending = mailbox.pending.pop(party, None)
            if pending is not None:
                mailbox.answers.put(pending.failed(verdict.cause, verdict.remedy))

    def _answered(self, mailbox: RunMailbox, party: int, result: TaskResult | TaskFailed,
                  parts: list[bytes | memoryview]) -> bool:
        pending = mailbox.pending.get(party)
        if pending is None or (pending.request.position, pending.request.digest) != (result.position, result.digest):
            self._count("replies_ignored")  # sent twice, or too late
            return False
        del mailbox.pending[party]
        mailbox.answers.put((pending, result, parts[0] if parts else b""))
        return True

    def status(self) -> Status:
        """Who is there and what goes on."""
        with self._changed:
            now = time.monotonic()
            parties = {name: PartyStatus(connected=name in self._links, rows=hello.rows, version=hello.version,
                                         seconds=round(now - self._since.get(name, now), 1))
                       for name, hello in self._known.items()}
            runs = {mailbox.run: RunStatus(
                parties=len(mailbox.names), owing=[mailbox.names[party] for party in mailbox.pending],
                waiting={mailbox.names[party]: verdict.cause for party, verdict in mailbox.verdicts.items()
                         if isinstance(verdict, Waiting | Declined)}) for mailbox in self._mailboxes.values()}
            return {"parties": parties, "runs": runs}


class PartyStatus(TypedDict):
    """A party that has dialled in at least once, and for how many seconds it has been there or away."""

    connected: bool
    seconds: float
    rows: int
    version: str


class RunStatus(TypedDict):
    """A run under way: who owes an answer, and why others wait or declined."""

    parties: int
    owing: list[str]
    waiting: dict[str, str]


class Status(TypedDict):
    """What `tequio coordinator status` shows. The parties of each aggregator are there if a service adds them."""

    parties: dict[str, PartyStatus]
    runs: dict[str, RunStatus]
    aggregators: NotRequired[dict[str, list[str]]]


def check_version(hello: Hello) -> None:
    """Refuse a party with which no version of the protocol is shared."""
    if hello.lowest > HIGHEST or hello.highest < LOWEST:
        raise PermissionDenied(f"party '{hello.name}' (tequio {hello.version}) speaks versions {hello.lowest} to "
                               f"{hello.highest} of the protocol, the coordinator (tequio {__version__}) {LOWEST} "
                               f"to {HIGHEST}", remedy="install the same version of tequio on both sides")


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
