"""What the selectors that value parties by Shapley values of their updates share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.federation.contribution.scoring import score_round
from tequio.federation.selectors.drawing import known_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.contribution.game import Contribution
    from tequio.federation.contribution.scoring import ScoredRound
    from tequio.federation.payload import Payload
    from tequio.federation.selection import Consequence, Turn


@dataclass(frozen=True)
class Values:
    """Each party's mean value over the rounds that it took part in, and how many these are."""

    means: NDArray[np.float64]
    rounds: NDArray[np.float64]

    @classmethod
    def known(cls, turn: Turn) -> Values:
        """What the selector remembers; nothing at first."""
        return cls(known_values(turn, "means", 0.0), known_values(turn, "rounds", 0.0))

    def to_memory(self) -> Payload:
        """For the selector's memory."""
        return {"means": self.means, "rounds": self.rounds}


def with_round(turn: Turn, consequence: Consequence, contribution: Contribution, *, relative: bool = False) -> Values:
    """The values after a round: running means over each party's own rounds; relative ones are shares of the gain."""
    values, scored = Values.known(turn), score_round(turn, consequence, contribution)
    if scored is not None:
        parties, scores = scored.parties, _shares(scored) if relative else scored.scores
        values.rounds[parties] += 1
        values.means[parties] += (scores - values.means[parties]) / values.rounds[parties]
    return values


def _shares(scored: ScoredRound) -> NDArray[np.float64]:
    """Scores over the size of what the round gained or lost, so that helping is above zero either way."""
    return scored.scores / abs(scored.gain) if scored.scores.any() else scored.scores
