"""Correlated noise: the noise of a round takes back much of what earlier rounds added, as a factorisation says.

Choquette-Choo et al.: (Amplified) banded matrix factorization, NeurIPS 2023. McMahan, Xu, Zhang: A hassle-free
algorithm for strong differential privacy in federated learning systems, EMNLP 2024. Rounds x go through a filter C, are
rounded to a grid, and get fresh noise in whole steps, which is all that the account has to look at. The inverse filter
then gives noised rounds again: it is applied to what is public already, and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.federation.aggregation import flatten, unflatten
from tequio.noise.coins import Coins
from tequio.noise.sampling import rounded_gaussian
from tequio.privacy.central import TreeNoise
from tequio.privacy.factorisation import Factor, banded, exponentials
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.learners.learner import Arrays
    from tequio.privacy.ledger import Context

    Floats = NDArray[np.float64]

_FINER = 2.0 ** -10
"""The step of this grid in those of others. Each round is rounded with all that a party sent before; the rounding of a
million rounds comes to no more than that of one to the other grid, for which the noise has room."""


@register("stage", "dp-mf", paper="Choquette-Choo et al., 2023; McMahan et al., 2024")
@dataclass(frozen=True)
class MatrixNoise(TreeNoise):
    """Clip each party's update, and add noise to the sum that later rounds take back, by the best factorisation.

    Best where parties take turns (selector 'in-turn'): the fewer rounds a party moves, the more noise can be taken
    back. It leaves less noise in the model than 'dp-ftrl' does at the same epsilon.

    Parameters:
        clip: largest length of a party's update, all its arrays together
        noise: standard deviation of a round's noise, in units of `clip` (left out: as privacy.epsilon asks)
        secret: seed the noise from the operating system rather than from the run's seed; runs then differ
        expected: parties that a round expects, which the sum is divided by (0: those that answer; runs fill it in)
        arrays: which parts of a reply are protected (runs fill it in)
        buffers: sums of so many exponentials, with twice as many vectors to remember (0: a band as wide as a turn)
    """

    buffers: Annotated[int, Interval(ge=0, le=4)] = 3

    def release(self, mean: Arrays, factor: float, step: float, length: float, expected: float, name: str, round: int,
                seed: int) -> Arrays:
        """The filtered sum, rounded and noised, and filtered back."""
        step, chosen = step * _FINER, self._fixed_factor()
        coins = Coins.derived(seed, "matrix noise", name, round)
        sums = self._filtered(f"{name} sums", flatten(mean) * (factor / step), chosen.above, chosen.below)
        fresh = rounded_gaussian(coins, self.known_noise * length / _FINER, sums.size)
        noised = np.rint(sums) + fresh.astype(np.float64)
        return unflatten(self._filtered(f"{name} noised", noised, chosen.below, chosen.above) * step, mean)

    def moved(self, rounds: Sequence[int], last: int, context: Context) -> float:
        """How far a party moves the filtered sums."""
        return self._factor(context).moved(rounds, last)

    def words(self, context: Context) -> str:
        """What is done, and between which neighbours that hides the difference."""
        return (f"Each party's update is clipped to a length of {self.clip:g}; every round carries noise of "
                f"{self.noise or 0:.4g} times that length, of which later rounds take back what they can. "
                f"{self.neighbours(context)}")

    def _factor(self, context: Context) -> Factor:
        """As it was when the first round was released; before that, the best for the rounds that are planned."""
        if self.ledger is not None and "factor" in self.ledger.memory:
            above, below = self.ledger.memory["factor"]
            return Factor(tuple(above), tuple(below))
        apart = max(context.turns, 1)
        times = -(-context.rounds // apart)
        if not self.buffers:
            return banded(context.rounds, apart, times)
        return exponentials(context.rounds, apart, times, self.buffers)

    def _fixed_factor(self) -> Factor:
        """From now on this one: a run that is given more rounds goes on with it."""
        if self.ledger is None:
            return Factor()
        chosen = self._factor(self.ledger.context)
        self.ledger.memory["factor"] = (list(chosen.above), list(chosen.below))
        return chosen

    def _filtered(self, name: str, values: Floats, above: Sequence[float], below: Sequence[float]) -> Floats:
        """The next values of a filter; what it remembers of earlier rounds is kept with the ledger."""
        if self.ledger is None:
            return values
        filters = self.ledger.memory.get("filters", {})
        order = max(len(above), len(below)) - 1
        kept = filters[name] if name in filters else np.zeros((order, values.size))
        found = values + kept[0] if order else values
        later = np.zeros_like(kept)
        for place in range(order):
            if place + 1 < order:
                later[place] = kept[place + 1]
            if place + 1 < len(above):
                later[place] += above[place + 1] * values
            if place + 1 < len(below):
                later[place] -= below[place + 1] * found
        self.ledger.memory["filters"] = {**filters, name: later}
        return found
