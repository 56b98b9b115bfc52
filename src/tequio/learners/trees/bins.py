"""Numbers in bins, and sums of gradients by bin: histograms, which add up over parties."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tequio.learners.trees.boosted import RegressionTree

    Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
    """Something of the gradients, and the same of the second derivatives."""

    HistogramOf = Callable[[RegressionTree, NDArray[np.int64]], Pair]
    """(nodes, places) sums of gradients and of second derivatives of the rows that a growing tree takes to nodes."""


_COMMON_SHARE = 0.6  # of the rows in one bin, from which on summing the others and subtracting is faster


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

    def codes(self, features: NDArray[Any]) -> NDArray[np.unsignedinteger[Any]]:
        """(columns, rows): the bin of each number within its column."""
        kind = np.min_scalar_type(int(self.sizes.max()))
        codes = np.empty((len(self.cuts), len(features)), dtype=kind)
        for column, cuts in enumerate(self.cuts):
            codes[column] = np.searchsorted(cuts, features[:, column], side="left")
        return codes


def quantile_cuts(features: NDArray[Any], bins: int) -> tuple[NDArray[np.float64], ...]:
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

    codes: NDArray[np.unsignedinteger[Any]]
    size: int
    rows: NDArray[np.intp] | None = None
    common: int = 0

    @classmethod
    def of(cls, codes: NDArray[np.unsignedinteger[Any]], size: int) -> _Column:
        counts = np.bincount(codes, minlength=size)
        common = int(counts.argmax())
        if counts[common] < _COMMON_SHARE * len(codes):
            return cls(codes, size)
        rows = np.flatnonzero(codes != common)
        return cls(codes[rows], size, rows, common)


class RowHistograms:
    """Rows in bins, of which gradients can be summed by node and bin for one tree after another."""

    def __init__(self, features: NDArray[Any], bins: Bins) -> None:
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


def _sums(codes: NDArray[Any], slot: NDArray[np.intp], values: Sequence[NDArray[np.float64]], slots: int,
          size: int) -> NDArray[np.float64]:
    """(values, slots, size) sums by slot and bin; rows of a slot beyond the last one are left out."""
    place = slot * size + codes
    summed = [np.bincount(place, each, minlength=(slots + 1) * size) for each in values]
    sums: NDArray[np.float64] = np.stack(summed, dtype=np.float64)
    return sums.reshape(len(values), slots + 1, size)[:, :-1]
