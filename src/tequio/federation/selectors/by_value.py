"""What the selectors that value parties by Shapley values of their updates share.

GreedyFed: the parties with the largest mean Shapley values.

Singhal, Pandey, Popovski: Greedy Shapley client selection for communication-efficient federated learning, 2024.

At first everybody is tried once, in random order. Later the parties with the largest means over their own rounds are
chosen; exploration is implicit, because values fall as the model gets better and others overtake. For the same reason
parties tried early, when every update helps a lot, keep an advantage: `relative` divides a round's values by its gain.

Upper confidence bounds on Shapley values.

Auer, Cesa-Bianchi, Fischer: Finite-time analysis of the multiarmed bandit problem, 2002: a party is chosen for the mean
of its values plus exploration * sqrt(ln t / its rounds), t being the round. Parties that never answered have an
infinite bound.

S-FedAvg: parties drawn by the relevance that Shapley values give them.

Nagalapatti, Narayanam: Game of gradients: mitigating irrelevant clients in federated learning, AAAI 2021.

A party's relevance starts at one over the number of parties and moves to keep * relevance + (1 - keep) * value when it
takes part; parties are drawn with chances in proportion to exp(sharpness * relevance). The paper's utility is accuracy
on the coordinator's rows and its sharpness 1; here the utility is minus the mean loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from tequio.federation.contributions import GTGShapley, score_round
from tequio.federation.selection import (
    Choice,
    CohortSelector,
    Count,
    Fraction,
    Share,
    cohort_size,
    draw_by_weight,
    known_values,
    top_places,
)
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.contributions import Contribution, ScoredRound
    from tequio.federation.payload import Payload
    from tequio.federation.selection import RoundOutcome, SelectionContext



@dataclass(frozen=True)
class Values:
    """Each party's mean value over the rounds that it took part in, and how many these are."""

    means: NDArray[np.float64]
    rounds: NDArray[np.float64]

    @classmethod
    def known(cls, context: SelectionContext) -> Values:
        """What the selector remembers; nothing at first."""
        return cls(known_values(context, "means", 0.0), known_values(context, "rounds", 0.0))

    def to_memory(self) -> Payload:
        """For the selector's memory."""
        return {"means": self.means, "rounds": self.rounds}


def with_round(context: SelectionContext, outcome: RoundOutcome, contribution: Contribution, *,
               relative: bool = False) -> Values:
    """The values after a round: running means over each party's own rounds; relative ones are shares of the gain."""
    values, scored = Values.known(context), score_round(context, outcome, contribution)
    if scored is not None:
        parties, scores = scored.parties, _shares(scored) if relative else scored.scores
        values.rounds[parties] += 1
        values.means[parties] += (scores - values.means[parties]) / values.rounds[parties]
    return values


def _shares(scored: ScoredRound) -> NDArray[np.float64]:
    """Scores over the size of what the round gained or lost, so that helping is above zero either way."""
    return scored.scores / abs(scored.gain) if scored.scores.any() else scored.scores


