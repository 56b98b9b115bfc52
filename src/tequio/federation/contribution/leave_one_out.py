"""Leave-one-out scores: what the round would have lost without the party."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.federation.contribution.game import Scores
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np

    from tequio.federation.contribution.game import Game


@register("contribution", "leave-one-out")
@dataclass(frozen=True)
class LeaveOneOut:
    """What the round is worth with all parties, less what it is worth without this one.

    One evaluation a party. Unlike Shapley values, the scores do not add up to the gain of the round: of two parties
    that bring the same, neither is missed.
    """

    def scores(self, game: Game, rng: np.random.Generator) -> Scores:
        """Evaluate everyone, and everyone but each."""
        everyone = game.everyone
        whole, *without = game.values([everyone, *(everyone ^ 1 << player for player in range(game.players))])
        return Scores(whole - without)
