"""Power-of-choice: the candidates with the highest losses.

Cho, Wang, Joshi: Towards understanding biased client selection in federated learning, AISTATS 2022.

Candidates are drawn with chances in proportion to their rows, without replacement. They tell their loss of the current
model (pow-d), or the loss that they last reported from training stands for it (rpow-d: nothing more is sent; parties
that never took part come first).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import (
    Count,
    Fraction,
    cohort_size,
    draw_by_weight,
    known_values,
    top_places,
)
from tequio.federation.selectors.losses import asked_losses, reported_losses
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.selection import Consequence, Turn


@register("selector", "power-of-choice", paper="Cho et al., 2022")
@dataclass(frozen=True)
class PowerOfChoice:
    """Of some candidates, drawn by size, those that the model fits worst.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        candidates: how many candidates are drawn (0: twice the parties of a round)
        losses: candidates are asked for their loss (asked), or the one last reported from training is used (reported)
    """

    count: Count = 0
    fraction: Fraction = 0.1
    candidates: Count = 0
    losses: Literal["asked", "reported"] = "asked"

    def choose(self, turn: Turn) -> Choice:
        """Draw the candidates, then take the highest losses."""
        wanted = cohort_size(turn, self.count, self.fraction)
        drawn = min(max(self.candidates or 2 * wanted, wanted), len(turn.eligible))
        sizes = np.log(turn.federation.sizes[turn.eligible].astype(np.float64))
        candidates = turn.eligible[draw_by_weight(sizes, drawn, turn.rng)]
        known = known_values(turn, "losses", np.inf)
        places = top_places(self._losses(turn, candidates, known), wanted, turn.rng)
        return Choice(candidates[places], {"losses": known} if self.losses == "reported" else {})

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Remember what was reported, where that is used."""
        if self.losses == "asked":
            return {}
        known = known_values(turn, "losses", np.inf)
        parties, means, _ = reported_losses(consequence.replies)
        known[parties] = means
        return {"losses": known}

    def _losses(self, turn: Turn, candidates: NDArray[np.int64], known: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.losses == "reported":
            return known[candidates]
        # Whoever does not answer now will hardly train: such candidates come last.
        found = np.full(len(candidates), -np.inf)
        parties, means, _ = asked_losses(turn, candidates)
        found[np.searchsorted(candidates, parties)] = means
        return found
