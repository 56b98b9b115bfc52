"""A round as a game: the parties are players, and a coalition is worth what its updates would have made of the model.

A coalition is a whole number: bit k is set where player k is in it.

Scoring a round that was played, for the record.

Leave-one-out scores: what the round would have lost without the party.

Exact Shapley values: every coalition is evaluated.

Shapley: A value for n-person games, 1953. A player's value is its mean addition to the coalition of those before it,
over all orders of the players; orders with the same set before it are counted together.

GTG-Shapley: Shapley values from guided permutations, with truncation.

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
from math import comb
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Gt

from tequio.errors import ConfigError
from tequio.learners.mixtures import mixture_judge
from tequio.registry import name_of, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.aggregation import Updates
    from tequio.federation.selection import RoundOutcome, SelectionContext
    from tequio.learners.learner import Arrays, Learner

    Worth = Callable[[Sequence[int]], NDArray[np.float64]]
    from collections.abc import Sequence

    from numpy.typing import NDArray


    Order = NDArray[np.int64]


class Game:
    """Players and what coalitions of them are worth. A value is worked out once; those asked for together, together."""

    def __init__(self, players: int, worth: Worth) -> None:
        self.players = players
        self._worth = worth
        self._known: dict[int, float] = {}

    @property
    def everyone(self) -> int:
        """The coalition of all players."""
        return (1 << self.players) - 1

    @property
    def evaluations(self) -> int:
        """How many coalitions have been evaluated so far."""
        return len(self._known)

    @property
    def gain(self) -> float:
        """What all players together are worth more than nobody."""
        nothing, everything = self.values([0, self.everyone])
        return float(everything - nothing)

    def values(self, coalitions: Iterable[int]) -> NDArray[np.float64]:
        """The values of some coalitions."""
        asked = list(coalitions)
        new = [coalition for coalition in dict.fromkeys(asked) if coalition not in self._known]
        if new:
            self._known.update(zip(new, self._worth(new).tolist(), strict=True))
        return np.array([self._known[coalition] for coalition in asked], dtype=np.float64)


@dataclass(frozen=True)
class Scores:
    """What each player added. `converged` is false where an estimate ran into its limit."""

    values: NDArray[np.float64]
    converged: bool = True


@runtime_checkable
class Contribution(Protocol):
    """Divides what a round was worth among its parties."""

    def scores(self, game: Game, rng: np.random.Generator) -> Scores:
        """A score for every player of a game with at least one."""
        ...


def game_of_updates(learner: Learner, model: Arrays, updates: Updates, rows: Dataset) -> Game:
    """The game whose coalitions are worth minus the mean loss of the model that their updates make.

    A coalition's model is the model before the round plus the mean of its members' updates, weighted as the round
    weighed them. Robust aggregators, and whatever else an algorithm does to the mean, are left out.
    """
    weights = updates.weights / updates.weights.max()
    losses = mixture_judge(learner, model, list(updates.arrays), rows)

    def worth(coalitions: Sequence[int]) -> NDArray[np.float64]:
        members = np.array([[coalition >> player & 1 for player in range(len(updates))] for coalition in coalitions])
        shares = members * weights
        totals = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0)
        return -losses(shares)

    return Game(len(updates), worth)


def game_of(context: SelectionContext, outcome: RoundOutcome) -> Game | None:
    """The game of a round that was played; nothing where nobody answered."""
    rows = context.federation.validation
    if rows is None or not len(rows):
        raise ConfigError("contributions are judged on rows of the coordinator's own, and it has none",
                          remedy="set data.validation, say to 0.1")
    if not outcome.replies:
        return None
    if outcome.combined is None or outcome.combined.updates is None:
        raise ConfigError("contributions are those of updates to a common model, and this algorithm has none",
                          remedy="use an algorithm that averages updates, such as 'fedavg'")
    return game_of_updates(context.learner, context.model, outcome.combined.updates, rows)


@dataclass(frozen=True)
class ScoredRound:
    """Who answered, what each added, and what the round gained."""

    parties: NDArray[np.int64]
    scores: NDArray[np.float64]
    gain: float


def score_round(context: SelectionContext, outcome: RoundOutcome, contribution: Contribution) -> ScoredRound | None:
    """The scores of a round, noted in the run's record; nothing where nobody answered."""
    game = game_of(context, outcome)
    if game is None:
        return None
    scores, parties = contribution.scores(game, context.rng), outcome.replies.parties
    context.federation.record("contribution", {
        "round": context.federation.round, "method": name_of(type(contribution)), "parties": parties.tolist(),
        "scores": scores.values.tolist(), "gain": game.gain, "evaluations": game.evaluations,
        "converged": scores.converged})
    return ScoredRound(parties, scores.values, game.gain)


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
