"""S-FedAvg: parties drawn by the relevance that Shapley values give them.

Nagalapatti, Narayanam: Game of gradients: mitigating irrelevant clients in federated learning, AAAI 2021.

A party's relevance starts at one over the number of parties and moves to keep * relevance + (1 - keep) * value when it
takes part; parties are drawn with chances in proportion to exp(sharpness * relevance). The paper's utility is accuracy
on the coordinator's rows and its sharpness 1; here the utility is minus the mean loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from tequio.federation.contribution.gtg import GTGShapley
from tequio.federation.contribution.scoring import score_round
from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import Count, Fraction, Share, cohort_size, draw_by_weight, known_values
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.payload import Payload
    from tequio.federation.selection import Consequence, Turn


@register("selector", "s-fedavg", paper="Nagalapatti and Narayanam, 2021")
@dataclass(frozen=True)
class SFedAvg:
    """Parties drawn by a softmax over how much their updates have helped.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        keep: how much of its old relevance a party keeps when it takes part
        sharpness: how much chances follow relevance (0: not at all)
    """

    looks_at_updates = True

    count: Count = 0
    fraction: Fraction = 0.1
    keep: Share = 0.75
    sharpness: Annotated[float, Ge(0)] = 1.0

    def choose(self, turn: Turn) -> Choice:
        """Draw without replacement."""
        relevance = known_values(turn, "relevance", 1 / len(turn.federation))
        wanted = cohort_size(turn, self.count, self.fraction)
        places = draw_by_weight(self.sharpness * relevance[turn.eligible], wanted, turn.rng)
        return Choice(turn.eligible[places], {"relevance": relevance})

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Move the relevance of those who answered towards the value of their update."""
        relevance = known_values(turn, "relevance", 1 / len(turn.federation))
        scored = score_round(turn, consequence, GTGShapley())
        if scored is not None:
            relevance[scored.parties] *= self.keep
            relevance[scored.parties] += (1 - self.keep) * scored.scores
        return {"relevance": relevance}
