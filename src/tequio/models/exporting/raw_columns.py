"""What prepared columns are of raw ones, so that thresholds on the first can be said of the second.

Every prepared column comes from one raw column. A raw number that is only scaled keeps its order, so a threshold on the
prepared column is one on the raw column too: the largest raw number that still goes left, found by halving, so that not
one row goes another way. Categories, and numbers that were cut into intervals, fall into a few pieces; each piece is
sent through the preparation once to see what it becomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.trees.tree import LEAF
from tequio.models.exporting.plan import Cut, Plan, Recode, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.models.exporting.forms import Branches
    from tequio.models.exporting.plan import Operation

    Numbers = NDArray[np.float64]
    Way = dict[int, NDArray[np.bool_] | tuple[float, float]]
    """Of each raw column on the way to a node: which pieces get there, or what a number is above and at most."""


@dataclass(frozen=True, eq=False)
class RawColumns:
    """What prepared columns are of raw ones. `single`: prepared numbers are rounded before they are compared."""

    plan: Plan
    single: bool = False
    bounds: dict[tuple[int, float], float] = field(default_factory=dict, repr=False)

    @cached_property
    def source(self) -> NDArray[np.int64]:
        """The raw column of each prepared one."""
        return self._source_after(len(self.plan.operations))

    @cached_property
    def cuts(self) -> dict[int, Numbers]:
        """Raw cut points of numbers that became intervals; a piece goes up to its point, the last one to infinity."""
        found: dict[int, Numbers] = {}
        for steps, operation in enumerate(self.plan.operations):
            if not isinstance(operation, Cut):
                continue
            for column in np.flatnonzero(operation.which):
                raw = int(self._source_after(steps)[column])
                points = operation.points[column][np.isfinite(operation.points[column])]
                if raw not in found and self.plan.raw.features[raw].domain is None:
                    found[raw] = np.unique(self._largest(np.full(len(points), column), points, steps))
        return found

    @cached_property
    def pieces(self) -> dict[int, int]:
        """How many pieces a raw column has, where it has some."""
        return {column: len(self.cuts[column]) + 1 if feature.domain is None else len(feature.domain)
                for column, feature in enumerate(self.plan.raw.features)
                if feature.domain is not None or column in self.cuts}

    @cached_property
    def values(self) -> Numbers:
        """(most pieces, prepared columns): what each piece of a column becomes."""
        rows = np.zeros((max(self.pieces.values(), default=1), len(self.plan.raw.features)))
        for column, count in self.pieces.items():
            points = self.cuts.get(column)
            told = np.arange(count) if points is None else np.append(points, np.nextafter(points[-1:].sum(), np.inf))
            rows[:, column] = told[np.minimum(np.arange(len(rows)), count - 1)]
        return self._rounded(self.plan.apply(rows))

    def learn(self, trees: Sequence[Branches]) -> None:
        """Find the raw bounds of all thresholds on numbers that are not cut."""
        pairs = sorted({(int(column), float(threshold)) for tree in trees if tree.kind == "binary"
                        for column, threshold in zip(tree.feature, tree.threshold, strict=True)
                        if column != LEAF and int(self.source[column]) not in self.pieces})
        found = self._largest(np.array([column for column, _ in pairs], np.int64),
                              np.array([threshold for _, threshold in pairs]), len(self.plan.operations))
        self.bounds.update(zip(pairs, found.tolist(), strict=True))

    def in_raw_terms(self, trees: Sequence[Branches]) -> tuple[Plan, list[Branches]]:
        """Binary trees on raw numbers and on what pieces become, and the plan that gives them these columns.

        No arithmetic is left between a raw number and a threshold, so no rounding of another program can matter.
        """
        self.learn(trees)
        moved = [replace(tree, threshold=np.array([self.bounds.get((int(column), float(threshold)), threshold)
                                                   for column, threshold
                                                   in zip(tree.feature, tree.threshold, strict=True)]))
                 for tree in trees]
        return replace(self.plan, operations=self.by_pieces), moved

    @cached_property
    def by_pieces(self) -> tuple[Operation, ...]:
        """Operations that give prepared columns by their pieces, and raw numbers where there are none."""
        columns = len(self.plan.raw.features)
        operations: list[Operation] = []
        if self.cuts:
            points = np.full((columns, max(map(len, self.cuts.values()))), np.inf)
            for column, own in self.cuts.items():
                points[column, :len(own)] = own
            operations.append(Cut(np.isin(np.arange(columns), list(self.cuts)), points))
        if not np.array_equal(self.source, np.arange(columns)):
            operations.append(Spread(self.source, np.full(len(self.source), -1)))
        if self.pieces:
            operations.append(Recode(np.isin(self.source, list(self.pieces)), self.values.T))
        return tuple(operations)

    def below(self, way: Way, column: int, threshold: float, *, above: bool = False) -> Way:
        """A way with one condition more: a prepared column is at most a threshold, or above it."""
        raw = int(self.source[column])
        if raw in self.pieces:
            return self._kept(way, raw, (self.values[:self.pieces[raw], column] <= threshold) != above)
        low, high = way.get(raw, (-np.inf, np.inf))
        bound = self.bounds[column, threshold]
        return {**way, raw: (max(low, bound), high) if above else (low, min(high, bound))}

    def with_code(self, way: Way, column: int, codes: Sequence[int], *, other: bool = False) -> Way:
        """A way with one condition more: a prepared column has one of the codes, or none of them."""
        raw = int(self.source[column])
        return self._kept(way, raw, np.isin(self.values[:self.pieces[raw], column], codes) != other)

    def _kept(self, way: Way, raw: int, allowed: NDArray[np.bool_]) -> Way:
        before = way.get(raw)
        return {**way, raw: allowed & before if isinstance(before, np.ndarray) else allowed}

    def _largest(self, columns: NDArray[np.int64], thresholds: Numbers, steps: int) -> Numbers:
        """The largest raw numbers whose values after some steps are at most the thresholds.

        The range of all doubles is halved, in the order of their bits.
        """
        source, places = self._source_after(steps)[columns], np.arange(len(columns))
        high = np.full(len(columns), np.array(np.inf).view(np.int64))
        low = -high
        while (low < high).any():
            middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without an overflow
            rows = np.zeros((len(columns), len(self.plan.raw.features)))
            rows[places, source] = _from_bits(middle)
            left = self._rounded(self.plan.apply(rows, steps)[places, columns]) <= thresholds
            low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
        return _from_bits(low)

    def _rounded(self, values: Array) -> Numbers:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(np.float32) if self.single else values, dtype=np.float64)

    def _source_after(self, steps: int) -> NDArray[np.int64]:
        source = np.arange(len(self.plan.raw.features))
        for operation in self.plan.operations[:steps]:
            source = source[operation.source] if isinstance(operation, Spread) else source
        return source


def _from_bits(places: NDArray[np.int64]) -> Numbers:
    return np.copysign(np.abs(places).view(np.float64), places)
