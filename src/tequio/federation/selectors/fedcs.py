"""As many parties as fit before a deadline.

Nishio, Yonetani: Client selection for federated learning with heterogeneous resources in mobile edge, ICC 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

from tequio.federation.scheduling import fitting
from tequio.federation.selectors.candidates import chosen, clock_of, draw, expected
from tequio.federation.selectors.drawing import Count, Fraction
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.selection import Choice, Turn


@register("selector", "fedcs", paper="Nishio and Yonetani, 2019")
@dataclass(frozen=True)
class FedCS:
    """Of some random candidates, as many as can train and upload one after another before a deadline.

    Parameters:
        deadline: seconds that a round may take
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
    """

    deadline: Annotated[float, Gt(0)] = 180.0
    count: Count = 0
    fraction: Fraction = 0.1

    def choose(self, turn: Turn) -> Choice:
        """Ask for resources, then take whoever lengthens the round least, as long as it ends in time."""
        clock = clock_of(turn, "fedcs")
        candidates = expected(turn, clock, draw(turn, self.count, self.fraction))
        return chosen(turn, "fedcs", candidates, fitting(candidates, self.deadline), self.deadline)
