"""Numbers in bins, sums of gradients by bin (histograms, which add up over parties), and what a split would earn.

Where several parties hold the columns, a split that one of them offers says no more than what the rows on its left side
add up to. Which column and which cut it stands for, only its holder knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.learners.trees.boosted import RegressionTree
    from tequio.learners.trees.boosting import Growth
    from tequio.learners.trees.forest import Criterion

    Codes = NDArray[np.uint8 | np.uint16 | np.uint32 | np.uint64]
    """Numbers of bins, in the smallest type that holds them."""

    Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
    """Something of the gradients, and the same of the second derivatives."""

    HistogramOf = Callable[[RegressionTree, NDArray[np.int64]], Pair]
    """(nodes, places) sums of gradients and of second derivatives of the rows that a growing tree takes to nodes."""

_COMMON_SHARE = 0.6  # of the rows in one bin, from which on summing the others and subtracting is faster

ROUNDING = 1e-9
"""Share of a gain below which two offers count as equally good."""


@dataclass(frozen=True, eq=False)
class Bins:
    """Cut points of every column, ascending. Bin b of a column holds the numbers up to its cut b; the last the rest.

    The bins of all columns have their places one after the other, so a histogram is one row of numbers a node.
    """

    cuts: tuple[NDArray[np.float64], ...]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bins of each column."""
        return np.array([len(cuts) + 1 for cuts in self.cuts])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The place of each column's first bin."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def total(self) -> int:
        """Places of all columns together."""
        return int(self.sizes.sum())

    @cached_property
    def column(self) -> NDArray[np.int64]:
        """Each place's column."""
        return np.repeat(np.arange(len(self.cuts)), self.sizes)

    @cached_property
    def threshold(self) -> NDArray[np.float64]:
        """The cut above each place; infinite for a column's last bin, above which nothing lies."""
        return np.concatenate([np.append(cuts, np.inf) for cuts in self.cuts])

    def codes(self, features: Array) -> Codes:
        """(columns, rows): the bin of each number within its column."""
        kind = np.min_scalar_type(int(self.sizes.max()))
        codes = np.empty((len(self.cuts), len(features)), dtype=kind)
        for column, cuts in enumerate(self.cuts):
            codes[column] = np.searchsorted(cuts, features[:, column], side="left")
        return codes


def quantile_cuts(features: Array, bins: int) -> tuple[NDArray[np.float64], ...]:
    """Cut points of each column: between all numbers that occur if they fit into the bins, otherwise at quantiles."""
    return tuple(_cuts(features[:, column].astype(np.float64), bins) for column in range(features.shape[1]))


def _cuts(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    distinct = np.unique(values)
    if len(distinct) <= bins:
        # The middle of two neighbouring numbers can round up to the larger one, which then would not be told apart.
        cuts: NDArray[np.float64] = np.minimum((distinct[:-1] + distinct[1:]) / 2, np.nextafter(distinct[1:], -np.inf))
        return cuts
    cuts = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="midpoint"))
    below: NDArray[np.float64] = cuts[cuts < distinct[-1]]
    return below


@dataclass(frozen=True, eq=False)
class _Column:
    """The bins of a column's rows. Where most rows share a bin only the others are kept: `rows` says which they are."""

    codes: Codes
    size: int
    rows: NDArray[np.intp] | None = None
    common: int = 0

    @classmethod
    def of(cls, codes: Codes, size: int) -> _Column:
        counts = np.bincount(codes, minlength=size)
        common = int(counts.argmax())
        if counts[common] < _COMMON_SHARE * len(codes):
            return cls(codes, size)
        rows = np.flatnonzero(codes != common)
        return cls(codes[rows], size, rows, common)


class RowHistograms:
    """Rows in bins, of which gradients can be summed by node and bin for one tree after another."""

    def __init__(self, features: Array, bins: Bins) -> None:
        self.features, self.bins = features, bins
        self.columns = [_Column.of(codes, int(size)) for codes, size in zip(bins.codes(features), bins.sizes,
                                                                            strict=True)]

    def of(self, gradient: NDArray[np.float64], curvature: NDArray[np.float64]) -> HistogramOf:
        """A function that sums these gradients and second derivatives at the nodes of a tree."""
        return partial(self._at, (np.ascontiguousarray(gradient), np.ascontiguousarray(curvature)))

    def _at(self, row_values: Pair, tree: RegressionTree, nodes: NDArray[np.int64]) -> Pair:
        # Rows at other nodes are counted in one slot more, which is dropped.
        slots = np.full(len(tree), len(nodes), dtype=np.intp)
        slots[nodes] = np.arange(len(nodes))
        slot = slots.take(tree.walk.find(self.features))
        active = np.flatnonzero(slot < len(nodes))
        totals = np.stack([np.bincount(slot, values, minlength=len(nodes) + 1)[:-1] for values in row_values])
        active_slot, active_values = slot.take(active), [values.take(active) for values in row_values]
        sums = np.empty((2, len(nodes), self.bins.total))
        for column, start in zip(self.columns, self.bins.starts, strict=True):
            here = sums[:, :, start:start + column.size]
            if column.rows is None:
                here[:] = _sums(column.codes.take(active), active_slot, active_values, len(nodes), column.size)
            else:
                values = [values.take(column.rows) for values in row_values]
                here[:] = _sums(column.codes, slot.take(column.rows), values, len(nodes), column.size)
                here[:, :, column.common] = totals - here.sum(axis=2)
        return sums[0], sums[1]


