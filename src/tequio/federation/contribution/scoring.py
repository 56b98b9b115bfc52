"""Scoring a round that was played, for the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.components import name_of
from tequio.federation.contribution.game import game_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.contribution.game import Contribution
    from tequio.federation.selection import Consequence, Turn


@dataclass(frozen=True)
class ScoredRound:
    """Who answered, what each added, and what the round gained."""

    parties: NDArray[np.int64]
    scores: NDArray[np.float64]
    gain: float


def score_round(turn: Turn, consequence: Consequence, contribution: Contribution) -> ScoredRound | None:
    """The scores of a round, noted in the run's record; nothing where nobody answered."""
    game = game_of(turn, consequence)
    if game is None:
        return None
    scores, parties = contribution.scores(game, turn.rng), consequence.replies.parties
    turn.federation.record("contribution", {
        "round": turn.federation.round, "method": name_of(type(contribution)), "parties": parties.tolist(),
        "scores": scores.values.tolist(), "gain": game.gain, "evaluations": game.evaluations,
        "converged": scores.converged})
    return ScoredRound(parties, scores.values, game.gain)
