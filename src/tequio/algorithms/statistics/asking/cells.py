"""What a party makes of its rows in the cells of a question.

It leaves out what rests on fewer rows than its floor, and what would follow from the rest of its answer: all sets of
rows that it answers for, and all other rows together, have at least that many. For a measure a cell is left out as a
whole, so that two measures cannot be played against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.algorithms.analytics.columns import in_groups
from tequio.algorithms.statistics.asking.grammar import Both, Not
from tequio.errors import DataError
from tequio.learners.learner import flat_features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.statistics.asking.grammar import Compare, Condition, Measure
    from tequio.algorithms.statistics.asking.planning import Column, Plan
    from tequio.data.dataset import Dataset


@dataclass(frozen=True)
class Answered:
    """What a party makes of its rows: the blocks, and the sets of rows they are about: per measure the set of each row,
    -1 for the rows that it is not about."""

    blocks: dict[str, NDArray[Any]]
    sets: list[NDArray[np.int64]]

    @property
    def is_empty(self) -> bool:
        """Whether everything was left out, although there is something."""
        return bool(self.blocks["left_out"][0]) and all((one < 0).all() for one in self.sets)


def answer_at_party(plan: Plan, rows: Dataset, floor: int, party: int, *, clip: bool = False) -> Answered:
    """At the party: its answer without what is too small. A floor of 1 leaves nothing out.

    Values are clipped to their scale where noise has to hide one row. Elsewhere they are not: sums under two scales
    would differ by how many rows are beyond the smaller one.
    """
    values = Values(rows)
    inside = _cells(plan, values, len(rows), party)
    shown = _without_few(np.bincount(inside[inside >= 0], minlength=plan.cells), len(rows), floor)
    cell = np.where(shown[inside] & (inside >= 0), inside, -1)
    found = Answered({"n": np.bincount(cell[cell >= 0], minlength=plan.cells)}, [cell])
    for place, measure in enumerate(plan.question.measures):
        if measure.kind != "count":
            _Measured(plan, measure, place, values, cell, floor, clip).into(found)
    left_out = any(((one < 0) & (inside >= 0)).any() for one in found.sets)
    found.blocks["left_out"] = np.array([int(left_out)])
    return found


def _without_few(sizes: NDArray[np.int64], rows: int, floor: int) -> NDArray[np.bool_]:
    """Which cells are shown: of at least `floor` rows, and so that the rows of no shown cell are as many, or none."""
    shown = sizes >= max(floor, 1)
    for index in np.argsort(sizes, kind="stable"):
        if not 0 < rows - sizes[shown].sum() < floor:
            break
        shown[index] = False
    return shown


@dataclass(frozen=True)
class _Measured:
    """A measure of a party's rows in cells. A cell is left out unless each part that the measure cuts it into is large:
    where a condition holds and where not, where a value is and where it is missing."""

    plan: Plan
    measure: Measure
    place: int
    values: Values
    cell: NDArray[np.int64]
    floor: int
    clip: bool

    def into(self, found: Answered) -> None:
        """Add its blocks, and the set of each row."""
        if self.measure.holds is not None:
            self._share(found, self.measure.holds)
        elif self.measure.kind in ("median", "quantile"):
            self._bins(found)
        else:
            self._sums(found)

    def _share(self, found: Answered, holds: Condition) -> None:
        true = _holds(holds, self.values, self.plan.columns)
        shown = self._shown(true, both=self.floor > 1)
        self._add(found, of=shown, true=shown & true)
        found.sets.append(np.where(shown, 2 * self.cell + true, -1))

    def _sums(self, found: Answered) -> None:
        column, numbers, there = self._numbers()
        shown = self._shown(there)
        off = np.where(there, numbers - column.centre, 0.0)
        powers = {"sum": off} | ({"squares": off ** 2} if self.measure.kind == "sd" else {})
        if self.floor > 1:
            shown &= self._none_dominates(np.where(there, np.abs(numbers), 0.0))
            shown &= self._none_dominates(powers.get("squares", np.zeros(len(off))))
        self._add(found, of=shown & there)
        for name, parts in powers.items():
            found.blocks[f"{name}_{self.place}"] = np.bincount(self.cell[shown], parts[shown], self.plan.cells)
        found.sets.append(np.where(shown, 2 * self.cell + there, -1))

    def _bins(self, found: Answered) -> None:
        """Rows count where the mean of a group of at least `floor` neighbours lies, so that no bin has fewer."""
        column, numbers, there = self._numbers()
        shown = self._shown(there)
        used = np.flatnonzero(shown & there)
        order = used[np.lexsort((numbers[used], self.cell[used]))]
        bins, size = np.full(len(self.cell), -1), len(column.edges) - 1
        for rows in np.split(order, np.flatnonzero(np.diff(self.cell[order])) + 1):
            grouped = in_groups(numbers[rows][:, None], self.floor)[:, 0]
            bins[rows] = np.clip(np.searchsorted(column.edges, grouped, side="right") - 1, 0, size - 1)
        self._add(found, of=shown & there)
        found.blocks[f"bins_{self.place}"] = _counted(self.cell, bins, shown & there, self.plan.cells, size)
        found.sets.append(np.where(shown, self.cell * (size + 1) + bins + 1, -1))

    def _numbers(self) -> tuple[Column, NDArray[np.float64], NDArray[np.bool_]]:
        column = self.plan.columns[self.measure.column]
        numbers = self.values.of(column.name).astype(np.float64)
        there = np.isfinite(numbers)
        return column, np.clip(numbers, *column.scale[:2]) if self.clip and column.scale else numbers, there

    def _shown(self, part: NDArray[np.bool_], *, both: bool = False) -> NDArray[np.bool_]:
        """The rows in cells of which the part is large, and the rest is large or empty (not where both have to be)."""
        counts = _counted(self.cell, part.astype(np.int64), self.cell >= 0, self.plan.cells, 2)
        large = (counts[:, 1] >= self.floor) & ((counts[:, 0] >= self.floor) | (not both and counts[:, 0] == 0)) \
            if self.floor > 1 else np.ones(self.plan.cells, dtype=bool)
        return np.asarray((self.cell >= 0) & large[self.cell])

    def _none_dominates(self, sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The rows in cells in which no row has more than half of the cell's sum."""
        inside = self.cell >= 0
        total, largest = np.zeros(self.plan.cells), np.zeros(self.plan.cells)
        np.add.at(total, self.cell[inside], sizes[inside])
        np.maximum.at(largest, self.cell[inside], sizes[inside])
        return np.asarray((largest <= total / 2)[self.cell])

    def _add(self, found: Answered, **parts: NDArray[np.bool_]) -> None:
        for name, part in parts.items():
            found.blocks[f"{name}_{self.place}"] = np.bincount(self.cell[part], minlength=self.plan.cells)