def _sums(codes: Array, slot: NDArray[np.intp], values: Sequence[NDArray[np.float64]], slots: int,
          size: int) -> NDArray[np.float64]:
    """(values, slots, size) sums by slot and bin; rows of a slot beyond the last one are left out."""
    place = slot * size + codes
    summed = [np.bincount(place, each, minlength=(slots + 1) * size) for each in values]
    sums: NDArray[np.float64] = np.stack(summed, dtype=np.float64)
    return sums.reshape(len(values), slots + 1, size)[:, :-1]


class Gains(NamedTuple):
    """What each offer would earn (minus infinity where it may not be taken), and what of that may be rounding."""

    each: NDArray[np.float64]
    tolerance: float


class Earning(Protocol):
    """How the worth of an offer follows from the sums of its left side and of the whole node."""

    def gains(self, left: NDArray[np.float64], total: NDArray[np.float64]) -> Gains:
        """Of the (offers, values) sums on the left and the (values,) sums of the node."""
        ...


@dataclass(frozen=True)
class LossEarned:
    """What a split lowers the loss of boosted trees by; values are sums of gradients and second derivatives."""

    growth: Growth

    def gains(self, left: NDArray[np.float64], total: NDArray[np.float64]) -> Gains:
        """Half of G^2 / (H + lambda) of both sides minus that of the node, minus gamma (Chen and Guestrin, eq. 7)."""
        how, right = self.growth, total - left
        smallest = max(how.min_child_weight * (1 - ROUNDING), ROUNDING * total[1], 1e-12)
        usable = (left[:, 1] >= smallest) & (right[:, 1] >= smallest)
        now = float(self._score(total[None])[0]) if total[1] + how.l2 > 0 else 0.0
        each = np.full(len(left), -np.inf)
        each[usable] = self._score(left[usable]) + self._score(right[usable]) - now
        largest = float(each.max(initial=0.0))
        return Gains(each - how.min_gain, ROUNDING * max(now, largest))

    def value(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """(nodes,) what leaves of these (nodes, 2) sums add to a margin."""
        weight = sums[:, 1] + self.growth.l2
        best: NDArray[np.float64] = np.divide(sums[:, 0], weight, out=np.zeros(len(sums)), where=weight > 0)
        return -self.growth.learning_rate * best

    def _score(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = sums[:, 0] ** 2 / (sums[:, 1] + self.growth.l2) / 2
        return scores


@dataclass(frozen=True)
class PurityEarned:
    """What a split lowers the impurity by; values are rows of each class."""

    criterion: Criterion = "gini"
    min_split: float = 2
    min_leaf: float = 1

    def gains(self, left: NDArray[np.float64], total: NDArray[np.float64]) -> Gains:
        """Impurity of the node minus that of both sides, each weighted by its rows."""
        right, rows = total - left, float(total.sum())
        usable = (left.sum(axis=1) >= self.min_leaf) & (right.sum(axis=1) >= self.min_leaf) & (rows >= self.min_split)
        now = float(self._impurity(total[None])[0])
        each = np.full(len(left), -np.inf)
        each[usable] = now - self._impurity(left[usable]) - self._impurity(right[usable])
        return Gains(each, ROUNDING * rows)

    def _impurity(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows times gini impurity or entropy."""
        rows = counts.sum(axis=1, keepdims=True)
        if self.criterion == "gini":
            gini: NDArray[np.float64] = (rows[:, 0] ** 2 - (counts ** 2).sum(axis=1)) / rows[:, 0]
            return gini
        logs = np.log2(counts / rows, out=np.zeros_like(counts), where=counts > 0)
        entropy: NDArray[np.float64] = -(counts * logs).sum(axis=1)
        return entropy


class Best(NamedTuple):
    """The offer that won: whose it is, by place among the holders, its place among that holder's, and its gain."""

    holder: int
    offer: int
    gain: float


def best_offer(earning: Earning, offers: Sequence[NDArray[np.float64]], total: NDArray[np.float64]) -> Best | None:
    """The best of all holders' offers for a node; of equally good ones the first. None where none earns anything."""
    found = [earning.gains(left, total) for left in offers]
    best = max((float(gains.each.max(initial=-np.inf)) for gains in found), default=-np.inf)
    tolerance = max((gains.tolerance for gains in found), default=0.0)
    if not best > tolerance:
        return None
    for holder, gains in enumerate(found):
        equal = np.flatnonzero(gains.each >= best - tolerance)
        if len(equal):
            return Best(holder, int(equal[0]), float(gains.each[equal[0]]))
    return None
