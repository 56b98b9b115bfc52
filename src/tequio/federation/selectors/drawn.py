"""Parties that each toss a coin of their own: the sampling that privacy accountants know best.

Random selection whose members upload in an order of their own.

Random parties with a fixed share for every group.

Parties one group after another: nobody twice before everybody once.

Eligibility filters in front of any selector.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tequio.errors import QuorumError
from tequio.federation.rng import stream
from tequio.federation.selection import (
    Choice,
    CohortSelector,
    Count,
    Fraction,
    Sampling,
    Selector,
    cohort_size,
    known_values,
)
from tequio.federation.selectors.by_deadline import clock_of, draw, expected
from tequio.registry import build, register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.selection import RoundOutcome, SelectionContext


@register("selector", "poisson", paper="Abadi et al., 2016")
@dataclass(frozen=True)
class PoissonParties(Selector):
    """Every eligible party takes part on its own with the same chance, so that cohorts differ in size.

    A round in which nobody takes part leaves the model as it is.

    Parameters:
        fraction: chance of each party to take part in a round
    """

    fraction: Fraction = 1.0

    sampling: ClassVar[Sampling | None] = "poisson"

    def choose(self, context: SelectionContext) -> Choice:
        """One coin a party."""
        return Choice(context.eligible[context.rng.random(len(context.eligible)) < self.fraction])

    def expected(self, parties: int) -> float:
        """The fraction of them, which need not be a whole number."""
        return float(self.fraction * parties)


@register("selector", "scheduled-random", paper="Nishio and Yonetani, 2019")
@dataclass(frozen=True)
class ScheduledRandom(CohortSelector):
    """A random sample of all parties, fast or slow, which upload one after another: the baseline on the clock.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded up
        order: they upload as they were drawn, or those first that finish training first
    """

    count: Count = 0
    fraction: Fraction = 0.1
    order: Literal["drawn", "finish"] = "drawn"

    def choose(self, context: SelectionContext) -> Choice:
        """Draw and put in order."""
        clock, parties = clock_of(context, "scheduled-random"), draw(context, self.count, self.fraction)
        if self.order == "drawn":
            return Choice(parties)
        return Choice(parties[np.argsort(expected(context, clock, parties).training, kind="stable")])


@register("selector", "stratified")
@dataclass(frozen=True)
class StratifiedParties(CohortSelector):
    """A random sample in which every group of parties has its share. Groups are the categories of the partition.

    Places that cannot be shared out evenly go to the groups with the largest remainders, ties at random; a group with
    fewer parties than places gives the rest to the others. Where the partition has no categories, there is one group.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        shares: groups get places in proportion to their parties, or all the same number
    """

    count: Count = 0
    fraction: Fraction = 0.1
    shares: Literal["proportional", "equal"] = "proportional"

    sampling: ClassVar[Sampling | None] = "none"

    def choose(self, context: SelectionContext) -> Choice:
        """Share out the places, then draw inside every group."""
        wanted, rng = cohort_size(context, self.count, self.fraction), context.rng
        groups = context.federation.groups[context.eligible]
        sizes = np.bincount(groups)
        places = shared_out(wanted, sizes, sizes if self.shares == "proportional" else (sizes > 0).astype(int), rng)
        members = np.argsort(groups.astype(np.min_scalar_type(len(sizes))), kind="stable")
        first = np.cumsum(sizes) - sizes
        chosen = [members[first[group] + rng.choice(sizes[group], places[group], replace=False, shuffle=False)]
                  for group in np.flatnonzero(places)]
        return Choice(context.eligible[np.sort(np.concatenate(chosen))] if chosen else context.eligible[:0])


def shared_out(places: int, room: NDArray[np.int64], weights: NDArray[np.int64],
               rng: np.random.Generator) -> NDArray[np.int64]:
    """Places for each group by weight, none more than it has room for; largest remainders get what is left over."""
    given, still = np.zeros(len(room), dtype=np.int64), np.where(room > 0, weights, 0)
    while still.any():
        exact = (places - given.sum()) * still / still.sum()
        full = (still > 0) & (exact >= room)
        if not full.any():
            given += np.floor(exact).astype(np.int64)
            order = np.lexsort((rng.random(len(room)), np.floor(exact) - exact))
            given[order[:places - given.sum()]] += 1
            break
        given[full], still = room[full], np.where(full, 0, still)
    return given


@register("selector", "in-turn", paper="Kairouz et al., 2021")
@dataclass(frozen=True)
class InTurn(CohortSelector):
    """Parties in an order that is drawn once, so many a round; a party that is away misses its turn.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
    """

    count: Count = 0
    fraction: Fraction = 1.0

    sampling: ClassVar[Sampling | None] = "none"

    def choose(self, context: SelectionContext) -> Choice:
        """Those whose turn it is, if they can be reached."""
        federation = context.federation
        everybody = replace(context, eligible=federation.eligible())
        groups = self.groups(federation, cohort_size(everybody, self.count, self.fraction))
        return Choice(np.intersect1d(groups[(max(federation.round, 1) - 1) % len(groups)], context.eligible))

    def groups(self, federation: Federation, size: int) -> list[NDArray[np.int64]]:
        """All that may ever be chosen, in groups of that size; the last one may be smaller."""
        order = stream(federation.seed, "turns").permutation(federation.eligible())
        return np.split(order, np.arange(size, len(order), size))


@register("selector", "filtered", example='[selector]\nname = "filtered"\nrest = 2\n'
                                          'selector = {name = "random", count = 2}\n')
@dataclass(frozen=True)
class FilteredParties(Selector):
    """Keeps some parties out of a round and leaves the choice among the rest to another selector.

    Parameters:
        selector: the other selector: a table with its name and parameters
        without: names of parties that are never chosen
        fewest_rows: parties with fewer rows are not chosen
        most_rows: parties with more rows are not chosen (0: no bound)
        rest: rounds that a party sits out after it was chosen
        most_rounds: a party is chosen at most so often (0: no bound)
    """

    selector: dict[str, Any] = field(default_factory=lambda: {"name": "random"})
    without: tuple[str, ...] = ()
    fewest_rows: Count = 0
    most_rows: Count = 0
    rest: Count = 0
    most_rounds: Count = 0

    def choose(self, context: SelectionContext) -> Choice:
        """What the other selector chooses from those that pass."""
        last, times = known_values(context, "last", -np.inf), known_values(context, "times", 0.0)
        passing = self._passing(context, last, times)
        if not len(passing) and len(context.eligible):
            raise QuorumError(f"the filters leave nobody to choose in round {context.federation.round}",
                              remedy="loosen the filters of the selector 'filtered'")
        choice = self._inner.choose(replace(context, eligible=passing, memory=context.memory.get("inner", {})))
        last[choice.parties] = context.federation.round
        times[choice.parties] += 1
        kept = {"last": last, "times": times} if self.rest or self.most_rounds else {}
        return Choice(choice.parties, {"inner": choice.memory, **kept})

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Pass on to the other selector what came of its choice."""
        inner = self._inner
        if not inner.observes:
            return context.memory
        return {**context.memory, "inner": inner.observe(replace(context, memory=context.memory["inner"]), outcome)}

    @property
    def observes(self) -> bool:
        """If the other selector does."""
        return self._inner.observes

    @property
    def _inner(self) -> Selector:
        table = dict(self.selector)
        selector: Selector = build("selector", table.pop("name", ""), table, where="selector.selector")
        return selector

    def _passing(self, context: SelectionContext, last: NDArray[np.float64],
                 times: NDArray[np.float64]) -> NDArray[np.int64]:
        rows = context.federation.sizes[context.eligible]
        passes = (rows >= self.fewest_rows) & (rows <= (self.most_rows or np.inf))
        passes &= ~np.isin(context.eligible, [context.federation.index(name) for name in self.without])
        passes &= context.federation.round - last[context.eligible] > self.rest
        if self.most_rounds:
            passes &= times[context.eligible] < self.most_rounds
        passing: NDArray[np.int64] = context.eligible[passes]
        return passing
