"""Parties one group after another: nobody twice before everybody once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tequio.federation.rng import stream
from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import Count, Fraction, cohort_size
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.selection import Turn


@register("selector", "in-turn", paper="Kairouz et al., 2021")
@dataclass(frozen=True)
class InTurn:
    """Parties in an order that is drawn once, so many a round; who is away misses the turn.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
    """

    count: Count = 0
    fraction: Fraction = 1.0

    sampling: ClassVar[str] = "none"

    def choose(self, turn: Turn) -> Choice:
        """Those whose turn it is, as far as they can be reached."""
        federation = turn.federation
        everybody = replace(turn, eligible=federation.eligible())
        groups = self.groups(federation, cohort_size(everybody, self.count, self.fraction))
        return Choice(np.intersect1d(groups[(max(federation.round, 1) - 1) % len(groups)], turn.eligible))

    def groups(self, federation: Federation, size: int) -> list[NDArray[np.int64]]:
        """All that may ever be chosen, in groups of that size; the last one may be smaller."""
        order = stream(federation.seed, "turns").permutation(federation.eligible())
        return np.split(order, np.arange(size, len(order), size))
