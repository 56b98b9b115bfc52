"""A selector that lets everybody take part equally often."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from tequio import register
from tequio.federation.selection import Choice


@register("selector", "in_turns")
@dataclass(frozen=True)
class InTurns:
    """Parties take part in turns, so that all work equally often.

    Parameters:
        count: parties a round
    """

    count: Annotated[int, Ge(1)] = 2

    def choose(self, turn):
        """The next ones after those of the last round; whose turn it is, is remembered."""
        start, eligible = turn.memory.get("next", 0), turn.eligible
        places = np.unique((start + np.arange(self.count)) % len(eligible))
        return Choice(eligible[places], {"next": (start + self.count) % len(eligible)})
