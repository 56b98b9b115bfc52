"""Devices: how fast parties compute and send in a round, and what that costs them.

Nishio, Yonetani: Client selection for federated learning with heterogeneous resources in mobile edge, ICC 2019.
Yoshida, Nishio, Morikura, Yamamoto, Yonetani: Hybrid-FL for wireless networks, ICC 2020.

When a party can be reached. Schedules answer for any parties and any moment without remembering anything.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Gt, Interval
from numpy.typing import NDArray

from tequio.errors import DataError
from tequio.federation.rng import truncated_normal, uniform
from tequio.registry import register

if TYPE_CHECKING:

    from tequio.federation.population import Population


NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]

BITS_A_MEGABIT = 1e6


@dataclass(frozen=True)
class Resources:
    """What some parties have in a round: bits a second on their link, rows a second in training."""

    throughput: NDArray[np.float64]
    speed: NDArray[np.float64]

    def transfer_seconds(self, size: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """How long so many bytes take each party; for ever where nothing gets through."""
        return _ratio(8.0 * np.asarray(size), self.throughput)

    def training_seconds(self, rows: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """How long so many rows (passes counted) take each party."""
        return _ratio(np.asarray(rows), self.speed)


@register("devices", "instant")
@dataclass(frozen=True)
class Instant:
    """Nothing takes virtual time: the run has no clock."""


@register("devices", "mobile", paper="Nishio and Yonetani, 2019; Yoshida et al., 2020")
@dataclass(frozen=True)
class Mobile:
    """Devices with a mean throughput and speed of their own that fluctuate from round to round.

    Means are drawn once a party, uniformly between the two values. In each round both vary around the mean by a
    truncated normal. The model is multicast at the pace of the slowest, training is parallel, and uploads share one
    channel (sequential) or not. Devices of your own derive from this class and override `resources`.

    Parameters:
        throughput: lowest and highest mean throughput, in Mbit a second
        speed: lowest and highest mean speed of training, in rows a second
        deviation: standard deviation of a round's value, as a share of the party's mean
        variation: a round's value is never further from the mean than this share of it
        uploads: one after another, or all at once
        upload_order: uploads in the order that the selector chose, or by the party's number
        deadline: an exchange closes after so many seconds, and who is not done is left out (0: never)
        wait_for: an exchange closes when this share of the asked parties has answered
        share_rows: share of the parties whose settings allow methods such as HybridFL to take rows away
        compute_watts: power drawn while training
        send_watts: power drawn while sending
        receive_watts: power drawn while receiving
        price: what a megabyte costs, in any currency
    """

    throughput: tuple[NotNegative, NotNegative] = (1.4, 1.4)
    speed: tuple[NotNegative, NotNegative] = (10.0, 100.0)
    deviation: NotNegative = 0.1
    variation: Annotated[float, Interval(ge=0, lt=1)] = 0.2
    uploads: Literal["sequential", "parallel"] = "sequential"
    upload_order: Literal["chosen", "party"] = "chosen"
    deadline: NotNegative = 0.0
    wait_for: Annotated[float, Gt(0), Interval(le=1)] = 1.0
    share_rows: Share = 0.0
    compute_watts: NotNegative = 2.0
    send_watts: NotNegative = 1.2
    receive_watts: NotNegative = 0.8
    price: NotNegative = 0.0

    def resources(self, seed: int, round: int, parties: NDArray[np.int64], purpose: str = "") -> Resources:
        """Each party's mean, varied for this round."""
        return Resources(self._drawn("throughput", self.throughput, seed, round, parties, purpose) * BITS_A_MEGABIT,
                         self._drawn("speed", self.speed, seed, round, parties, purpose))

    def _drawn(self, what: str, bounds: tuple[float, float], seed: int, round: int, parties: NDArray[np.int64],
               purpose: str) -> NDArray[np.float64]:
        low, high = bounds
        mean = low + (high - low) * uniform(seed, f"mean {what}", 0, parties)
        change = truncated_normal(uniform(seed, f"{what}{purpose}", round, parties), self.deviation, self.variation)
        found: NDArray[np.float64] = mean * (1.0 + change)
        return found


def consenting(devices: Mobile, seed: int, parties: int) -> NDArray[np.int64]:
    """The parties whose simulated owners let rows go; drawn once a party."""
    if not devices.share_rows:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(uniform(seed, "share rows", 0, np.arange(parties)) < devices.share_rows)


