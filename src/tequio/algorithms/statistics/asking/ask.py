"""Questions over all parties: a closed grammar, answered by sums over rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Len

from tequio.algorithms.statistics.asking.answers import Table, tabled
from tequio.algorithms.statistics.asking.grammar import parse
from tequio.algorithms.statistics.asking.planning import columns_of, planned
from tequio.algorithms.statistics.asking.tasks import AskSettings, layout_of, noised_table_here, table_here
from tequio.algorithms.statistics.small_cells import require_everywhere
from tequio.algorithms.statistics.statistic import ExactStatistic
from tequio.errors import ConfigError
from tequio.federation.algorithm import Disclosure, State
from tequio.federation.averaging import select
from tequio.federation.sums import is_hidden, is_noised, sum_over_rows
from tequio.privacy.atoms import Refusal
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.statistics.asking.planning import Plan
    from tequio.algorithms.statistics.asking.suppression import Published
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload

_NAMES = 1_000


@register("algorithm", "ask")
@dataclass(frozen=True, kw_only=True)
class Ask(ExactStatistic):
    """Answer questions such as "mean(age), count by sex where city = 'Oaxaca'" from sums over all parties' rows.

    A party leaves out cells of few rows, and refuses what would, together with all that it answered before, single out
    fewer rows than the floor. What is not shown says 'suppressed'. Under 'secure-sum' the coordinator sees totals only;
    under 'dp-sums' each number is followed by its standard error.

    Parameters:
        questions: what is asked, in the order given
        scales: for columns of numbers, the smallest value, the largest value and the step that thresholds lie on
        floor: no set of fewer rows may be singled out, by all answers of a party together, and none is shown
        minimum_count: cells of fewer rows at a party are left out (0: as `floor`; less than that makes totals exact
            under 'secure-sum', if the parties' policies allow it)
    """

    questions: Annotated[tuple[str, ...], Len(1, 50)] = ("count",)
    scales: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    floor: Annotated[int, Ge(1)] = 10
    minimum_count: Annotated[int, Ge(0)] = 0

    what: ClassVar[str] = "ask"

    def start(self, federation: Federation) -> State:
        """Questions that do not fit are refused before any party is asked."""
        if self.minimum_count > self.floor:
            raise ConfigError(f"algorithm.minimum_count = {self.minimum_count} is above algorithm.floor = {self.floor}",
                              remedy=f"set algorithm.floor = {self.minimum_count}")
        for place in range(len(self.questions)):
            plan = self._plan(federation, place)
            if any(map(plan.by_party, plan.question.keys)) and is_hidden(self.stages):
                raise ConfigError("'by party' would show each party's own sums, and the stages hide these",
                                  remedy="leave 'party' out of the question, or the stage out of the config")
        return State({})

    def disclosure(self, schema: Schema) -> Disclosure | None:
        """Each question is a release; sums of columns without a scale are not bounded."""
        moves: dict[str, float] = {}
        for place, text in enumerate(self.questions):
            settings = self._settings(place, ())
            plan = planned(parse(text), columns_of(schema, self.scales))
            moves |= {settings.name(name): moved for name, moved in plan.moves().items() if name != "left_out"}
        bounded = bool(np.isfinite(list(moves.values())).all())
        return Disclosure(moves=moves, releases=len(self.questions)) if bounded else None

    def round(self, federation: Federation, state: State) -> State:
        """Ask everything once; noised sums are no exact ones."""
        if state.model or not is_noised(self.stages):
            return super().round(federation, state)
        chosen = select(self, federation, state)
        tables = [self._noised(federation, chosen.parties, place) for place in range(len(self.questions))]
        return state.next({**self._answers(tables), "revealed": {}}, selector=chosen.memory)

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """The answers."""
        return self._answers(self._exact(federation, sums))

    def rows_aside(self, federation: Federation) -> list[str]:
        """Nothing: questions are about all rows of a party."""
        return []

    def _answers(self, tables: Sequence[Table]) -> Payload:
        return {"answers": [{"question": text, "rows": table.rows, "notes": table.notes}
                            for text, table in zip(self.questions, tables, strict=True)],
                "tables": {text: table.rows for text, table in zip(self.questions, tables, strict=True)}, "notes": []}

    def _settings(self, place: int, names: Sequence[str]) -> AskSettings:
        return AskSettings(question=self.questions[place], scales={name: list(scale) for name, scale in
                                                                   self.scales.items()}, parties=list(names),
                           floor=self.floor, minimum_count=self.minimum_count or self.floor, place=place)

    def _plan(self, federation: Federation, place: int) -> Plan:
        return planned(parse(self.questions[place]), columns_of(federation.schema, self.scales), _names(federation))

    def _exact(self, federation: Federation, sums: ExactSums) -> list[Table]:
        tables: list[Table] = []
        published: list[tuple[object, Published]] = []
        for place in range(len(self.questions)):
            plan, settings = self._plan(federation, place), self._settings(place, _names(federation))
            found = sums.ask(table_here, layout_of(settings, plan), {}, settings)
            totals = {name: found[settings.name(name)] for name in [*plan.blocks(), "broken", *(
                one.value for one in Refusal)]}
            require_everywhere(totals["broken"], len(sums.parties), "table")
            for refusal in Refusal:
                if totals[refusal.value]:
                    raise refusal.error(self.floor)
            earlier = [table for where, table in published if where == plan.question.where]
            tables.append(tabled(plan, totals, self.floor, earlier))
            published.append((plan.question.where, tables[-1].published))
        return tables

    def _noised(self, federation: Federation, parties: NDArray[np.int64], place: int) -> Table:
        plan, settings = self._plan(federation, place), self._settings(place, _names(federation))
        shapes = {settings.name(name): shape for name, (shape, _) in plan.blocks().items() if name != "left_out"}
        found = sum_over_rows(federation, parties, noised_table_here, settings=settings, shapes=shapes,
                              stages=self.stages)
        short = {name: settings.name(name) for name in plan.blocks() if name != "left_out"}
        totals: Mapping[str, NDArray[Any]] = {name: found[long] for name, long in short.items()}
        return tabled(plan, totals, self.floor, deviations={name: found.deviations[long]
                                                            for name, long in short.items()})


def _names(federation: Federation) -> list[str]:
    """The parties' names, for questions by party."""
    return [federation.name(party) for party in range(min(len(federation), _NAMES))]
