"""Stages: things done to an update on its way (clip, noise, compress, mask, encrypt, attack)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tequio.registry import contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.averaging import Weights
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays
    from tequio.privacy.mechanism import Mechanism

Form = Literal["model", "common", "own", "code", "bytes", "hidden"]
"""What an update looks like on its way: numbers in the model's shapes; fewer numbers that mean the same at every party;
numbers whose meaning differs from party to party; codes that stand for numbers; packed bytes; hidden numbers."""

NUMBERS: tuple[Form, ...] = ("model", "common")
"""Forms that can be added up across parties, entry by entry."""

NoisePlace = Literal["party", "coordinator", "sum"]
"""Where noise for privacy is added: at each party, at the coordinator, or at each party a share that is enough in a
hidden sum only."""


@dataclass(frozen=True)
class StageSpec:
    """What a stage needs from an update and what it gives. By this and its mechanism, stages are composed or refused.

    Parameters:
        takes: forms of an update that its party half can work on
        gives: the form that it leaves behind (empty: the one that it took)
        first: works on what the task made, before any other stage
        bounds: makes sure that an update is not longer than some bound
        stretches: may send an update that is longer than the one it was given
        adds_up: its coordinator half does the same to a weighted mean of updates as to each of them
        hides: after it the coordinator can read sums only; it is a `SummingStage`
        sums_in_groups: hides updates in groups, whose aggregators see single updates
        remembers: adds to an update what it left out of the party's last one
        proves: proves that an aggregate is the weighted sum of what was sent
        withholds: entries of a reply that it leaves out, because nothing protects them
        alone: does not say what it does to an update, so it is used without other stages
    """

    takes: tuple[Form, ...] = NUMBERS
    gives: Form | Literal[""] = ""
    first: bool = False
    bounds: bool = False
    stretches: bool = False
    adds_up: bool = True
    hides: bool = False
    sums_in_groups: bool = False
    remembers: bool = False
    proves: bool = False
    withholds: tuple[str, ...] = ()
    alone: bool = False


@contract("stage")
class Stage:
    """Works on what leaves a party and on what reaches the coordinator. A hook that is not overridden does nothing.

    In the order in which they run in a round:

    | hook             | where       | when                                                                  |
    |------------------|-------------|-----------------------------------------------------------------------|
    | `now`            | coordinator | before parties are asked: the stage as it stands, if it learns        |
    | `prepare`        | coordinator | before parties are asked: agree on keys, draw common places           |
    | `enter`          | party       | before the task                                                       |
    | `send`           | party       | after the task: change what is about to leave                         |
    | `receive`        | coordinator | before aggregation: undo or complete what the parties' halves did     |
    | `received`       | coordinator | before aggregation, after every stage's `receive`                     |
    | `transform_mean` | coordinator | after aggregation: what the algorithm gets instead of the mean        |
    | `after_aggregate`| coordinator | after aggregation: look at what went into it                          |
    """

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages; one that does not say is used alone."""
        return StageSpec(alone=True)

    @property
    def mechanism(self) -> Mechanism | None:
        """What the accounting reads of a stage that adds noise; nothing for one that adds none."""
        return None

    def now(self) -> Stage:
        """The stage as it stands at this moment; one that learns from round to round gives a copy with new settings."""
        return self

    def prepare(self, federation: Federation, parties: NDArray[np.int64]) -> None:
        """At the coordinator, before these parties are asked."""

    def enter(self, party: Party) -> None:
        """At the party, before the task."""

    def send(self, party: Party, payload: Payload) -> Payload:
        """At the party, after the task: what leaves instead of `payload`."""
        return payload

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """At the coordinator, before aggregation: what the replies stand for."""
        return replies

    def received(self, federation: Federation, replies: Replies) -> None:
        """At the coordinator, once all stages have received: look at the replies, for the record."""

    def transform_mean(self, federation: Federation, mean: Arrays, aggregated: Aggregated) -> Arrays:
        """At the coordinator, after aggregation: what the algorithm gets instead of the mean."""
        return mean

    def after_aggregate(self, federation: Federation, aggregated: Aggregated) -> None:
        """At the coordinator, after aggregation."""

    def claimed_rows(self, party: int, rows: int) -> int:
        """How many rows a party is taken to have: those that it reported, or more under a simulated attack."""
        return rows

    def capacity(self) -> SumCapacity | None:
        """What a hidden sum has to be sized for, where this stage fixes that."""
        return None


@dataclass(frozen=True)
class Summed:
    """What a summing stage found out: the weighted mean, whose updates are in it, and notes for the record.

    `whole` is the sum in whole numbers that the mean comes from, `ring` how they stand for numbers (bits, largest
    entry, parties asked), `shares` what each party's update was multiplied with, `extra_counts` the sum of the extra
    integers that each vector carried.
    """

    mean: NDArray[np.float64]
    parties: NDArray[np.int64]
    weight: float
    notes: Payload
    whole: NDArray[np.int64]
    ring: tuple[int, float, int]
    shares: NDArray[np.float64]
    extra_counts: NDArray[np.int64]


@dataclass(frozen=True)
class SumCapacity:
    """What a hidden sum is sized for, where neither its rounding nor its scale may depend on who came.

    At most `parties` parties, each of weight `weight` at most; with fewer than `fewest` nothing is read.
    """

    parties: int
    weight: float = 1.0
    fewest: int = 0


class SummingStage(Stage, ABC):
    """Keeps updates at the parties until their weights are known, and then finds out their weighted mean only."""

    weighed_by_parties: ClassVar[bool] = False
    """Whether each party decides itself what it weighs, so that numbers of rows need not leave it."""

    @property
    def ring(self) -> tuple[int, float] | None:
        """Bits and largest entry of the whole numbers that it adds; nothing where it adds numbers as they are."""
        return None

    @abstractmethod
    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, extra_counts: int = 0, capacity: SumCapacity | None = None, by: Weights = "size") -> Summed:
        """The weighted mean of what these parties hold under a name: vectors of `size` numbers.

        Each vector carries `extra_counts` extra integers, which are summed as they are. Without a capacity, parties
        weigh in shares of all that are asked. Where parties weigh themselves, it is `by` this rule, whatever `weights`
        are.
        """


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


Layout = list[tuple[str, str, list[int]]]
"""Names, types and shapes of an update's arrays: all that is needed to cut them out of one vector again."""

BUFFERS = "buffers"
"""Under this name a reply holds the change of arrays that are no weights, such as batch-norm statistics."""

MOVED = "moved by attack"
"""Under this name a hostile party's reply says how far the attack changed it: the distance between the forged update
and its own in lengths of its own, or the share of its training rows that are not its own, whichever is larger."""

COUNTED = "counted"
"""Under this name a reply has small whole numbers of which only the sum over all parties is wanted."""


SUMS = "sums"
"""Under this name a reply holds sums over rows, of which only the total over parties is wanted (`sum_over_rows`)."""


def vectors_in(payload: Payload) -> list[str]:
    """Names of a payload's entries that are updates: named arrays of floats."""
    return [name for name, value in payload.items() if isinstance(value, dict) and value and all(
        isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in value.values())]


def summing_stage(stages: Sequence[Stage]) -> SummingStage | None:
    """The stage that hides updates, if there is one."""
    return next((stage for stage in stages if isinstance(stage, SummingStage)), None)
