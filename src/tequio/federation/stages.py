"""Stages: things done to an update on its way (clip, noise, compress, mask, encrypt, attack)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays

Form = Literal["model", "common", "own", "code", "bytes", "hidden"]
"""What an update looks like on its way: numbers in the model's shapes; fewer numbers that mean the same at every party;
numbers whose meaning differs from party to party; codes that stand for numbers; packed bytes; hidden numbers."""

NUMBERS: tuple[Form, ...] = ("model", "common")
"""Forms that can be added up across parties, entry by entry."""


@dataclass(frozen=True)
class Trait:
    """What a stage needs from an update and what it gives. By this alone stages are composed or refused.

    Parameters:
        takes: forms of an update that its party half can work on
        gives: the form that it leaves behind (empty: the one that it took)
        first: works on what the task made, before any other stage
        bounds: makes sure that an update is not longer than some bound
        noise: adds noise for privacy at the party, at the coordinator, or at each party a share that only their hidden
            sum makes enough of (sum)
        stretches: may send an update that is longer than the one it was given
        adds_up: its coordinator half does the same to a weighted mean of updates as to each of them
        hides: after it the coordinator can read sums only; it is a `SummingStage`
        proves: proves that an aggregate is the weighted sum of what was sent
    """

    takes: tuple[Form, ...] = NUMBERS
    gives: Form | Literal[""] = ""
    first: bool = False
    bounds: bool = False
    noise: Literal["", "party", "coordinator", "sum"] = ""
    stretches: bool = False
    adds_up: bool = True
    hides: bool = False
    proves: bool = False


@runtime_checkable
class Stage(Protocol):
    """Has a half that runs at the party, after the task, and one that runs at the coordinator, before aggregation.

    A stage may also have `enter(party)`, which runs at the party before the task, `prepare(federation, parties)`, which
    runs at the coordinator before the parties are asked, `complete(federation, mean, aggregated)`, which gives what the
    algorithm is told instead of a mean, `conclude(federation, aggregated)`, which runs at the coordinator after an
    aggregation, `room()`, which says what a hidden sum has to have room for, and `now()`, which gives the stage as it
    stands at the moment of an ask, for stages that learn from round to round. Its `trait`, an attribute or property,
    says how it goes with other stages; one that has none can only be used alone.
    """

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party: change what is about to leave."""
        ...

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator: undo or complete what the parties' halves did."""
        ...


@dataclass(frozen=True)
class Summed:
    """What a summing stage found out: the weighted mean, whose updates are in it, and notes for the record.

    `whole` is the sum in whole numbers that the mean comes from, `ring` how they stand for numbers (bits, largest
    entry, parties asked), `shares` what each party's update was multiplied with, `riders` the sum of what rode along.
    """

    mean: NDArray[np.float64]
    parties: NDArray[np.int64]
    weight: float
    notes: Payload
    whole: NDArray[np.int64]
    ring: tuple[int, float, int]
    shares: NDArray[np.float64]
    riders: NDArray[np.int64]


@dataclass(frozen=True)
class Room:
    """What a hidden sum has room for, where neither its rounding nor its scale may depend on who came.

    At most so many parties, each of at most so much weight; below `fewest` of them nothing is to be read.
    """

    parties: int
    weight: float = 1.0
    fewest: int = 0

    def shares(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each party's update is multiplied with, whoever else is there."""
        if len(weights) > self.parties or weights.max() > self.weight:
            raise DataError(f"{len(weights)} parties of a weight of up to {weights.max():g} came to a sum that has "
                            f"room for {self.parties} of {self.weight:g}")
        return weights / (self.weight * self.parties)


@runtime_checkable
class SummingStage(Stage, Protocol):
    """Keeps updates at the parties until their weights are known, and then finds out their weighted mean only."""

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, riders: int = 0, room: Room | None = None) -> Summed:
        """The weighted mean of what these parties hold under a name: vectors of so many numbers.

        So many riders, small whole numbers that are summed as they are, come along with each. Without a room, parties
        weigh in shares of all that are asked.
        """
        ...


@dataclass(frozen=True)
class Aggregated:
    """What went into an aggregate: whose updates, with which shares, how much they weigh together, and the updates
    themselves or their hidden sum."""

    name: str
    replies: Replies
    parties: NDArray[np.int64]
    shares: NDArray[np.float64]
    weight: float
    updates: Sequence[Arrays] = ()
    summed: Summed | None = None


COUNTED = "counted"
"""Under this name a reply has small whole numbers of which only the sum over all parties is wanted."""


def vectors_in(payload: Payload) -> list[str]:
    """Names of a payload's entries that are updates: named arrays of floats."""
    return [name for name, value in payload.items() if isinstance(value, dict) and value and all(
        isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in value.values())]


def summing_stage(stages: tuple[Stage, ...]) -> SummingStage | None:
    """The stage that hides updates, if there is one."""
    return next((stage for stage in stages if isinstance(stage, SummingStage)), None)


def as_of_now(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages as they stand at this moment; most never change."""
    return tuple(stage.now() if hasattr(stage, "now") else stage for stage in stages)
