"""The arithmetic of a round's time: when uploads end, and which candidates fit before a deadline.

With T_d the time to multicast the model at the pace of the slowest, t_UD a party's training time and t_UL its upload
time, uploads one after another end at Theta_i = max(Theta_{i-1}, t_UD_i) + t_UL_i after the distribution: training is
hidden behind the uploads of others (Nishio and Yonetani, 2019).

The virtual clock: what an exchange with some parties takes in seconds, energy and money. Nothing ever sleeps.

One ask on the virtual clock: who can answer in time, and who did.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, QuorumError
from tequio.federation import payload as payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.federation.devices import Resources

    Times = NDArray[np.float64]
    Coefficient = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.devices import Mobile, Schedule
    from tequio.federation.payload import Payload, R
    from tequio.learners.learner import LocalTraining

    Floats = NDArray[np.float64]
    Parties = NDArray[np.int64]

    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies


@dataclass(frozen=True)
class Candidates:
    """Parties that a deadline selector may choose from, with their expected times in this round."""

    parties: NDArray[np.int64]
    training: Times
    upload: Times
    download: Times

    @classmethod
    def of(cls, parties: NDArray[np.int64], resources: Resources, size: float,
           rows: NDArray[np.float64]) -> Candidates:
        """Expected times for a model of `size` bytes and so many rows (passes counted) at each party."""
        transfer = resources.transfer_seconds(size)
        return cls(parties, resources.training_seconds(rows), transfer, transfer)

    def part(self, places: NDArray[Any]) -> Candidates:
        """Some of the candidates, in their order."""
        return Candidates(self.parties[places], self.training[places], self.upload[places], self.download[places])

    def round_seconds(self, places: NDArray[np.int64]) -> Times:
        """How long a round lasts after each upload, if the candidates at these places upload in this order."""
        if not len(places):
            return np.zeros(0)
        ends = upload_ends(self.training[places], self.upload[places])
        return np.asarray(np.maximum.accumulate(self.download[places]) + ends, dtype=np.float64)


def upload_ends(training: Times, upload: Times, *, sequential: bool = True) -> Times:
    """When each upload ends, counted from the moment everybody has the model; in upload order."""
    if not sequential:
        return training + upload
    if not np.isfinite(training + upload).all():
        return _ends_with_blockage(training, upload)
    before = np.cumsum(upload) - upload
    # Theta_i = sum of uploads so far + the longest wait: max over j <= i of (t_UD_j - uploads before j).
    return np.asarray(before + upload + np.maximum.accumulate(np.maximum(training - before, 0.0)), dtype=np.float64)


def _ends_with_blockage(training: Times, upload: Times) -> Times:
    """A party that never gets ready, or whose link lets nothing through, does not keep the others waiting."""
    ends, works = np.full(len(upload), np.inf), np.isfinite(training + upload)
    ends[works] = upload_ends(training[works], upload[works])
    return ends


def fitting(candidates: Candidates, deadline: float, *, coefficient: Coefficient | None = None,
            classes: NDArray[Any] | None = None, legacy: bool = False) -> NDArray[np.int64]:
    """Places of the candidates that a greedy choice takes before the deadline, in the order in which they upload.

    Again and again the candidate that lengthens the round least is tried, and kept if the round still ends before the
    deadline. `coefficient(held, classes)` weighs the increments by what is known of the classes (HybridFL). `legacy`
    keeps one sum of distribution, waiting and upload, as the runs behind the published table did: it hides training
    behind the distribution too, so that a round may last up to one distribution longer than planned.
    """
    left = np.flatnonzero(np.isfinite(candidates.training + candidates.upload + candidates.download))
    taken: list[int] = []
    elapsed = distribution = 0.0
    held = np.zeros(0 if classes is None else classes.shape[1])
    while len(left):
        slower = np.maximum(distribution, candidates.download[left])
        steps = np.maximum(0.0, candidates.training[left] - elapsed) + candidates.upload[left]
        increments = slower - distribution + steps
        weighed = (increments if coefficient is None or classes is None
                   else increments * coefficient(held, classes[left]))
        best = int(np.argmin(weighed))
        index, end = int(left[best]), elapsed + (increments[best] if legacy else slower[best] + steps[best])
        left = np.delete(left, best)
        if end < deadline:
            taken.append(index)
            elapsed = float(end if legacy else elapsed + steps[best])
            distribution = float(slower[best])
            held = held if classes is None else held + classes[index]
    return np.array(taken, dtype=np.int64)


def imbalance(held: NDArray[Any], classes: NDArray[Any], *, root: bool = False) -> NDArray[np.float64]:
    """How unevenly the classes would be represented if each candidate joined those that are held.

    Variance over mean, as HybridFL's formula is printed; with `root` the usual coefficient of variation. A small
    constant lets time decide between candidates that are all perfectly balanced.
    """
    together = held + classes
    mean = together.mean(axis=1)
    spread = together.var(axis=1)
    numerator = np.sqrt(spread) if root else spread
    return np.asarray(np.divide(numerator, mean, out=np.zeros_like(mean), where=mean > 0) + 1e-9, dtype=np.float64)


LONGEST_WAIT = 14 * 86_400.0
"""If nobody can be reached for so long, nobody will be."""
_PATIENCE = 60.0


@dataclass(frozen=True)
class Departure:
    """An exchange that has begun: who was asked, in upload order, and how long receiving and training take each."""

    parties: Parties
    resources: Resources
    bytes_down: float
    distribution: float
    training: Floats


@dataclass(frozen=True)
class Arrival:
    """How an exchange ended: who was asked, who answered in time, when, and how long it all took."""

    parties: Parties
    answered: NDArray[np.bool_]
    late: NDArray[np.bool_]
    ends: Floats
    seconds: float


@dataclass
class Totals:
    """What has been spent and done so far."""

    joules: float = 0.0
    cost: float = 0.0
    chosen: int = 0
    updates: int = 0
    late: int = 0
    lost: int = 0
    waited: float = 0.0
    rows_shared: int = 0


@dataclass
class Clock:
    """Virtual time of a federation. `sizes` are the rows each party trains on; `now` is in seconds since the start."""

    devices: Mobile
    sizes: NDArray[Any] = field(repr=False)
    schedule: Schedule | None = field(default=None, repr=False)
    seed: int = 0
    now: float = 0.0
    totals: Totals = field(default_factory=Totals)
    notes: dict[str, float] = field(default_factory=dict)
    last: Arrival | None = field(default=None, repr=False)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.sizes):
            self.counts = np.zeros(len(self.sizes), dtype=np.int64)

    def resources(self, parties: Parties, round: int, purpose: str = "") -> Resources:
        """What these parties have in a round; only they are drawn."""
        return self.devices.resources(self.seed, round, parties, purpose)

    def rows(self, parties: Parties, local: LocalTraining | None) -> Floats:
        """Rows that pass through training at each party in one exchange."""
        held = np.asarray(self.sizes[parties], dtype=np.float64)
        if local is None:
            return held
        return np.full(len(parties), float(local.steps * local.batch)) if local.steps and local.batch else (
            held * (local.steps or local.epochs))

    def depart(self, parties: Parties, round: int, bytes_down: float, rows: Floats) -> Departure:
        """Multicast to these parties, at the pace of the slowest link that works, and let them train."""
        order = np.argsort(parties, kind="stable") if self.devices.upload_order == "party" else slice(None)
        parties, rows = parties[order], rows[order]
        resources = self.resources(parties, round)
        transfer = resources.transfer_seconds(bytes_down)
        works = transfer[np.isfinite(transfer)]
        training = np.where(np.isfinite(transfer), resources.training_seconds(rows), np.inf)
        return Departure(parties, resources, bytes_down, float(works.max()) if len(works) else 0.0, training)

    def hopeful(self, departure: Departure, present: Parties) -> Parties:
        """Those present that can still be reached when they are done training, and are done before the deadline."""
        ready = departure.distribution + departure.training
        stays = np.isin(departure.parties, present) & ~self.too_slow(departure, present)
        if self.schedule is not None:
            for index in np.flatnonzero(stays):
                stays[index] = self.schedule(departure.parties[index:index + 1], self.now + ready[index])[0]
        return np.sort(departure.parties[stays])

    def too_slow(self, departure: Departure, present: Parties) -> NDArray[np.bool_]:
        """Which of those present are still training, or waiting for the model, when the deadline passes."""
        ready = departure.distribution + departure.training
        slow: NDArray[np.bool_] = np.isin(departure.parties, present) & (ready >= (self.devices.deadline or np.inf))
        return slow

    def arrive(self, departure: Departure, bytes_up: Floats, present: NDArray[np.bool_]) -> Arrival:
        """End an exchange and move the clock. `bytes_up` and `present` follow the departure's upload order."""
        upload = departure.resources.transfer_seconds(bytes_up)
        ends = np.full(len(present), np.inf)
        ends[present] = departure.distribution + upload_ends(
            departure.training[present], upload[present], sequential=self.devices.uploads == "sequential")
        close = self._closing(ends, present)
        answered = present & (ends <= close)
        arrival = Arrival(departure.parties, answered, present & ~answered, ends, close)
        self._spend(departure, arrival, upload, bytes_up, present)
        self.now += close
        self.last = arrival
        return arrival

    def send_out(self, parties: Parties, round: int, down: float, up: float, rows: Floats) -> Floats:
        """How long each party takes to fetch a model, train and send it back, each on its own; costs are counted."""
        resources, devices = self.resources(parties, round), self.devices
        parts = np.stack([resources.transfer_seconds(down), resources.training_seconds(rows),
                          resources.transfer_seconds(up)])
        works = np.isfinite(parts.sum(axis=0))
        watts = np.array([devices.receive_watts, devices.compute_watts, devices.send_watts])
        self.totals.joules += float(watts @ parts[:, works].sum(axis=1))
        self.totals.cost += float(devices.price * (down + up) * works.sum() / 1e6)
        self.totals.chosen += len(parties)
        self.totals.lost += int((~works).sum())
        return np.asarray(parts.sum(axis=0), dtype=np.float64)

    def charge(self, parties: Parties, round: int, bytes_up: Floats) -> None:
        """Count something sent besides the exchange, while others train: it costs energy and money but no time."""
        seconds = self.resources(parties, round).transfer_seconds(bytes_up)
        self.totals.joules += float(self.devices.send_watts * seconds.sum())
        self.totals.cost += float(self.devices.price * bytes_up.sum() / 1e6)

    def reachable(self, parties: Parties) -> Parties:
        """Those of the parties that can be reached; where none can, time goes by until one can."""
        if self.schedule is None:
            return parties
        waited = 0.0
        while not (found := parties[self.schedule(parties, self.now)]).size:
            waited += _PATIENCE
            self.now += _PATIENCE
            if waited > LONGEST_WAIT:
                raise QuorumError(f"none of {len(parties)} eligible parties can be reached, nor was any in the "
                                  f"{LONGEST_WAIT / 86_400:.0f} virtual days after second {self.now - waited:.0f}",
                                  remedy="check [availability], or stop earlier with stop.virtual_seconds")
        self.totals.waited += waited
        return found

    def metrics(self, since: float = 0.0, earlier: Totals | None = None) -> dict[str, float]:
        """The state of the clock for a run's table; `since` and `earlier` are time and totals before the round."""
        totals, earlier = self.totals, earlier or Totals()
        row = {"clock.seconds": self.now, "clock.joules": totals.joules, "clock.cost": totals.cost,
               "clock.updates": totals.updates, "clock.late": totals.late, "clock.lost": totals.lost,
               "clock.waited": totals.waited, "clock.coverage": int(np.count_nonzero(self.counts)),
               "clock.rows_shared": totals.rows_shared, "clock.round_seconds": self.now - since,
               "clock.round_chosen": totals.chosen - earlier.chosen,
               "clock.round_updates": totals.updates - earlier.updates}
        return row | {f"clock.{name}": value for name, value in self.notes.items()}

    def to_plain(self) -> Payload:
        """For a checkpoint: time, totals, and how often each party's update was used."""
        seen = np.flatnonzero(self.counts)
        return {"now": self.now, "totals": dict(vars(self.totals)), "seen": seen, "counts": self.counts[seen]}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Back from a checkpoint."""
        self.now, self.totals = plain["now"], Totals(**plain["totals"])
        self.counts = np.zeros(len(self.sizes), dtype=np.int64)
        self.counts[plain["seen"]] = plain["counts"]

    def used(self, parties: Parties) -> None:
        """Note whose updates were used."""
        self.totals.updates += len(parties)
        np.add.at(self.counts, parties, 1)

    def _closing(self, ends: Floats, present: NDArray[np.bool_]) -> float:
        """When the exchange closes: enough answers, the deadline, or the last answer."""
        enough = ceil(self.devices.wait_for * len(ends) - 1e-9)
        finite = np.sort(ends[np.isfinite(ends)])
        deadline = self.devices.deadline or np.inf
        if len(finite) and len(finite) >= enough:
            return float(min(finite[enough - 1], deadline))
        if np.isfinite(deadline) and len(ends):
            return float(deadline)  # somebody is missing, and nobody knows that he will not come
        if len(finite) < int(present.sum()):
            raise ConfigError(f"{int(present.sum()) - len(finite)} of {len(ends)} parties would never finish: their "
                              "throughput or speed is 0, and no deadline ends the exchange",
                              remedy="set devices.deadline, or raise devices.throughput and devices.speed")
        return float(finite[-1]) if len(finite) else 0.0

    def _spend(self, departure: Departure, arrival: Arrival, upload: Floats, bytes_up: Floats,
               present: NDArray[np.bool_]) -> None:
        watts, totals, close = self.devices, self.totals, arrival.seconds
        listened = np.minimum(departure.distribution, close) * np.ones(len(present))
        trained = np.clip(close - departure.distribution, 0.0, departure.training)
        # Who vanishes does so somewhere in the middle of its training; on average that is half-way.
        trained = np.where(present, trained, trained / 2)
        sending = np.where(np.isfinite(upload), upload, 0.0)
        sent = np.where(present, np.clip(close - (arrival.ends - sending), 0.0, sending), 0.0)
        totals.joules += float((watts.receive_watts * listened + watts.compute_watts * trained
                                + watts.send_watts * sent).sum())
        sent_bytes = float(bytes_up[arrival.answered].sum())
        totals.cost += watts.price * (departure.bytes_down * len(present) + sent_bytes) / 1e6
        totals.chosen += len(present)
        totals.late += int(arrival.late.sum())
        totals.lost += int((~present).sum())
        self.used(arrival.parties[arrival.answered])


@dataclass(frozen=True)
class TimedAsk:
    """An ask under way: `working` are the parties that are worth running, as the others cannot answer in time."""

    clock: Clock
    departure: Departure
    present: NDArray[np.int64]
    working: NDArray[np.int64]

    @classmethod
    def begin(cls, clock: Clock, round: int, order: NDArray[np.int64], present: NDArray[np.int64], payload: Payload,
              each: Mapping[int, Payload] | None, local: LocalTraining | None) -> TimedAsk:
        """Send the payload out. What is sent to one party only is sent at the pace of the largest."""
        own = max((payloads.size(extra) for extra in each.values()), default=0) if each else 0
        rows = clock.rows(order, local)
        departure = clock.depart(order, round, payloads.size(payload) + own, rows)
        return cls(clock, departure, present, clock.hopeful(departure, present))

    def end(self, replies: Replies[R]) -> Replies[R]:
        """The replies that came in time; the clock moves on."""
        parties = self.departure.parties
        size = {reply.party: reply.bytes_up for reply in replies}
        # A party that could not be in time would have sent as much as the others.
        usual = float(np.median(list(size.values()))) if size else self.departure.bytes_down
        bytes_up = np.array([size.get(int(party), usual) for party in parties], dtype=np.float64)
        late = self.clock.too_slow(self.departure, self.present)
        arrival = self.clock.arrive(self.departure, bytes_up, np.isin(parties, list(size)) | late)
        in_time = set(arrival.parties[arrival.answered].tolist())
        missed = np.sort(arrival.parties[arrival.late])
        vanished = np.setdiff1d(self.present, np.concatenate([parties[late], self.working]))
        return replace(replies, answers=tuple(reply for reply in replies if reply.party in in_time),
                       dropped=tuple(sorted({*replies.dropped, *vanished.tolist()})),
                       late=tuple(int(party) for party in missed))
