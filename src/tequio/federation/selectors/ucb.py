"""Upper confidence bounds on Shapley values.

Auer, Cesa-Bianchi, Fischer: Finite-time analysis of the multiarmed bandit problem, 2002: a party is chosen for the mean
of its values plus exploration * sqrt(ln t / its rounds), t being the round. Parties that never answered have an
infinite bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
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


@register("selector", "ucb", paper="Auer et al., 2002")
@dataclass(frozen=True)
class UpperConfidence:
    """Parties whose updates helped most, with a bonus for those that have rarely been tried.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        exploration: weight of the bonus; values are changes of the mean loss, often far below 1, so that with a weight
            of 1 parties are almost visited in turn
    """

    looks_at_updates = True

    count: Count = 0
    fraction: Fraction = 0.1
    exploration: Annotated[float, Ge(0)] = 1.0

    def choose(self, turn: Turn) -> Choice:
        """The largest upper bounds."""
        values = Values.known(turn)
        bounds = self.bounds(values, turn.federation.round)[turn.eligible]
        places = top_places(bounds, cohort_size(turn, self.count, self.fraction), turn.rng)
        return Choice(turn.eligible[places], values.to_memory())

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Value the updates of those who answered."""
        return with_round(turn, consequence, GTGShapley()).to_memory()

    def bounds(self, values: Values, round: int) -> NDArray[np.float64]:
        """Mean plus bonus; infinite for parties not valued yet."""
        tried = values.rounds > 0
        bonus = self.exploration * np.sqrt(log(max(round, 1)) / np.maximum(values.rounds, 1))
        return np.where(tried, values.means + bonus, np.inf)
