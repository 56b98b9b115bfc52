"""What exact statistics have in common as algorithms: all asks in one round, a result of tables, and no model."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tequio.algorithms.statistics.design import Table
from tequio.algorithms.statistics.exact_sums import ExactSums
from tequio.federation.algorithm import Algorithm, State, part
from tequio.federation.averaging import select
from tequio.federation.selection import AllParties, Selector
from tequio.federation.stages import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Tally


@dataclass(frozen=True, kw_only=True)
class ExactStatistic(Algorithm):
    """A statistic of all parties' rows. It says by `found` what comes of its asks; further rounds change nothing.

    The payload holds `tables` (rows by title), which are printed and reported, and `notes`.
    """

    selector: Selector = part(factory=AllParties)
    stages: tuple[Stage, ...] = part(())

    sends: ClassVar[frozenset[Literal["updates", "sums"]]] = frozenset({"sums"})
    shows_replies: ClassVar[bool] = False
    sums_only: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"number", "category", "missing"})
    adoptable: ClassVar[bool] = False  # there is no model
    what: ClassVar[str]

    @abstractmethod
    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """Ask, and say what comes of it."""

    def start(self, federation: Federation) -> State:
        """Nothing is known yet."""
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """Everything at once; again with those left, where a party was lost in the open."""
        if state.model:
            return state
        chosen = select(self, federation, state)
        sums = ExactSums(self.what, federation, np.asarray(chosen.parties), self.stages)
        found = sums.settle(lambda: self.found(sums, federation))
        return state.next({"approximate": "", **found, "asks": sums.asks, "revealed": dict(sums.revealed),
                           "notes": [*sums.notes, *found.get("notes", []), *self.rows_aside(federation)]},
                          selector=chosen.memory)

    def rows_aside(self, federation: Federation) -> list[str]:
        """What is to be said of rows that it does not look at: those that are no training rows."""
        kept = federation.population.split.validation + federation.population.split.test
        return [f"{kept:.0%} of the rows are kept for validation and testing: set data.split = {{validation = 0.0, "
                "test = 0.0} to use them"] if kept else []

    def answer(self, federation: Federation, state: State) -> None:
        """There is no model that answers rows."""

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """There is no model to evaluate."""
        return {}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """There is no model to score."""
        return None


def require_columns(schema: Schema, names: Iterable[str]) -> None:
    """Refuse a column that is not there, before anything is asked; an empty name is none."""
    for name in filter(None, names):
        Table.domain(schema, name)
