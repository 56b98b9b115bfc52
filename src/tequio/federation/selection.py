"""Selectors: which parties take part in a round.

How many parties, and which: what selectors that draw or rank share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import ConfigError, QuorumError
from tequio.learners.learner import Learner
from tequio.registry import contract, register

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.aggregation import Combined
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import LocalTraining, Scorer

Sampling = Literal["none", "poisson", "fixed-size"]


@dataclass(frozen=True)
class SelectionContext:
    """All that a selector may look at in a round. `memory` is what it gave back the last time.

    `eligible` are those that can be reached at this moment; `federation.eligible()` are all that ever may be chosen.
    It may ask the parties about the model (`federation.ask`), and judge models on `federation.validation`.
    """

    federation: Federation
    eligible: NDArray[np.int64]
    memory: Payload
    rng: np.random.Generator
    model: Payload = field(default_factory=dict)
    scorer: Scorer | None = None
    local: LocalTraining | None = None

    @property
    def learner(self) -> Learner:
        """The learner of the run, for selectors that judge models."""
        if not isinstance(self.scorer, Learner):
            raise ConfigError("this selector judges models that are trained, and the run's learner has none",
                              remedy="set selector.name = 'random'")
        return self.scorer


@dataclass(frozen=True)
class Choice:
    """The parties of a round, and what the selector wants to remember for the next."""

    parties: NDArray[np.int64]
    memory: Payload = field(default_factory=dict)


@dataclass(frozen=True)
class RoundOutcome:
    """What came of a choice: the replies, how they were aggregated, and the model after the round.

    `replies` hold each party's payload (`loss`, `rows`, `update`, where the algorithm's task sends them) and who
    dropped out or failed. `combined` is nothing where no reply came or nothing was aggregated.
    """

    replies: Replies[Any]
    model: Payload
    combined: Combined | None = None


@contract("selector")
class Selector(ABC):
    """Says which parties take part in a round. Its memory is handed in and out, so that it can be saved."""

    sampling: ClassVar[Sampling | None] = None
    """How it draws, if it never looks at anything that follows from the parties' rows: `poisson` (each on its own),
    `fixed-size` (without replacement), or `none` (not at random)."""

    looks_at_updates: ClassVar[bool] = False
    """Whether what it learns from are single parties' updates."""

    @property
    def observes(self) -> bool:
        """Whether it learns from what came of its choice."""
        return type(self).observe is not Selector.observe

    def forgets(self, parties: int, absent: int) -> bool:
        """Whether each round is a draw of its own that gives `parties` the same chances if `absent` more of them may be
        drawn, and are not."""
        return self.sampling == "poisson" or (
            self.sampling == "fixed-size" and self.expected(parties + absent) == self.expected(parties))

    @abstractmethod
    def choose(self, context: SelectionContext) -> Choice:
        """Some of the eligible parties, in any order."""

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """What to remember after the round. Here `memory` is the choice's, and `model` is still the old one."""
        return context.memory

    def expected(self, parties: int) -> float:
        """How many of so many eligible parties a round expects."""
        return float(parties)


class CohortSelector(Selector):
    """Chooses a number of parties, or (0) a fraction of the eligible ones."""

    count: int
    fraction: float

    def expected(self, parties: int) -> float:
        """The count, or the fraction of them."""
        return float(self.count or max(1, round(self.fraction * parties)))


@register("selector", "all")
@dataclass(frozen=True)
class AllParties(Selector):
    """Every eligible party takes part in every round."""

    sampling: ClassVar[Sampling | None] = "none"

    def choose(self, context: SelectionContext) -> Choice:
        """All of them."""
        return Choice(context.eligible)


@register("selector", "random", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class RandomParties(CohortSelector):
    """A uniform random sample without replacement, of a given number or fraction of the parties.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
    """

    count: Annotated[int, Ge(0)] = 0
    fraction: Annotated[float, Interval(gt=0, le=1)] = 1.0

    sampling: ClassVar[Sampling | None] = "fixed-size"

    def choose(self, context: SelectionContext) -> Choice:
        """Draw the cohort; the cost depends on the cohort, not on the population."""
        eligible = context.eligible
        wanted = cohort_size(context, self.count, self.fraction)
        return Choice(eligible[np.sort(context.rng.choice(len(eligible), size=wanted, replace=False, shuffle=False))])


@register("selector", "fixed")
@dataclass(frozen=True)
class FixedParties(Selector):
    """The same named parties in every round, as far as they are eligible.

    Parameters:
        parties: names of the parties
    """

    parties: tuple[str, ...] = ()

    sampling: ClassVar[Sampling | None] = "none"

    def choose(self, context: SelectionContext) -> Choice:
        """The listed ones."""
        wanted = np.array([context.federation.index(name) for name in self.parties], dtype=np.int64)
        chosen = np.intersect1d(wanted, context.eligible)
        if not len(chosen):
            raise QuorumError("none of the parties that the selector names is eligible",
                              remedy="name other parties in selector.parties, or loosen the eligibility rules")
        return Choice(chosen)

    def expected(self, parties: int) -> float:
        """As many as are listed."""
        return float(len(self.parties))


Count = Annotated[int, Ge(0)]
Fraction = Annotated[float, Interval(gt=0, le=1)]
Share = Annotated[float, Interval(ge=0, le=1)]


def cohort_size(context: SelectionContext, count: int, fraction: float) -> int:
    """How many parties to choose: the count, or (0) a fraction of all; as many as there are where some are away."""
    most = len(context.federation.eligible())
    if count > most:
        raise ConfigError(f"the selector wants {count} parties a round but only {most} are eligible",
                          remedy="lower selector.count, or loosen the eligibility rules")
    return min(count or max(1, round(fraction * most)), len(context.eligible))


def draw_by_weight(log_weights: ArrayLike, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places drawn one after another without replacement, each with chances in proportion to exp(log weight).

    A log weight of minus infinity is never drawn while there are others. The largest of the log weights after adding
    Gumbel noise are such a draw, and never overflow.
    """
    keys = np.asarray(log_weights, dtype=np.float64) + rng.gumbel(size=np.shape(log_weights))
    return top_places(keys, count, rng)


def top_places(values: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places of the largest values, in ascending order; ties are broken at random."""
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    shuffled = rng.permutation(len(values))
    best = np.argpartition(-values[shuffled], min(count, len(values)) - 1)[:count]
    return np.sort(shuffled[best])


def known_values(context: SelectionContext, name: str, unknown: float) -> NDArray[np.float64]:
    """A number for every party of the federation from the selector's memory; `unknown` before anything is known."""
    kept = context.memory.get(name)
    return np.full(len(context.federation), unknown) if kept is None else np.array(kept, dtype=np.float64)
