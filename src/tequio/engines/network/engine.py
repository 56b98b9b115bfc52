"""The engine that a run at the coordinator sees: orders go out over links, outcomes come back.

The path of a request, under three names:

1. `Order`: what the algorithm asks of some parties. `NetworkEngine.submit` makes one request of it for each of them.
2. `TaskRequest` (wire.py): what one party is asked. `Hub.submit` keeps it in the run's mailbox as a `PendingTask`, and
   sends it now, when the party dials in, or again when a link breaks, until it is answered or withdrawn.
   `PartyLink` (dialling.py) receives it at the party and hands it to `Site.run` (site.py), which holds it against the
   policy, finds it in the journal if it was done before, and else runs it through `execute`, as every engine does.
3. `TaskResult` (or `TaskFailed`): what the party answers. `Hub.receive` finds the pending task that it belongs to, and
   `NetworkEngine.collect` makes one `Outcome` of the order once all of its parties have answered or are given up.

An aggregator (aggregating.py, relays.py) may stand between hub and party; it passes on the same messages.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from annotated_types import Ge

from tequio.engines.network.homes import CoordinatorHome
from tequio.engines.network.hub import PendingTask, RunMailbox, say_nothing
from tequio.engines.network.telemetry import AuditLog, Telemetry
from tequio.engines.network.wire import LOWEST, Declined, Part, TaskFailed, TaskRequest, Waiting
from tequio.errors import EngineError, PayloadError, RunError
from tequio.federation import payload as payloads
from tequio.federation.exchange import Announcement, Failure, Outcome, Reply
from tequio.federation.population import Roster
from tequio.gate.announcement import read_announcement, roster_of
from tequio.privacy.updates import JOINT
from tequio.registry import COMPONENT_KEY, register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from threading import Lock

    from tequio.engines.network.hub import Answer, Gateway, Hub, OnWait
    from tequio.engines.network.service import Service
    from tequio.federation.exchange import Engine, Order
    from tequio.federation.payload import Payload
    from tequio.federation.population import Population

_LOOK_AROUND = 0.5
MEGABYTE = 1 << 20


@register("engine", "network")
@dataclass(frozen=True)
class Network:
    """Real parties that dial in over mutual TLS and keep their data and states.

    Parameters:
        home: the coordinator's folder, made by `tequio coordinator init`
        deadline: seconds that a party has for one task (0: as long as it takes)
        absence: seconds that a party may be away before a task there counts as failed
        wait: seconds to wait for the parties to dial in, and to say that they take part, before the run starts
        maximum_reply_megabytes: replies longer than this are refused
    """

    home: str = "coordinator"
    deadline: Annotated[float, Ge(0)] = 0.0
    absence: Annotated[float, Ge(0)] = 60.0
    wait: Annotated[float, Ge(0)] = 300.0
    maximum_reply_megabytes: Annotated[int, Ge(1)] = 4096

    def create(self) -> Engine:
        """An engine that listens while it is open."""
        return NetworkEngine(self)

    def service(self, telemetry: Telemetry | None = None) -> Service:
        """The service that parties dial, not yet started."""
        from tequio.engines.network.service import Service

        home = CoordinatorHome(Path(self.home))
        sink = telemetry or Telemetry(AuditLog(home.folder / "audit.jsonl"))
        return Service(home, sink, maximum_reply_bytes=self.maximum_reply_megabytes * MEGABYTE)


class Terms(Protocol):
    """An engine of this kind as a config describes it: its patience, and where its parties come from."""

    @property
    def deadline(self) -> float:
        """Seconds for one task."""
        ...

    @property
    def absence(self) -> float:
        """Seconds that a party may be away."""
        ...

    @property
    def wait(self) -> float:
        """Seconds to wait for the parties at the beginning."""
        ...

    def service(self) -> Gateway:
        """What brings the parties, not yet started."""
        ...


@dataclass
class _OpenOrder:
    """An order that some of its parties have not answered yet."""

    missing: set[int]
    replies: list[Reply] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class NetworkEngine:
    """Carries a run's orders. States stay with the parties; a checkpoint holds after which task each one is.

    Learners keep models and buffers that runs of one process share, so runs take turns: whoever holds the lock `turn`
    thinks, and lets go of it while it waits for its parties. `say` hears whom it waits for.
    """

    lowest: ClassVar[int] = LOWEST
    """The lowest version of the protocol that a party needs for what is announced."""

    def __init__(self, terms: Terms, service: Gateway | None = None, turn: Lock | None = None,
                 say: OnWait = say_nothing) -> None:
        self._terms, self._service, self._own_service = terms, service, service is None
        self._turn, self.say = turn, say
        self._announcement = Announcement("run")
        self._mailbox: RunMailbox | None = None
        self._orders: dict[int, _OpenOrder] = {}
        self._issued = 0
        self._last: dict[int, int] = {}
        self._snapshots: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._common: tuple[Payload, Part, bytes] | None = None
        self._keys: list[bytes] = []
        self.roster = Roster(b"", 0)

    def announce(self, announcement: Announcement) -> None:
        """Which run this is, for the parties to judge."""
        self._announcement = announcement

    def open(self, population: Population) -> None:
        """Wait for the parties and announce the run to them."""
        if self._service is None:
            self._service = self._terms.service()
            self._service.start()
        if self._mailbox is not None:
            self._service.hub.close(self._mailbox, finished=False)
        names = [population.name(party) for party in range(len(population))]
        hub = self._service.hub
        with self.others_turn():
            present = hub.expect(names, self._terms.wait, self.say)
        self._check_shares([present[name].share for name in names], names)
        self._keys = [present[name].key for name in names]
        self.pin(self.facts_for(population, 0))
        self._mailbox = RunMailbox(self._announcement.run, names,
                                   [Part(payloads.encode(self.facts_for(population, party)))
                                    for party in range(len(names))], lowest=self.lowest)
        hub.open(self._mailbox)
        with self.others_turn():
            hub.wait_for_verdicts(self._mailbox, self._terms.wait, self.say)
        self._refuse_if_declined(self._mailbox)

    def submit(self, order: Order) -> None:
        """Send a request to each party of the order."""
        mailbox, hub = self._opened()
        self._issued += 1
        said = payloads.encode({"settings": dict(order.settings), "stages": list(order.stages)})
        about, (common, digest) = Part(said), self._shared(order)
        self._orders[order.ticket] = _OpenOrder(set(order.parties))
        expires = time.monotonic() + self._terms.deadline if self._terms.deadline else float("inf")
        for index, party in enumerate(order.parties):
            extra = order.each[index] if order.each is not None else {}
            content = payloads.encode(extra) if extra else b""
            own = Part(content)
            request = TaskRequest(mailbox.run, self._issued, self._last.get(party, 0), self._snapshots[0].get(party, 0),
                                  _digest(order, said, digest, content), order.task, order.round,
                                  (about.ref, common.ref, own.ref))
            size = payloads.size({**order.payload, **extra}) if extra else common.ref[1]
            hub.submit(mailbox, PendingTask(party, request, (about, common, own), order.ticket, expires, size))

    def collect(self) -> Outcome:
        """The next order that every one of its parties has answered, failed or been too late for."""
        mailbox, _ = self._opened()
        if not self._orders:
            raise EngineError("nothing was submitted to this engine")
        while True:
            for ticket, held in self._orders.items():
                if not held.missing:
                    del self._orders[ticket]
                    return Outcome(ticket, tuple(sorted(held.replies, key=lambda reply: reply.party)),
                                   tuple(sorted(held.failures, key=lambda failure: failure.party)))
            try:
                with self.others_turn():
                    answer = mailbox.answers.get(timeout=_LOOK_AROUND)
            except Empty:
                self._give_up_on_the_late()
            else:
                self._take(answer)

    def states(self) -> dict[int, Payload]:
        """After which task each party is; their states are on their own disks."""
        self._snapshots = (self._snapshots[1], dict(self._last))
        return {party: {"position": position, "issued": self._issued} for party, position in self._last.items()}

    def restore(self, states: dict[int, Payload]) -> None:
        """Go on from where a checkpoint was: parties take the states that they had then."""
        try:
            self._last = {party: int(state["position"]) for party, state in states.items()}
            self._issued = max((int(state["issued"]) for state in states.values()), default=0)
        except (KeyError, TypeError, ValueError):
            raise RunError("this run was not made over the network, so its parties' states are not with the parties",
                           remedy="resume it with the engine that it was started with") from None
        self._snapshots = (dict(self._last), dict(self._last))

    def close(self) -> None:
        """Let the parties go, and stop listening if nobody else does."""
        if self._mailbox is not None and self._service is not None:
            self._service.hub.close(self._mailbox, finished=False)
            self._mailbox = None
        if self._own_service and self._service is not None:
            self._service.stop()
            self._service = None

    def finish(self) -> None:
        """The run is over: parties may forget what they kept for resuming it."""
        mailbox, hub = self._opened()
        hub.close(mailbox, finished=True)

    @contextmanager
    def others_turn(self) -> Iterator[None]:
        """Let other runs of this process go on, while this one waits."""
        if self._turn is None:
            yield
            return
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def _opened(self) -> tuple[RunMailbox, Hub]:
        if self._mailbox is None or self._service is None:
            raise EngineError("this engine is not open")
        return self._mailbox, self._service.hub

    def pin(self, facts: Mapping[str, Any]) -> None:
        """Who takes part, and by which key each signs, as a party was told."""
        if "keys" in facts:
            self.roster = Roster(read_announcement(facts).agreed, len(facts["keys"]), tuple(facts["keys"]))

    def facts_for(self, population: Population, party: int) -> Payload:
        """What a party is told of the run, to judge it by."""
        split, columns = population.split, population.partition.columns
        held = {} if columns is None else {"columns": [population.schema.features[column].name
                                                       for column in columns[party].tolist()],
                                           "holders": list(population.partition.holders)}
        names = [population.name(index) for index in range(len(population))]
        signed = columns is not None or any(spec[COMPONENT_KEY][0] == "stage" and spec[COMPONENT_KEY][1] in JOINT
                                            for spec in self._announcement.facts.get("components", ()))
        keys = {"keys": self._keys} if signed else {}
        return {**self._announcement.facts, **keys, "index": party, "parties": len(population), "seed": population.seed,
                "roster": roster_of(names),
                "split": {"validation": split.validation, "test": split.test, "stratify": split.stratify},
                "overrides": dict(population.overrides.get(party, {})), **held}

    def _check_shares(self, shares: list[str], names: list[str]) -> None:
        expected = self._announcement.facts.get("share", "")
        wrong = [name for name, share in zip(names, shares, strict=True) if share != expected]
        if wrong:
            held = "a share of another config" if expected else "a share of a simulated dataset"
            raise EngineError(f"party '{wrong[0]}' holds {held if shares[names.index(wrong[0])] else 'its own data'}, "
                              "which is not what this run is about",
                              remedy="use data.name = 'parties' for parties with data of their own, and the same "
                                     "config on both sides for simulated shares")

    def _refuse_if_declined(self, mailbox: RunMailbox) -> None:
        for party, name in enumerate(mailbox.names):
            verdict = mailbox.verdicts.get(party)
            if isinstance(verdict, Declined):
                raise EngineError(f"party '{name}' declined the run: {verdict.cause}", remedy=verdict.remedy)
            if verdict is None or isinstance(verdict, Waiting):
                why = f": {verdict.cause}" if verdict is not None else ""
                raise EngineError(f"party '{name}' did not say within {self._terms.wait:g} s that it takes part{why}",
                                  remedy="wait for it, raise engine.wait, or run without it")

    def _shared(self, order: Order) -> tuple[Part, bytes]:
        """What all parties of an ask receive is encoded once; chunks of one ask share the payload object."""
        if self._common is None or self._common[0] is not order.payload:
            pieces, whole = payloads.encode_pieces(order.payload), sha256()
            for piece in pieces:
                whole.update(piece)
            self._common = (order.payload, Part(*pieces), whole.digest())
        return self._common[1:]

    def _take(self, answer: Answer) -> None:
        pending, result, content = answer
        order, party = self._orders.get(pending.ticket), pending.party
        if order is None:
            return
        order.missing.discard(party)
        if isinstance(result, TaskFailed):
            order.failures.append(Failure(party, result.cause, result.remedy))
            return
        try:
            payload = payloads.decode(content, shared=True)
        except PayloadError as cause:
            order.failures.append(Failure(party, f"its reply cannot be read: {cause.message}"))
            return
        self._last[party] = pending.request.position
        order.replies.append(Reply(party, payload, pending.bytes_down, len(content), result.seconds))

    def _give_up_on_the_late(self) -> None:
        mailbox, hub = self._opened()
        for pending in list(mailbox.pending.values()):
            away = hub.away(mailbox.names[pending.party])
            if time.monotonic() > pending.expires:
                cause, remedy = f"no answer came within {self._terms.deadline:g} s", "raise engine.deadline"
            elif away > self._terms.absence:
                cause, remedy = f"it has been away for {away:.0f} s", "bring it back, or raise engine.absence"
            else:
                continue
            if hub.withdraw(mailbox, pending):
                self._take(pending.failed(cause, remedy))


def _digest(order: Order, about: bytes, common: bytes, own: bytes) -> str:
    """Tells tasks apart by all that they depend on, besides the party's state."""
    whole = sha256(f"{order.task}\n{order.round}\n".encode())
    for piece in (about, common, own):
        whole.update(len(piece).to_bytes(8, "little") + piece)
    return whole.hexdigest()
