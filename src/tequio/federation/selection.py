"""Selectors: which parties take part in a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import ConfigError, QuorumError
from tequio.federation.selectors.drawing import cohort_size
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Combined
    from tequio.federation.algorithm import Parts
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Learner


@dataclass(frozen=True)
class Turn:
    """A selector's turn in a round: all that it may look at. `memory` is what it gave back the last time.

    `eligible` are those that can be reached at this moment; `federation.eligible()` are all that ever may be chosen.
    It may ask the parties about the model (`federation.ask`), and judge models on `federation.validation`.
    """

    federation: Federation
    eligible: NDArray[np.int64]
    memory: Payload
    rng: np.random.Generator
    model: Payload = field(default_factory=dict)
    parts: Parts | None = None

    @property
    def learner(self) -> Learner:
        """The learner of the run, for selectors that judge models."""
        if self.parts is None or self.parts.learner is None:
            raise ConfigError("this selector judges models, and the run has no learner",
                              remedy="add a [learner] table to the config, or choose another selector")
        return cast("Learner", self.parts.learner)


@dataclass(frozen=True)
class Choice:
    """The parties of a round, and what the selector wants to remember for the next."""

    parties: NDArray[np.int64]
    memory: Payload = field(default_factory=dict)


@dataclass(frozen=True)
class Consequence:
    """What came of a choice: the replies, how they were aggregated, and the model after the round.

    `replies` hold each party's payload (`loss`, `rows`, `update`, as far as the algorithm's task sends them) and who
    dropped out or failed. `combined` is nothing where no reply came or nothing was aggregated.
    """

    replies: Replies
    model: Payload
    combined: Combined | None = None


@runtime_checkable
class Selector(Protocol):
    """Says which parties take part in a round. Its memory is handed in and out, so that it can be saved.

    One that never looks at anything that follows from the parties' rows may say by a class variable `sampling` how it
    draws: `poisson` (each on its own), `fixed-size` (without replacement), or `none` (as it likes).
    """

    def choose(self, turn: Turn) -> Choice:
        """Some of the eligible parties, in any order."""
        ...


@runtime_checkable
class Observing(Protocol):
    """A selector that learns from what came of its choice."""

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """What to remember after the round. In this turn `memory` is the choice's and `model` is still the old one."""
        ...


@register("selector", "all")
@dataclass(frozen=True)
class AllParties:
    """Every eligible party takes part in every round."""

    sampling: ClassVar[str] = "none"

    def choose(self, turn: Turn) -> Choice:
        """All of them."""
        return Choice(turn.eligible)


@register("selector", "random", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class RandomParties:
    """A uniform random sample without replacement, of a given number or fraction of the parties.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
    """

    count: Annotated[int, Ge(0)] = 0
    fraction: Annotated[float, Interval(gt=0, le=1)] = 1.0

    sampling: ClassVar[str] = "fixed-size"

    def choose(self, turn: Turn) -> Choice:
        """Draw the cohort; the cost depends on the cohort, not on the population."""
        eligible = turn.eligible
        wanted = cohort_size(turn, self.count, self.fraction)
        return Choice(eligible[np.sort(turn.rng.choice(len(eligible), size=wanted, replace=False, shuffle=False))])


@register("selector", "fixed")
@dataclass(frozen=True)
class FixedParties:
    """The same named parties in every round, as far as they are eligible.

    Parameters:
        parties: names of the parties
    """

    parties: tuple[str, ...] = ()

    sampling: ClassVar[str] = "none"

    def choose(self, turn: Turn) -> Choice:
        """The listed ones."""
        wanted = np.array([turn.federation.index(name) for name in self.parties], dtype=np.int64)
        chosen = np.intersect1d(wanted, turn.eligible)
        if not len(chosen):
            raise QuorumError("none of the parties that the selector names is eligible",
                              remedy="name other parties in selector.parties, or loosen the eligibility rules")
        return Choice(chosen)


