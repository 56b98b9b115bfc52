"""Exact Shapley values: every coalition is evaluated.

Shapley: A value for n-person games, 1953. A player's value is its mean addition to the coalition of those before it,
over all orders of the players; orders with the same set before it are counted together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.federation.contribution.game import Scores
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.contribution.game import Game

MOST_PLAYERS = 16
"""Players up to which all coalitions are evaluated: 65,536."""


@register("contribution", "shapley", paper="Shapley, 1953")
@dataclass(frozen=True)
class Shapley:
    """The exact Shapley value of each party's update; for cohorts of up to 16 parties."""

    def scores(self, game: Game, rng: np.random.Generator) -> Scores:
        """Evaluate all coalitions in one go."""
        if game.players > MOST_PLAYERS:
            raise ConfigError(f"exact Shapley values of {game.players} parties need 2^{game.players} evaluations",
                              remedy=f"choose at most {MOST_PLAYERS} parties a round, or use 'gtg-shapley'")
        return Scores(shapley_values(game))


def shapley_values(game: Game) -> NDArray[np.float64]:
    """The exact values of a game with few players."""
    players = game.players
    coalitions = np.arange(1 << players)
    values = game.values(coalitions.tolist())
    sizes = np.array([int(coalition).bit_count() for coalition in coalitions])
    # (1/M) / C(M-1, |S|): the share of orders in which exactly the members of S come before the player.
    share = np.array([1 / (players * comb(players - 1, size)) for size in range(players)])
    found = np.empty(players)
    for player in range(players):
        without = coalitions[(coalitions >> player & 1) == 0]
        found[player] = np.sum(share[sizes[without]] * (values[without | 1 << player] - values[without]))
    return found
