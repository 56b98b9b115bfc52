"""GTG-Shapley: Shapley values from guided permutations, with truncation.

Liu, Chen, Yu, Liu, Cui: GTG-Shapley: efficient and accurate participant contribution evaluation in federated learning,
ACM TIST 2022.

A sweep draws one permutation for every player, in which that player comes first. A round that changed nothing is not
looked at (between-round truncation), nor is the rest of a permutation whose coalition is already worth what everybody
is (within-round truncation). A player's value has converged when over the last values it moved by less than the
tolerance, relative to itself; all players must have. Where there are no more coalitions than the permutations would
visit, the exact values cost less than the estimate and are taken instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt

from tequio.federation.contribution.game import Scores
from tequio.federation.contribution.shapley import shapley_values
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.contribution.game import Game

    Order = NDArray[np.int64]

_SMALLEST_VALUE = 1e-12


@register("contribution", "gtg-shapley", paper="Liu et al., 2022")
@dataclass(frozen=True)
class GTGShapley:
    """Shapley values estimated from truncated permutations; exact where that costs no more.

    Parameters:
        truncation: changes in utility below this count as none, between rounds and within a permutation
        permutations: most permutations, times the number of parties
        window: how many of the last values of a party are looked at to tell whether it has converged
        tolerance: how far, relative to the last, these may lie from it on average
        enumerate: take exact values where there are no more coalitions than permutations would visit
    """

    truncation: Annotated[float, Ge(0)] = 1e-4
    permutations: Annotated[int, Ge(1)] = 30
    window: Annotated[int, Ge(2)] = 20
    tolerance: Annotated[float, Gt(0)] = 0.01
    enumerate: bool = True

    def scores(self, game: Game, rng: np.random.Generator) -> Scores:
        """Zeros for a round that changed nothing; else exact values, or sweeps until they have converged."""
        if abs(game.gain) < self.truncation:
            return Scores(np.zeros(game.players))
        most = self.permutations * game.players
        if self.enumerate and 1 << game.players <= most * game.players:
            return Scores(shapley_values(game))
        totals = np.zeros(game.players)
        history: list[NDArray[np.float64]] = []
        while len(history) < most:
            for additions in self._sweep(game, rng):
                totals += additions
                history.append(totals / (len(history) + 1))
            if self._converged(history):
                return Scores(history[-1])
        return Scores(history[-1], converged=False)

    def _sweep(self, game: Game, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """What each player adds in one permutation a player. The permutations go forward side by side."""
        orders = [_starting_with(first, game.players, rng) for first in range(game.players)]
        nothing, everything = game.values([0, game.everyone])
        coalitions, worth = [0] * len(orders), np.full(len(orders), nothing)
        added = np.zeros((len(orders), game.players))
        for place in range(game.players):
            joining = [int(order[place]) for order in orders]
            coalitions = [coalition | 1 << player for coalition, player in zip(coalitions, joining, strict=True)]
            open_ones = np.flatnonzero(np.abs(everything - worth) >= self.truncation)
            after = worth.copy()
            after[open_ones] = game.values([coalitions[index] for index in open_ones])
            added[np.arange(len(orders)), joining] = after - worth
            worth = after
        return list(added)

    def _converged(self, history: Sequence[NDArray[np.float64]]) -> bool:
        if len(history) < self.window:
            return False
        last = np.array(history[-self.window:])
        moved = np.abs(last - last[-1]).mean(axis=0)
        return bool(np.all(moved < self.tolerance * np.maximum(np.abs(last[-1]), _SMALLEST_VALUE)))


def _starting_with(first: int, players: int, rng: np.random.Generator) -> Order:
    others = np.delete(np.arange(players), first)
    return np.concatenate([[first], rng.permutation(others)])
