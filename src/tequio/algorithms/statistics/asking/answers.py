"""From totals to answers: what is withheld, and what the rest says. A cell without an answer says so, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.statistics.asking.suppression import Published, suppressed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.statistics.asking.grammar import Measure
    from tequio.algorithms.statistics.asking.planning import Plan

SUPPRESSED = "suppressed"


@dataclass(frozen=True, eq=False)
class Table:
    """The answer to a question: a row per cell, with the values of its keys and of its measures."""

    rows: list[dict[str, float | int | str]]
    published: Published
    notes: list[str]


def tabled(plan: Plan, totals: Mapping[str, NDArray[Any]], floor: int, earlier: Sequence[Published] = (), *,
           deviations: Mapping[str, float] | None = None) -> Table:
    """The table of a question. With noise (`deviations` of each block) nothing is too small to be shown, and each
    number is followed by its standard error."""
    counts = np.asarray(totals["n"]).reshape(plan.shape)
    if deviations is None:
        published = suppressed(Published(plan.question.keys, counts, np.ones(counts.shape, dtype=bool)), earlier, floor)
    else:
        published = Published(plan.question.keys, counts, np.ones(counts.shape, dtype=bool))
    rows: list[dict[str, float | int | str]] = []
    for place, values in enumerate(np.ndindex(*plan.shape)):
        row: dict[str, float | int | str] = {_name(plan, index): plan.labels[index][value]
                                             for index, value in enumerate(values)}
        for index, measure in enumerate(plan.question.measures):
            cell = _Cell(plan, index, place, totals, deviations or {})
            shown = published.shown[values] and (deviations is not None or cell.rows >= max(floor, 1))
            value, error = cell.answer(measure) if shown else (SUPPRESSED, nan)
            row[measure.text] = value
            if deviations is not None:
                row[f"{measure.text}_se"] = error
        rows.append(row)
    return Table(rows, published, _notes(plan, totals, rows))


@dataclass(frozen=True)
class _Cell:
    """One measure of one cell."""

    plan: Plan
    index: int
    place: int
    totals: Mapping[str, NDArray[Any]]
    deviations: Mapping[str, float]

    @property
    def rows(self) -> float:
        """How many rows the measure rests on."""
        return self._of("n" if f"of_{self.index}" not in self.totals else f"of_{self.index}")

    def answer(self, measure: Measure) -> tuple[float | int | str, float]:
        """The value, and its standard error by the noise to the first order."""
        if measure.kind == "count":
            count = self._of("n")
            return (count if self.deviations else int(count)), self.deviations.get("n", 0.0)
        rows, of_rows = self.rows, self._error("of")
        if rows < 1:
            return SUPPRESSED, nan
        if measure.kind == "share":
            share = self._of(f"true_{self.index}") / rows
            return share, sqrt(self._error("true") ** 2 + (share * of_rows) ** 2) / rows
        if measure.kind in ("median", "quantile"):
            return self._quantile(measure.at, rows), nan
        centre = self.plan.columns[measure.column].centre
        off = self._of(f"sum_{self.index}")
        if measure.kind == "sum":
            return off + centre * rows, sqrt(self._error("sum") ** 2 + (centre * of_rows) ** 2)
        mean = off / rows
        of_mean = sqrt(self._error("sum") ** 2 + (mean * of_rows) ** 2) / rows
        if measure.kind == "mean":
            return centre + mean, of_mean
        if rows < 2:
            return SUPPRESSED, nan
        squares = self._of(f"squares_{self.index}")
        variance = max(squares - off * mean, 0.0) / (rows - 1)
        of_variance = sqrt(self._error("squares") ** 2 + (2 * mean * self._error("sum")) ** 2 +
                           (squares / rows * of_rows) ** 2) / (rows - 1)
        return sqrt(variance), of_variance / (2 * sqrt(variance)) if variance > 0 else nan

    def _quantile(self, share: float, rows: float) -> float:
        """Where the rank falls in its bin, as if the bin's rows were spread evenly."""
        edges = self.plan.columns[self.plan.question.measures[self.index].column].edges
        bins = np.maximum(self.totals[f"bins_{self.index}"][self.place], 0)
        up_to = np.cumsum(bins)
        rank = share * up_to[-1]
        place = min(int(np.searchsorted(up_to, rank)), len(bins) - 1)
        before = up_to[place] - bins[place]
        return float(edges[place] + (edges[place + 1] - edges[place]) * (rank - before) / max(bins[place], 1))

    def _of(self, name: str) -> float:
        return float(self.totals[name][self.place])

    def _error(self, block: str) -> float:
        return self.deviations.get(f"{block}_{self.index}", 0.0)


def _name(plan: Plan, index: int) -> str:
    key = plan.question.keys[index]
    return f"bin({key.column})" if key.edges else key.column


def _notes(plan: Plan, totals: Mapping[str, NDArray[Any]], rows: Sequence[Mapping[str, object]]) -> list[str]:
    found = []
    parties = int(totals["left_out"][0]) if "left_out" in totals else 0
    if parties:
        found.append(f"{parties} {'party' if parties == 1 else 'parties'} left out cells of few rows, and what would "
                     "show them: numbers are of the other rows, and counts are 'at least'")
    withheld = sum(value == SUPPRESSED for row in rows for value in row.values())
    if withheld:
        found.append(f"{withheld} {'number is' if withheld == 1 else 'numbers are'} suppressed, which is not to say 0")
    wide = dict.fromkeys(measure.column for measure in plan.question.measures if measure.kind in ("median", "quantile"))
    for name in wide:
        edges = plan.columns[name].edges
        found.append(f"quantiles of '{name}' are known to a step of {edges[1] - edges[0]:g}, with values in groups of "
                     "neighbours")
    return found
