"""GreedyFed: the parties with the largest mean Shapley values.

Singhal, Pandey, Popovski: Greedy Shapley client selection for communication-efficient federated learning, 2024.

At first everybody is tried once, in random order. Later the parties with the largest means over their own rounds are
chosen; exploration is implicit, because values fall as the model gets better and others overtake. For the same reason
parties tried early, when every update helps a lot, keep an advantage: `relative` divides a round's values by its gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from tequio.federation.contribution.gtg import GTGShapley
from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import Count, Fraction, cohort_size, top_places
from tequio.federation.selectors.valued import Values, with_round
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.selection import Consequence, Turn


@register("selector", "greedyfed", paper="Singhal et al., 2024")
@dataclass(frozen=True)
class GreedyFed:
    """Everybody is tried once; then the parties whose updates helped most on the coordinator's validation rows.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        truncation: changes in utility below this count as none
        permutations: most permutations of the estimate, times the number of parties
        relative: value an update by its share in what the round gained, so that early rounds count no more than late
    """

    looks_at_updates = True

    count: Count = 0
    fraction: Fraction = 0.1
    truncation: Annotated[float, Ge(0)] = 1e-4
    permutations: Annotated[int, Ge(1)] = 30
    relative: bool = False

    def choose(self, turn: Turn) -> Choice:
        """The next untried parties, filled up with tried ones; when all were tried, the best."""
        order = turn.memory.get("order")
        order = turn.rng.permutation(len(turn.federation)) if order is None else np.array(order)
        tried = np.array(turn.memory.get("tried", np.zeros(len(turn.federation), dtype=bool)))
        wanted = cohort_size(turn, self.count, self.fraction)
        waiting = turn.eligible[~tried[turn.eligible]]
        chosen = waiting[np.argsort(order[waiting])[:wanted]]
        if not len(waiting):
            chosen = self._best(turn, wanted)
        elif len(chosen) < wanted:
            explored = turn.eligible[tried[turn.eligible]]
            chosen = np.append(chosen, turn.rng.choice(explored, wanted - len(chosen), replace=False))
        tried[chosen] = True
        return Choice(np.sort(chosen), {"order": order, "tried": tried, **Values.known(turn).to_memory()})

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Value the updates of those who answered."""
        how = GTGShapley(self.truncation, self.permutations)
        return {**turn.memory, **with_round(turn, consequence, how, relative=self.relative).to_memory()}

    def _best(self, turn: Turn, wanted: int) -> NDArray[np.int64]:
        """The largest means. Parties that were tried and never answered come after all others."""
        values = Values.known(turn)
        means = np.where(values.rounds > 0, values.means, -np.inf)[turn.eligible]
        best: NDArray[np.int64] = turn.eligible[top_places(means, wanted, turn.rng)]
        return best
