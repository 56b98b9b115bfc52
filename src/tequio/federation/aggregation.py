"""Aggregators: turn the updates of a cohort into one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tequio.federation.models import flatten, weighted_mean
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays

SUMMED = -1
"""Stands for the parties whose updates are known by their sum only."""


@dataclass(frozen=True)
class Updates:
    """What a cohort sent: one update a party, in party order, and how much each should weigh.

    `root` is the coordinator's own update on its own rows, for aggregators that ask for it by `root_rows`.
    """

    parties: NDArray[np.int64]
    arrays: Sequence[Arrays]
    weights: NDArray[np.float64]
    root: Arrays | None = None

    def __len__(self) -> int:
        return len(self.arrays)

    def matrix(self) -> NDArray[np.float64]:
        """One row a party, for aggregators that compare updates with each other."""
        return np.stack([flatten(update) for update in self.arrays])

    def part(self, positions: NDArray[Any]) -> Updates:
        """The updates at some positions."""
        return Updates(self.parties[positions], [self.arrays[index] for index in positions], self.weights[positions],
                       self.root)


@dataclass(frozen=True)
class Combined:
    """The aggregate, what the aggregator remembers for the next round, and notes for the record (trust scores).

    `updates` is what it was made of, filled in by `Algorithm.aggregate` for whoever judges the parties afterwards.
    """

    update: Arrays
    memory: Payload = field(default_factory=dict)
    notes: Payload = field(default_factory=dict)
    updates: Updates | None = None


@runtime_checkable
class Aggregator(Protocol):
    """Turns updates into one. `linear` says that aggregating groups first and then the groups gives the same."""

    linear: bool

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """The aggregate of at least one update."""
        ...


@register("aggregator", "mean", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class Mean:
    """The weighted mean of the updates."""

    linear = True

    def combine(self, updates: Updates, memory: Payload) -> Combined:
        """Sum of weight times update over the sum of weights."""
        return Combined(weighted_mean(updates.arrays, updates.weights))
