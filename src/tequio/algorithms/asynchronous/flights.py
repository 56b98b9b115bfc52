"""Work under way at parties that nobody waits for: what the asynchronous algorithms share.

A party departs with the model as it is, trains, and lands when the virtual clock says so; then another departs. Times
do not depend on what is learnt, so a round's departures and landings are played on the event queue first, and all
parties that departed in the round, which have the same model, then train in one ask: batched, and on all workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.training import train, training_settings
from tequio.errors import ConfigError
from tequio.federation import payload as payloads
from tequio.federation.events import EventQueue
from tequio.federation.models import check_shapes, shifted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.algorithm import Algorithm, State
    from tequio.federation.clock import Clock
    from tequio.federation.events import Event
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays


@dataclass(frozen=True)
class Landed:
    """What landed in a round, in order of landing (changes of models, or whole models), and what is still under way."""

    parties: NDArray[np.int64]
    arrays: list[Arrays]
    rows: NDArray[np.float64]
    staleness: NDArray[np.int64]
    memory: Payload

    def __len__(self) -> int:
        return len(self.arrays)


@dataclass
class _Sky:
    """One round on the event queue."""

    federation: Federation
    clock: Clock
    queue: EventQueue
    concurrency: int
    sizes: tuple[float, float]
    rng: np.random.Generator
    algorithm: Algorithm
    departed: list[int] = field(default_factory=list)
    tickets: dict[int, int] = field(default_factory=dict)
    landed: list[Event] = field(default_factory=list)

    def depart(self) -> None:
        """Let idle parties depart until as many are under way as may be; each at most once a round."""
        parties = self._idle(self.concurrency - len(self.queue))
        if not len(parties):
            return
        round, present = self.federation.round, self.federation.present(np.sort(parties))
        rows = self.clock.rows(parties, self.algorithm.parts.local)
        for party, seconds in zip(parties, self.clock.send_out(parties, round, *self.sizes, rows), strict=True):
            self.departed.append(int(party))
            if np.isfinite(seconds):
                self._enter(int(party), self.clock.now + float(seconds), bool(party in present))

    def land(self, latest: float) -> bool:
        """Take the next landing, if it is not after the latest moment; whether there was one."""
        if self.queue.next_seconds() > latest or not len(self.queue):
            return False
        event = self.queue.next()
        self.clock.now = max(self.clock.now, event.seconds)
        if event.lost:
            self.clock.totals.lost += 1
        else:
            self.landed.append(event)
        return True

    def _enter(self, party: int, arrival: float, present: bool) -> None:
        schedule = self.clock.schedule
        online = schedule is None or bool(schedule(np.array([party]), arrival)[0])
        self.queue.add(arrival, party, self.federation.round - 1, lost=not (present and online))
        if present and online:
            self.tickets[self.queue.tickets] = party

    def _idle(self, free: int) -> NDArray[np.int64]:
        """Random parties that can be reached, are not under way, and have not departed in this round."""
        schedule, eligible = self.clock.schedule, self.federation.eligible()
        if free <= 0:
            return eligible[:0]
        away = np.union1d(self.queue.busy(), self.departed).astype(np.int64)
        if schedule is not None:
            eligible = eligible[schedule(eligible, self.clock.now)]
        # Drawing a few too many and leaving out those that are away costs the same among a million parties.
        drawn = self.rng.choice(eligible, min(free + len(away), len(eligible)), replace=False)
        return drawn[~np.isin(drawn, away)][:free]


def fly(algorithm: Algorithm, federation: Federation, state: State, *, concurrency: int, arrivals: int = 0,
        period: float = 0.0, whole: bool = False) -> Landed:
    """Play a round until so many parties have landed, or for a period, and let those that departed train.

    What lands is the change of the model that a party departed with or, if `whole`, that model with the change.
    """
    clock, memory = _clock(algorithm, federation), state.memory.get("flights", {})
    queue = EventQueue.from_plain(memory["queue"]) if memory else EventQueue()
    size = float(payloads.size({"model": state.model}))
    sky = _Sky(federation, clock, queue, concurrency, (size, memory.get("bytes_up", size)), federation.rng("depart"),
               algorithm)
    latest = clock.now + period if period else float("inf")
    if not len(queue):
        federation.reachable()  # with nobody under way, time passes until somebody can be reached
    sky.depart()
    if not len(queue):
        raise ConfigError("no party can ever answer: the throughput or the speed of all that were asked is 0",
                          remedy="raise devices.throughput and devices.speed")
    while (period or len(sky.landed) < arrivals) and sky.land(latest):
        sky.depart()
    clock.now = max(clock.now, latest) if period else clock.now
    return _landed(algorithm, federation, state, sky, memory, whole)


def _landed(algorithm: Algorithm, federation: Federation, state: State, sky: _Sky, memory: Payload,
            whole: bool) -> Landed:
    """Let those train that departed, and take the work of those that landed."""
    asked = np.array(sorted(sky.tickets.values()), dtype=np.int64)
    federation.record("selection", {"round": federation.round, "parties": asked.tolist()})
    replies = federation.off_the_clock().ask(asked, train, {"model": state.model},
                                             settings=training_settings(algorithm), stages=algorithm.parts.stages)
    made = {reply.party: reply.payload for reply in replies}
    work: dict[str, Any] = dict(memory.get("work", {}))
    for ticket, party in sky.tickets.items():
        if party in made:
            update = made[party]["update"]
            check_shapes(update, state.model, f"party '{federation.name(party)}'")
            work[str(ticket)] = {"arrays": shifted(state.model, update) if whole else update,
                                 "rows": made[party]["rows"]}
    landed = [event for event in sky.landed if str(event.ticket) in work]
    taken = [work.pop(str(event.ticket)) for event in landed]
    up = float(np.mean([reply.bytes_up for reply in replies])) if len(replies) else sky.sizes[1]
    parties = np.array([event.party for event in landed], dtype=np.int64)
    staleness = np.array([federation.round - 1 - event.version for event in landed], dtype=np.int64)
    sky.clock.used(parties)
    sky.clock.notes["staleness"] = float(staleness.mean()) if len(staleness) else 0.0
    return Landed(parties, [one["arrays"] for one in taken], np.array([one["rows"] for one in taken], dtype=np.float64),
                  staleness, {"queue": sky.queue.to_plain(), "work": work, "bytes_up": up})


def _clock(algorithm: Algorithm, federation: Federation) -> Clock:
    if federation.clock is None:
        name = getattr(type(algorithm), "__tequio__", ("", type(algorithm).__name__))[1]
        raise ConfigError(f"the algorithm '{name}' runs on the virtual clock, and this run has none",
                          remedy="add a [devices] table, such as: devices = \"mobile\"")
    return federation.clock