@register("selector", "greedyfed", paper="Singhal et al., 2024")
@dataclass(frozen=True)
class GreedyFed(CohortSelector):
    """Everybody is tried once; then the parties whose updates helped most on the coordinator's validation rows.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        truncation: changes in utility below this count as none
        permutations: most permutations of the estimate, times the number of parties
        relative: value an update by its share in what the round gained, so that early rounds count no more than late
        enumerate: take exact Shapley values where there are no more coalitions than permutations would visit; false
            samples permutations for a cohort of any size, as the source does
    """

    looks_at_updates: ClassVar[bool] = True

    count: Count = 0
    fraction: Fraction = 0.1
    truncation: Annotated[float, Ge(0)] = 1e-4
    permutations: Annotated[int, Ge(1)] = 30
    relative: bool = False
    enumerate: bool = True

    def choose(self, context: SelectionContext) -> Choice:
        """The next untried parties, filled up with tried ones; when all were tried, the best."""
        order = context.memory.get("order")
        order = context.rng.permutation(len(context.federation)) if order is None else np.array(order)
        tried = np.array(context.memory.get("tried", np.zeros(len(context.federation), dtype=bool)))
        wanted = cohort_size(context, self.count, self.fraction)
        waiting = context.eligible[~tried[context.eligible]]
        chosen = waiting[np.argsort(order[waiting])[:wanted]]
        if not len(waiting):
            chosen = self._best(context, wanted)
        elif len(chosen) < wanted:
            explored = context.eligible[tried[context.eligible]]
            chosen = np.append(chosen, context.rng.choice(explored, wanted - len(chosen), replace=False))
        tried[chosen] = True
        return Choice(np.sort(chosen), {"order": order, "tried": tried, **Values.known(context).to_memory()})

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Value the updates of those who answered."""
        how = GTGShapley(self.truncation, self.permutations, enumerate=self.enumerate)
        return {**context.memory, **with_round(context, outcome, how, relative=self.relative).to_memory()}

    def _best(self, context: SelectionContext, wanted: int) -> NDArray[np.int64]:
        """The largest means. Parties that were tried and never answered come after all others."""
        values = Values.known(context)
        means = np.where(values.rounds > 0, values.means, -np.inf)[context.eligible]
        best: NDArray[np.int64] = context.eligible[top_places(means, wanted, context.rng)]
        return best


@register("selector", "ucb", paper="Auer et al., 2002")
@dataclass(frozen=True)
class UpperConfidence(CohortSelector):
    """Parties whose updates helped most, with a bonus for those that have rarely been tried.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        exploration: weight of the bonus; values are changes of the mean loss, often far below 1, so that with a weight
            of 1 parties are almost visited in context
    """

    looks_at_updates: ClassVar[bool] = True

    count: Count = 0
    fraction: Fraction = 0.1
    exploration: Annotated[float, Ge(0)] = 1.0

    def choose(self, context: SelectionContext) -> Choice:
        """The largest upper bounds."""
        values = Values.known(context)
        bounds = self.bounds(values, context.federation.round)[context.eligible]
        places = top_places(bounds, cohort_size(context, self.count, self.fraction), context.rng)
        return Choice(context.eligible[places], values.to_memory())

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Value the updates of those who answered."""
        return with_round(context, outcome, GTGShapley()).to_memory()

    def bounds(self, values: Values, round: int) -> NDArray[np.float64]:
        """Mean plus bonus; infinite for parties not valued yet."""
        tried = values.rounds > 0
        bonus = self.exploration * np.sqrt(log(max(round, 1)) / np.maximum(values.rounds, 1))
        return np.where(tried, values.means + bonus, np.inf)


@register("selector", "s-fedavg", paper="Nagalapatti and Narayanam, 2021")
@dataclass(frozen=True)
class SFedAvg(CohortSelector):
    """Parties drawn by a softmax over how much their updates have helped.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        keep: how much of its old relevance a party keeps when it takes part
        sharpness: how much chances follow relevance (0: not at all)
    """

    looks_at_updates: ClassVar[bool] = True

    count: Count = 0
    fraction: Fraction = 0.1
    keep: Share = 0.75
    sharpness: Annotated[float, Ge(0)] = 1.0

    def choose(self, context: SelectionContext) -> Choice:
        """Draw without replacement."""
        relevance = known_values(context, "relevance", 1 / len(context.federation))
        wanted = cohort_size(context, self.count, self.fraction)
        places = draw_by_weight(self.sharpness * relevance[context.eligible], wanted, context.rng)
        return Choice(context.eligible[places], {"relevance": relevance})

    def observe(self, context: SelectionContext, outcome: RoundOutcome) -> Payload:
        """Move the relevance of those who answered towards the value of their update."""
        relevance = known_values(context, "relevance", 1 / len(context.federation))
        scored = score_round(context, outcome, GTGShapley())
        if scored is not None:
            relevance[scored.parties] *= self.keep
            relevance[scored.parties] += (1 - self.keep) * scored.scores
        return {"relevance": relevance}
