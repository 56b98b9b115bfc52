"""A selector that lets everybody take part equally often."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

import tequio as tq


@tq.register("selector", "in-turns")
@dataclass(frozen=True)
class InTurns(tq.Selector):
    """Parties take part in turns, so that all work equally often.

    Parameters:
        count: parties per round
    """

    count: Annotated[int, Ge(1)] = 2

    def choose(self, context: tq.SelectionContext) -> tq.Choice:
        """The next ones after those of the last round; whose turn it is, is remembered."""
        start, eligible = context.memory.get("next", 0), context.eligible
        places = np.unique((start + np.arange(self.count)) % len(eligible))
        return tq.Choice(eligible[places], {"next": (start + self.count) % len(eligible)})

    def expected(self, parties: int) -> float:
        """How many of the eligible parties a round expects."""
        return float(min(self.count, parties))
