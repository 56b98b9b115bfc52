"""Random selection whose members upload in an order of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.federation.selection import Choice
from tequio.federation.selectors.candidates import clock_of, draw, expected
from tequio.federation.selectors.drawing import Count, Fraction
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.selection import Turn


@register("selector", "scheduled-random", paper="Nishio and Yonetani, 2019")
@dataclass(frozen=True)
class ScheduledRandom:
    """A random sample of all parties, fast or slow, which upload one after another: the baseline on the clock.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded up
        order: they upload as they were drawn, or those first that finish training first
    """

    count: Count = 0
    fraction: Fraction = 0.1
    order: Literal["drawn", "finish"] = "drawn"

    def choose(self, turn: Turn) -> Choice:
        """Draw and put in order."""
        clock, parties = clock_of(turn, "scheduled-random"), draw(turn, self.count, self.fraction)
        if self.order == "drawn":
            return Choice(parties)
        return Choice(parties[np.argsort(expected(turn, clock, parties).training, kind="stable")])
