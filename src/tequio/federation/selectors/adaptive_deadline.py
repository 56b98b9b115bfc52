"""A deadline that is chosen anew in every round, for the most useful updates a second.

An update more in a round is worth less than the one before: the noise in a mean of n updates stops mattering once n is
large against how much the parties differ (McCandlish et al., An empirical model of large-batch training, 2018, say the
same of batches). Here n updates are worth n h / (n + h), so h of them are worth half of what infinitely many are. The
selector ends the round where worth over expected time is highest. What it expects, it corrects by what it observed: how
much longer rounds took than planned, and how many of the chosen answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Gt, Interval

from tequio.federation.scheduling import fitting
from tequio.federation.selectors.candidates import chosen, clock_of, draw, expected
from tequio.federation.selectors.drawing import Count, Fraction
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.selection import Choice, Consequence, Turn


@register("selector", "adaptive-deadline")
@dataclass(frozen=True)
class AdaptiveDeadline:
    """Of some random candidates, as many as give the most useful updates per expected second.

    Parameters:
        half: how many updates in a round are worth half of infinitely many
        count: candidates a round (0: use the fraction)
        fraction: share of the eligible parties that are candidates, rounded up
        memory: weight of what was observed before against the last round, in what is learnt of delays and drop-outs
    """

    half: Annotated[float, Gt(0)] = 10.0
    count: Count = 0
    fraction: Fraction = 0.1
    memory: Annotated[float, Interval(ge=0, lt=1)] = 0.8

    def choose(self, turn: Turn) -> Choice:
        """Order the candidates by how little they lengthen the round, and cut where the rate is highest."""
        clock = clock_of(turn, "adaptive-deadline")
        candidates = expected(turn, clock, draw(turn, self.count, self.fraction))
        order = fitting(candidates, float("inf"))
        delay, answering = float(turn.memory.get("delay", 0.0)), float(turn.memory.get("answering", 1.0))
        seconds = candidates.round_seconds(order)
        best = int(np.argmax(self.rates(seconds + delay, answering))) if len(order) else -1
        deadline = float(seconds[best] + delay) if len(order) else 0.0
        return chosen(turn, "adaptive-deadline", candidates, order[:best + 1], deadline, delay=delay,
                      answering=answering, planned=float(seconds[best]) if len(order) else 0.0)

    def rates(self, seconds: NDArray[np.float64], answering: float = 1.0) -> NDArray[np.float64]:
        """Useful updates a second, if the round ends with the first, second, ... upload at these moments."""
        updates = answering * np.arange(1, len(seconds) + 1)
        return np.asarray(updates * self.half / (updates + self.half) / np.maximum(seconds, 1e-9), dtype=np.float64)

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Learn how much longer than planned the round took, and which share of the chosen answered."""
        last = clock_of(turn, "adaptive-deadline").last
        if last is None or not len(last.parties) or turn.memory["empty"]:
            return turn.memory
        seen = {"delay": max(last.seconds - turn.memory["planned"], 0.0), "answering": float(last.answered.mean())}
        return {**turn.memory, **{name: self.memory * turn.memory[name] + (1 - self.memory) * value
                                  for name, value in seen.items()}}
