"""A round as a game: the parties are players, and a coalition is worth what its updates would have made of the model.

A coalition is a whole number: bit k is set where player k is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from tequio.errors import ConfigError
from tequio.learners.mixtures import mixture_judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.aggregation import Updates
    from tequio.federation.selection import Consequence, Turn
    from tequio.learners.learner import Arrays, Learner

    Worth = Callable[[Sequence[int]], NDArray[np.float64]]


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


def game_of(turn: Turn, consequence: Consequence) -> Game | None:
    """The game of a round that was played; nothing where nobody answered."""
    rows = turn.federation.validation
    if rows is None or not len(rows):
        raise ConfigError("contributions are judged on rows of the coordinator's own, and it has none",
                          remedy="set data.validation, say to 0.1")
    if not consequence.replies:
        return None
    if consequence.combined is None or consequence.combined.updates is None:
        raise ConfigError("contributions are those of updates to a common model, and this algorithm has none",
                          remedy="use an algorithm that averages updates, such as 'fedavg'")
    return game_of_updates(turn.learner, turn.model, consequence.combined.updates, rows)
