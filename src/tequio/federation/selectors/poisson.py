"""Parties that each toss a coin of their own: the sampling that privacy accountants know best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import Fraction
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.selection import Turn


@register("selector", "poisson", paper="Abadi et al., 2016")
@dataclass(frozen=True)
class PoissonParties:
    """Every eligible party takes part on its own with the same chance, so that cohorts differ in size.

    A round in which nobody takes part leaves the model as it is.

    Parameters:
        fraction: chance of each party to take part in a round
    """

    fraction: Fraction = 1.0

    sampling: ClassVar[str] = "poisson"

    def choose(self, turn: Turn) -> Choice:
        """One coin a party."""
        return Choice(turn.eligible[turn.rng.random(len(turn.eligible)) < self.fraction])
