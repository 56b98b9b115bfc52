"""ID3: multiway trees on categories, grown level by level from tables of counts (node x category x class).

Tables of several parties add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from tequio.learners.trees.learner import Scoring, SplitSize, checked_weights, class_codes, smallest_split
from tequio.learners.trees.mixed import MixedGrowth, MixedRows, weighted_impurity
from tequio.learners.trees.places import is_mixed, mixed_rows
from tequio.learners.trees.pruning import without_weak_branches
from tequio.learners.trees.tree import LEAF, Tree
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Schema

    CountsOf = Callable[[Tree, NDArray[np.int64]], NDArray[np.float64]]
    """The table of some nodes of a tree that is still growing: (nodes, categories, classes)."""

Children = Literal["domain", "observed"]

_SAME_GAIN = 1e-10  # bits; gains closer than this differ by rounding only
_TABLE_CELLS = 1 << 24  # 128 MB of counts at a time


@register("learner", "id3", paper="Quinlan, 1986")
@dataclass(frozen=True)
class ID3(Scoring):
    """ID3 decision tree: a child for each category, numbers split at thresholds, chosen by information gain.

    Only categories make the tree of the source. A number may be split again further down, at one of at most 254
    thresholds. Missing values have a child of their own; at a threshold they go to the side where they tell more.

    Parameters:
        depth: most conditions from the root to a leaf (0: half as many as there are columns)
        min_split: rows that a node needs to be split, as a number or as a share of all rows
        min_leaf: rows that each leaf needs; a category that no row has is no matter
        children: domain (a child for each category of the schema; one without rows has its parent's class shares)
            or observed (a child only for categories met at the node)
        ccp_alpha: bits, as a share of all rows, that each leaf more has to tell, or its branch is cut off again (0: no
            pruning)
    """

    depth: Annotated[int, Ge(0)] = 0
    min_split: SplitSize = 2
    min_leaf: Annotated[int, Ge(1)] = 1
    children: Children = "domain"
    ccp_alpha: Annotated[float, Ge(0)] = 0.0

    takes: ClassVar[frozenset[str]] = frozenset({"number", "category", "missing"})

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: NDArray[np.float64] | None = None) -> Tree:
        """The tree of these rows; nothing is drawn, so the rng does not matter."""
        rows, labels, weights = mixed_rows(data, "id3"), class_codes(data, "id3"), checked_weights(weights, len(data))
        if is_mixed(data, rows, categorical=True):
            return MixedRows(data, rows, "id3").grow(self.growth(len(data.schema.features)), weights)
        categories, classes = Categories.of(data.schema), data.schema.target.size
        counts_of = counts_of_rows(rows.astype(np.int64), labels, categories, classes, weights)
        tree = grow_id3(counts_of, categories, classes, depth=self.depth, min_split=self.min_split,
                        min_leaf=self.min_leaf, children=self.children)
        cost = weighted_impurity(tree.counts, "entropy") / tree.support[0]
        return without_weak_branches(tree, self.ccp_alpha, cost) if self.ccp_alpha else tree

    def growth(self, columns: int) -> MixedGrowth:
        """How a tree of numbers, categories and missing values grows."""
        return MixedGrowth(self.depth or max(columns // 2, 1), self.min_split, self.min_leaf, multiway=True,
                           impurity="entropy", observed=self.children == "observed", ccp_alpha=self.ccp_alpha)


def grow_id3(counts_of: CountsOf, categories: Categories, classes: int, *, depth: int = 0, min_split: float = 2,
             min_leaf: int = 1, children: Children = "domain") -> Tree:
    """Grow a tree from tables of counts, whoever counted: one party, or many whose tables were added.

    `counts_of(tree, nodes)` gives the table (nodes, categories, classes) of the rows that the tree, as far as it has
    grown, takes to these nodes. It is asked once a level, the root first.
    """
    growth = _Growth(categories, classes, children, min_leaf)
    nodes = np.zeros(1, dtype=np.int64)
    for _ in range(depth or max(len(categories.sizes) // 2, 1)):
        new = [growth.split(part, counts_of(growth.tree(), part), min_split)
               for part in _parts(nodes, categories.total * classes)]
        nodes = growth.divisible(np.concatenate(new), min_split)
        if not len(nodes):
            break
    return growth.tree()


class _Growth:
    """The arrays of a tree that is still growing, and which columns lie above each node."""

    def __init__(self, categories: Categories, classes: int, children: Children, min_leaf: int) -> None:
        self.min_leaf = min_leaf
        self.categories, self.sizes, self.only_observed = categories, np.array(categories.sizes), children == "observed"
        self.feature = np.full(1, LEAF)
        self.children = np.full((1, self.sizes.max()), LEAF)
        self.counts = np.zeros((1, classes))
        self.used = np.zeros((1, len(self.sizes)), dtype=bool)

    def tree(self) -> Tree:
        """The tree so far."""
        inner = self.feature[self.feature != LEAF]
        width = self.sizes[inner].max() if len(inner) else 1
        return Tree("multiway", self.feature.astype(np.int32), np.full(len(self.feature), np.nan),
                    self.children[:, :width].astype(np.int32), self.counts.copy())

    def divisible(self, nodes: NDArray[np.int64], min_split: float) -> NDArray[np.int64]:
        """Those of the nodes that may be worth a look: not pure, not too small, with a column left."""
        counts = self.counts[nodes]
        total = counts.sum(axis=1)
        large = total >= smallest_split(min_split, float(self.counts[0].sum()))
        keep: NDArray[np.bool_] = large & (counts.max(axis=1) < total) & ~self.used[nodes].all(axis=1)
        return nodes[keep]

    def split(self, nodes: NDArray[np.int64], table: NDArray[np.float64], min_split: float) -> NDArray[np.int64]:
        """Split the nodes on their best columns where that tells anything; gives the new nodes."""
        self.counts[nodes] = table[:, :self.sizes[0]].sum(axis=1)
        gain = np.where(self.used[nodes] | self._too_small(table), -np.inf, information_gain(table, self.categories))
        best = gain.max(axis=1, keepdims=True)
        column = (gain >= best - _SAME_GAIN).argmax(axis=1)
        large = self.counts[nodes].sum(axis=1) >= smallest_split(min_split, float(self.counts[0].sum()))
        splits = np.flatnonzero((best[:, 0] > _SAME_GAIN) & large)
        return self._add_children(nodes[splits], column[splits], table[splits])

    def _too_small(self, table: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(nodes, columns) whether a category would make a leaf of too few rows."""
        rows = table.sum(axis=2)
        few = (self.min_leaf > 1) & (rows > 0) & (rows < self.min_leaf)  # noise may leave any count its fractions
        return np.logical_or.reduceat(few, self.categories.starts, axis=1)

    def _add_children(self, nodes: NDArray[np.int64], column: NDArray[np.int64],
                      table: NDArray[np.float64]) -> NDArray[np.int64]:
        category = np.arange(self.children.shape[1])
        present = category < self.sizes[column][:, None]
        places = np.where(present, self.categories.starts[column][:, None] + category, 0)
        counts = np.take_along_axis(table, places[:, :, None], axis=1)
        if self.only_observed:
            present &= counts.sum(axis=2) > 0
        new = np.arange(present.sum()) + len(self.feature)
        self.feature[nodes] = column
        numbered = np.full(present.shape, LEAF)
        numbered[present] = new
        self.children[nodes] = numbered
        self.used = np.concatenate([self.used, np.repeat(self._used_below(nodes), present.sum(axis=1), axis=0)])
        self.feature = np.concatenate([self.feature, np.full(len(new), LEAF)])
        self.children = np.concatenate([self.children, np.full((len(new), len(category)), LEAF)])
        self.counts = np.concatenate([self.counts, counts[present]])
        return new

    def _used_below(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        below = self.used[nodes]
        below[np.arange(len(nodes)), self.feature[nodes]] = True
        return below


def _parts(nodes: NDArray[np.int64], cells: int) -> list[NDArray[np.int64]]:
    """The nodes in as few parts as keep a table of counts within memory."""
    return np.array_split(nodes, -(-len(nodes) * cells // _TABLE_CELLS))


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


def _times_log(counts: Array) -> NDArray[np.float64]:
    """n log2 n, and 0 where n is 0."""
    product: NDArray[np.float64] = counts * np.log2(np.where(counts > 0, counts, 1.0))
    return product