def _counted(cell: NDArray[np.int64], part: NDArray[np.int64], rows: NDArray[np.bool_], cells: int,
             parts: int) -> NDArray[np.int64]:
    found = np.zeros((cells, parts), dtype=np.int64)
    np.add.at(found, (cell[rows], part[rows]), 1)
    return found


def _cells(plan: Plan, values: Values, rows: int, party: int) -> NDArray[np.int64]:
    """The cell of each row, -1 for those outside."""
    inside = np.ones(rows, dtype=bool)
    if plan.question.where is not None:
        inside = _holds(plan.question.where, values, plan.columns)
    cell = np.zeros(rows, dtype=np.int64)
    for key, size in zip(plan.question.keys, plan.shape, strict=True):
        if plan.by_party(key):
            code = np.full(rows, party)
        else:
            column, numbers = plan.columns[key.column], values.of(key.column)
            there = np.isfinite(numbers)
            if column.domain is not None:
                code = np.where(there, numbers, -1).astype(np.int64)
            else:
                edges = np.array(key.edges or column.edges[1:], dtype=numbers.dtype)
                code = np.where(there, np.searchsorted(edges, numbers, side="right"), -1)
        inside &= (code >= 0) & (code < size)
        cell = cell * size + np.clip(code, 0, size - 1)
    return np.where(inside, cell, -1)


def _holds(condition: Condition, values: Values, columns: Mapping[str, Column]) -> NDArray[np.bool_]:
    """For each row whether a condition holds. A missing value is unequal to all others, and neither more nor less."""
    if isinstance(condition, Not):
        return ~_holds(condition.one, values, columns)
    if isinstance(condition, Both):
        parts = [_holds(part, values, columns) for part in condition.parts]
        return np.asarray((np.logical_and if condition.how == "and" else np.logical_or).reduce(parts))
    return _compared(condition, values.of(condition.column), columns[condition.column])


def _compared(condition: Compare, numbers: NDArray[np.floating], column: Column) -> NDArray[np.bool_]:
    # In the type in which values are stored, so that 0.1 is 0.1.
    wanted = np.array([column.code(value) for value in condition.values]).astype(numbers.dtype)
    equal = np.isin(numbers, wanted)
    return np.asarray({"=": equal, "!=": ~equal, "<": numbers < wanted[0], "<=": numbers <= wanted[0],
                       ">": numbers > wanted[0], ">=": numbers >= wanted[0]}[condition.op])


class Values:
    """Columns of some rows as numbers; missing ones are NaN."""

    def __init__(self, rows: Dataset) -> None:
        self._rows, self._features = rows, flat_features(rows)

    def of(self, name: str) -> NDArray[np.floating]:
        """One column."""
        schema = self._rows.schema
        if name in schema.names:
            found = self._features[:, schema.names.index(name)]
            dense = found.toarray().ravel() if sparse.issparse(found) else np.asarray(found)
            codes = schema.features[schema.names.index(name)].categorical
            kept = dense if dense.dtype.kind == "f" else dense.astype(np.float64)
            return np.where(kept < 0, np.nan, kept) if codes else kept
        target = schema.target
        if target.kind == "multilabel" and name in target.names:
            return self._rows.target[:, target.names.index(name)].astype(np.float64)
        if target.kind != "none" and name == target.name:
            return self._rows.target.astype(np.float64)
        raise DataError(f"this party has no column '{name}'", remedy="ask about columns that all parties have")
