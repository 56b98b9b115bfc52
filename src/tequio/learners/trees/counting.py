"""Tables of counts (node x category x class), from which ID3 chooses splits. Tables of several parties add up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.learners.trees.tree import Tree

    CountsOf = Callable[[Tree, NDArray[np.int64]], NDArray[np.float64]]
    """The table of some nodes of a tree that is still growing: (nodes, categories, classes)."""


@dataclass(frozen=True)
class Categories:
    """Where each column's categories have their place in a table of counts. `sizes` are the columns' domains."""

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, schema: Schema) -> Categories:
        """The places for data of a schema whose columns are all categorical."""
        return cls(tuple(len(feature.domain or ()) for feature in schema.features))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first place of each column."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @property
    def total(self) -> int:
        """Places of all columns together."""
        return sum(self.sizes)


def counts_of_rows(codes: NDArray[np.int64], labels: NDArray[np.int64], categories: Categories, classes: int,
                   weights: NDArray[np.float64] | None = None) -> CountsOf:
    """A function that counts these rows at the nodes of a tree, of which row i counts `weights[i]` times."""
    cells = (codes + categories.starts) * classes + labels[:, None]

    def count(tree: Tree, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        slots = np.full(len(tree), -1, dtype=np.int64)
        slots[nodes] = np.arange(len(nodes))
        slot = slots.take(tree.find(codes))
        rows = np.flatnonzero(slot >= 0)
        shape = (len(nodes), categories.total, classes)
        places = cells[rows] + (slot[rows] * (categories.total * classes))[:, None]
        repeated = None if weights is None else np.repeat(weights[rows], cells.shape[1])
        return np.bincount(places.reshape(-1), repeated, minlength=int(np.prod(shape))).reshape(shape).astype(float)

    return count


def count_table(tree: Tree, nodes: NDArray[np.int64], codes: NDArray[np.int64], labels: NDArray[np.int64],
                categories: Categories, classes: int,
                weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """(nodes, categories, classes): how many of these rows a tree takes to each of the nodes, by category and class."""
    return counts_of_rows(codes, labels, categories, classes, weights)(tree, nodes)


def information_gain(table: NDArray[np.float64], categories: Categories) -> NDArray[np.float64]:
    """(nodes, columns): bits that splitting a node on a column tells about the class."""
    first = table[:, :categories.sizes[0]].sum(axis=1)
    total = first.sum(axis=1)
    within = _times_log(table.sum(axis=2)) - _times_log(table).sum(axis=2)
    remaining = np.add.reduceat(within, categories.starts, axis=1)
    before = _times_log(total) - _times_log(first).sum(axis=1)
    gain: NDArray[np.float64] = (before[:, None] - remaining) / np.maximum(total, 1e-300)[:, None]
    return gain


def _times_log(counts: NDArray[Any]) -> NDArray[np.float64]:
    """n log2 n, and 0 where n is 0."""
    product: NDArray[np.float64] = counts * np.log2(np.where(counts > 0, counts, 1.0))
    return product
