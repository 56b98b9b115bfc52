"""Eligibility filters in front of any selector."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.errors import QuorumError
from tequio.federation.selection import Choice, Observing
from tequio.federation.selectors.drawing import Count, known_values
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.federation.selection import Consequence, Selector, Turn


@register("selector", "filtered", example='[selector]\nname = "filtered"\nrest = 2\n'
                                          'selector = {name = "random", count = 2}\n')
@dataclass(frozen=True)
class FilteredParties:
    """Keeps some parties out of a round and leaves the choice among the rest to another selector.

    Parameters:
        selector: the other selector: a table with its name and parameters
        without: names of parties that are never chosen
        fewest_rows: parties with fewer rows are not chosen
        most_rows: parties with more rows are not chosen (0: no bound)
        rest: rounds that a party sits out after it was chosen
        most_rounds: a party is chosen at most so often (0: no bound)
    """

    selector: dict[str, Any] = field(default_factory=lambda: {"name": "random"})
    without: tuple[str, ...] = ()
    fewest_rows: Count = 0
    most_rows: Count = 0
    rest: Count = 0
    most_rounds: Count = 0

    def choose(self, turn: Turn) -> Choice:
        """What the other selector chooses from those that pass."""
        last, times = known_values(turn, "last", -np.inf), known_values(turn, "times", 0.0)
        passing = self._passing(turn, last, times)
        if not len(passing):
            raise QuorumError(f"the filters leave nobody to choose in round {turn.federation.round}",
                              remedy="loosen the filters of the selector 'filtered'")
        choice = self._inner.choose(replace(turn, eligible=passing, memory=turn.memory.get("inner", {})))
        last[choice.parties] = turn.federation.round
        times[choice.parties] += 1
        kept = {"last": last, "times": times} if self.rest or self.most_rounds else {}
        return Choice(choice.parties, {"inner": choice.memory, **kept})

    def observe(self, turn: Turn, consequence: Consequence) -> Payload:
        """Pass on to the other selector what came of its choice."""
        inner = self._inner
        if not isinstance(inner, Observing):
            return turn.memory
        return {**turn.memory, "inner": inner.observe(replace(turn, memory=turn.memory["inner"]), consequence)}

    @property
    def _inner(self) -> Selector:
        table = dict(self.selector)
        selector: Selector = build("selector", table.pop("name", ""), table, where="selector.selector")
        return selector

    def _passing(self, turn: Turn, last: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.int64]:
        rows = turn.federation.sizes[turn.eligible]
        passes = (rows >= self.fewest_rows) & (rows <= (self.most_rows or np.inf))
        passes &= ~np.isin(turn.eligible, [turn.federation.index(name) for name in self.without])
        passes &= turn.federation.round - last[turn.eligible] > self.rest
        if self.most_rounds:
            passes &= times[turn.eligible] < self.most_rounds
        passing: NDArray[np.int64] = turn.eligible[passes]
        return passing