def _ratio(amount: NDArray[np.float64], rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """amount / rate; nothing takes no time even at rate 0, anything else then takes for ever."""
    amount = np.broadcast_to(amount, rate.shape).astype(np.float64)
    return np.divide(amount, rate, out=np.where(amount > 0, np.inf, 0.0), where=rate > 0)


Schedule = Callable[[NDArray[np.int64], float], NDArray[np.bool_]]
"""Which of some parties can be reached at a moment (virtual seconds since the start)."""

DAY = 86_400.0


@runtime_checkable
class Availability(Protocol):
    """When parties can be reached."""

    def schedule(self, population: Population, seed: int) -> Schedule | None:
        """The schedule of these parties; none where all of them can be reached at any moment."""
        ...


@register("availability", "always")
@dataclass(frozen=True)
class Always:
    """Every party can be reached at any moment."""

    def schedule(self, population: Population, seed: int) -> Schedule | None:
        """No schedule is needed."""
        return None


@register("availability", "diurnal")
@dataclass(frozen=True)
class Diurnal:
    """Each party is reachable for a part of every day, such as the night, at hours that depend on where it is.

    Parameters:
        hours: how long a party can be reached every day
        start: hour of its own day at which that begins
        zones: over how many hours the parties' time zones are spread, evenly at random
        jitter: a party's hours shift by up to so many hours, early or late, anew every day
    """

    hours: Annotated[float, Interval(gt=0, le=24)] = 8.0
    start: Annotated[float, Interval(ge=0, lt=24)] = 22.0
    zones: Annotated[float, Interval(ge=0, le=24)] = 0.0
    jitter: Annotated[float, Interval(ge=0, le=12)] = 0.0

    def schedule(self, population: Population, seed: int) -> Schedule:
        """Local time within the party's hours of that day, or of the day before where they run past midnight."""
        def reachable(parties: NDArray[np.int64], seconds: float) -> NDArray[np.bool_]:
            local = seconds / 3600.0 + self.zones * uniform(seed, "time zone", 0, parties)
            found = np.zeros(len(parties), dtype=bool)
            # A window that began up to two local days ago may still be open, and jitter can open the next one early.
            first = int((seconds // DAY) - 2)
            for day in range(first, first + 5):
                shift = self.jitter * (2 * uniform(seed, "hours of the day", day, parties) - 1)
                since = local - (24.0 * day + self.start + shift)
                found |= (since >= 0) & (since < self.hours)
            return found

        return reachable


@register("availability", "markov")
@dataclass(frozen=True)
class Markov:
    """Each party switches between reachable and not at random, with given mean stretches of both.

    Parameters:
        on_seconds: mean length of a stretch in which it can be reached
        off_seconds: mean length of a stretch in which it cannot
    """

    on_seconds: Annotated[float, Gt(0)] = 3600.0
    off_seconds: Annotated[float, Gt(0)] = 3600.0

    def schedule(self, population: Population, seed: int) -> Schedule:
        """The state at the latest refresh before that moment.

        A chain of two states is the same as one that forgets itself at a constant rate and is then drawn afresh, so the
        state at any moment follows from the draws of a few time slots before it, without walking there.
        """
        on = self.on_seconds / (self.on_seconds + self.off_seconds)
        slot_seconds = 1.0 / (1.0 / self.on_seconds + 1.0 / self.off_seconds)
        kept = float(np.exp(-1.0))

        def reachable(parties: NDArray[np.int64], seconds: float) -> NDArray[np.bool_]:
            found = np.zeros(len(parties), dtype=bool)
            open_places, slot = np.arange(len(parties)), int(seconds // slot_seconds)
            while len(open_places):
                drawn = uniform(seed, "reachable", slot, parties[open_places])
                refreshed = (drawn >= kept) | (slot <= 0)
                # What is left of the draw after deciding the refresh is as uniform as a fresh one.
                rest = np.where(drawn >= kept, (drawn - kept) / (1.0 - kept), drawn / kept)
                found[open_places[refreshed]] = rest[refreshed] < on
                open_places, slot = open_places[~refreshed], slot - 1
            return found

        return reachable


@register("availability", "trace")
@dataclass(frozen=True)
class Trace:
    """When each party can be reached comes from a CSV file with the columns party, start and end (seconds).

    A party that the file does not name can never be reached.

    Parameters:
        path: the file, looked for beside the config first
        period: the trace repeats after so many seconds (0: it does not)
    """

    path: str
    period: Annotated[float, Ge(0)] = 0.0

    def schedule(self, population: Population, seed: int) -> Schedule:
        """Whether some stretch of the party holds the moment."""
        owners, starts, ends = _stretches(Path(self.path), population)

        def reachable(parties: NDArray[np.int64], seconds: float) -> NDArray[np.bool_]:
            moment = seconds % self.period if self.period else seconds
            return np.isin(parties, owners[(starts <= moment) & (moment < ends)])

        return reachable


def _stretches(path: Path, population: Population) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Owner, start and end of every stretch in a trace file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except OSError as cause:
        raise DataError(f"the trace '{path}' cannot be read: {cause.strerror or cause}",
                        remedy="check availability.path") from cause
    owners, starts, ends = [], [], []
    for number, line in enumerate(lines, start=2):
        try:
            owners.append(population.index(line["party"]))
            starts.append(float(line["start"]))
            ends.append(float(line["end"]))
        except (KeyError, TypeError, ValueError) as cause:
            raise DataError(f"line {number} of the trace '{path}' is not a stretch: {cause!r}",
                            remedy="write the columns party, start and end, in seconds") from None
    return np.array(owners, dtype=np.int64), np.array(starts), np.array(ends)
