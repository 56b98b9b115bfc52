"""Columns of any kind as places of one table: bins of numbers, categories, and a place for what is missing.

Sums over rows by node and place are all that a tree needs to grow; tables of several parties add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError, listed
from tequio.learners.trees.bins import quantile_cuts
from tequio.learners.trees.learner import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.trees.tree import Tree

    SumsOf = Callable[[Tree, NDArray[np.int64]], NDArray[np.float64]]
    """The sums at some nodes of a tree that is still growing: (nodes, places, values)."""

MOST_BINS = 255
"""Bins of a number, one for each different number where there are no more."""


@dataclass(frozen=True, eq=False)
class Places:
    """Where each column has its places: its bins or categories, one after the other, then what is missing.

    cuts:        of each column the ascending cut points of its numbers; nothing for categories
    categories:  of each column how many categories it has; 0 for numbers
    """

    cuts: tuple[NDArray[np.float64], ...] = field(repr=False)
    categories: tuple[int, ...]

    @classmethod
    def of(cls, data: Dataset, rows: Array) -> Places:
        """The places of these rows, with cuts between the numbers that occur in them."""
        nothing = np.zeros(0)
        cuts = [nothing if feature.categorical else quantile_cuts(_known(rows[:, place]), MOST_BINS)[0]
                for place, feature in enumerate(data.schema.features)]
        return cls(tuple(cuts), tuple(len(feature.domain or ()) for feature in data.schema.features))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Places of each column without that for missing values."""
        return np.array([count or len(cuts) + 1 for count, cuts in zip(self.categories, self.cuts, strict=True)])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first place of each column."""
        return np.cumsum(self.sizes + 1) - self.sizes - 1

    @property
    def total(self) -> int:
        """Places of all columns together."""
        return int(self.sizes.sum()) + len(self.sizes)

    def codes(self, rows: Array) -> NDArray[np.int64]:
        """(rows, columns): the place of each value among those of all columns."""
        codes = np.empty(rows.shape, dtype=np.int64)
        for column, (count, cuts) in enumerate(zip(self.categories, self.cuts, strict=True)):
            values = rows[:, column]
            missing = values != values
            found = np.where(missing, 0, values).astype(np.int64) if count else np.searchsorted(cuts, values)
            codes[:, column] = self.starts[column] + np.where(missing, self.sizes[column], found)
        return codes


def _known(values: Array) -> NDArray[np.float64]:
    known: NDArray[np.float64] = values[values == values].astype(np.float64)[:, None]
    return known


class RowSums:
    """Rows by place, of which values can be summed by node and place for one tree after another."""

    def __init__(self, rows: Array, places: Places) -> None:
        self.rows, self.places, self.codes = rows, places, places.codes(rows)

    def of(self, values: NDArray[np.float64]) -> SumsOf:
        """A function that sums (rows, values) numbers at the nodes of a tree."""
        return partial(self._at, values)

    def _at(self, values: NDArray[np.float64], tree: Tree, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        slots = np.full(len(tree), -1, dtype=np.int64)
        slots[nodes] = np.arange(len(nodes))
        slot = slots.take(tree.find(self.rows))
        here = np.flatnonzero(slot >= 0)
        cells = (self.codes[here] + (slot[here] * self.places.total)[:, None]).reshape(-1)
        size = len(nodes) * self.places.total
        sums = np.empty((size, values.shape[1]))
        for place, of_row in enumerate(values[here].T):
            sums[:, place] = np.bincount(cells, np.repeat(of_row, self.codes.shape[1]), minlength=size)
        return sums.reshape(len(nodes), self.places.total, -1)


def mixed_rows(data: Dataset, learner: str) -> Array:
    """The rows to fit on, of columns of any kind, which may miss values if the dataset says so."""
    if not len(data):
        raise DataError(f"'{data.name}' has no rows to fit a tree on", remedy="raise the partition's minimum of rows")
    rows = rows_of(data)
    if rows.dtype.kind != "f":
        return rows
    wrong = ~np.isfinite(rows) if not data.has_missing else np.isinf(rows)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        name = data.schema.names[column]
        if np.isinf(rows[row, column]):
            raise DataError(f"column '{name}' of '{data.name}' has an infinite value (row {row}), and '{learner}' "
                            "splits finite numbers", remedy=f"correct the value, or set data.ignore = {listed(name)}")
        raise DataError(f"column '{name}' of '{data.name}' has a missing value (row {row})",
                        remedy="drop such rows or set data.missing = 'keep' or 'median'")
    return rows


def is_mixed(data: Dataset, rows: Array, *, categorical: bool) -> bool:
    """Whether these rows hold more than what a tree of one kind can split: missing values, or the other kind."""
    return any(feature.categorical != categorical for feature in data.schema.features) or \
        (data.has_missing and bool(np.isnan(rows).any()))
