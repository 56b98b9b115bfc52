"""A decision tree as arrays. Binary trees split numbers at thresholds; multiway trees have a child per category; mixed
trees do both, and say where missing values go.

Rows go down a tree many at a time: a few table look-ups per level, no branch per row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import DataError, PayloadError
from tequio.noise.sampling import discrete_laplace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.learners.learner import Payload, Received
    from tequio.noise.coins import Coins

Kind = Literal["binary", "multiway", "mixed"]

LEAF = -1
"""Stands for "no feature" at a leaf and for "no child"."""

EVERY_NUMBER = float(np.finfo(np.float64).max)
"""The threshold of a mixed tree's node that tells missing values from all others."""

NO_THRESHOLD = -EVERY_NUMBER
"""Stands in payloads, which hold no NaN and nothing infinite, for "no threshold" in a mixed tree."""

_ROWS_AT_A_TIME = 8192  # keeps the working arrays in the cache
_LEVELS_AT_A_TIME = 4  # how often rows that have arrived are set aside


@dataclass(frozen=True, eq=False)
class Tree:
    """Node 0 is the root; children come after their parents.

    kind:       binary (x <= threshold goes to child 0, else to child 1), multiway (category code c goes to child c) or
                mixed (a node with a threshold is binary; without one code c goes to child c, which several may share)
    feature:    (nodes,) column that a node splits on, LEAF at leaves
    threshold:  (nodes,) where a binary node splits; NaN at leaves and where a node splits categories
    children:   (nodes, width) node numbers, LEAF where there is no child
    counts:     (nodes, classes) rows of each class that reached the node in training (or weights, after a fusion)
    missing:    (nodes,) of a mixed tree: the child for missing values, which may be for these alone; LEAF where none
                were met in training: they go to the child with most rows
    value:      (nodes,) of a regression tree: the mean of the node's rows; its counts have one column
    """

    kind: Kind
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)
    counts: NDArray[np.float64] = field(repr=False)
    missing: NDArray[np.int32] | None = field(default=None, repr=False)
    value: NDArray[np.float64] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def classes(self) -> int:
        """How many classes the counts speak of."""
        return int(self.counts.shape[1])

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """Numbers of the leaves."""
        return np.flatnonzero(self.feature == LEAF)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Edges from the root to each node."""
        return node_depths(self.branches)

    @cached_property
    def branches(self) -> NDArray[np.int32]:
        """(nodes, places) the children with each child once; a mixed tree's last place is that for missing values."""
        return self.children if self.missing is None else each_once(self.children, self.missing)

    @cached_property
    def default(self) -> NDArray[np.int64]:
        """(nodes,) of a mixed tree: the child that missing values go to, LEAF at leaves."""
        assert self.missing is not None
        rows = np.where(self.branches != LEAF, self.support[self.branches], -1.0)
        most = np.take_along_axis(self.branches, rows.argmax(axis=1)[:, None], axis=1)[:, 0]
        return np.where(self.missing != LEAF, self.missing, most).astype(np.int64)

    @cached_property
    def parents(self) -> NDArray[np.int64]:
        """Each node's parent, LEAF for the root."""
        parents = np.full(len(self), LEAF, dtype=np.int64)
        node, place = np.nonzero(self.branches != LEAF)
        parents[self.branches[node, place]] = node
        return parents

    @cached_property
    def support(self) -> NDArray[np.float64]:
        """(nodes,) rows that reached each node in training; 0 for a category that was never met there."""
        total: NDArray[np.float64] = self.counts.sum(axis=1)
        return total

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """(nodes, classes) class shares at each node. A node that no row reached has the shares of its parent."""
        counted = np.arange(len(self))
        while (empty := (self.support[counted] <= 0) & (counted > 0)).any():
            counted = np.where(empty, self.parents[counted], counted)
        counts, totals = self.counts[counted], self.support[counted][:, None]
        shares: NDArray[np.float64] = np.full_like(counts, 1 / self.classes)
        np.divide(counts, totals, out=shares, where=totals > 0)
        return shares

    def find(self, features: Array) -> NDArray[np.intp]:
        """The node where each row ends: a leaf, or an inner node of a multiway tree without a child for the category.

        A missing value goes right in a binary tree, stays where it is in a multiway tree, and in a mixed tree goes
        where such values went in training.
        """
        return self.walk.find(features)

    def stuck(self, features: Array) -> NDArray[np.bool_]:
        """Which rows end at an inner node, because it has no child for their category."""
        ends_inside: NDArray[np.bool_] = self.feature[self.find(features)] != LEAF
        return ends_inside

    def predict(self, features: Array) -> NDArray[np.float64]:
        """(rows, classes) class shares of the node where each row ends, or (rows,) means of a regression tree."""
        if self.value is not None:
            return self.value.take(self.find(features))
        shares: NDArray[np.float64] = self.probabilities.take(self.find(features), axis=0)
        return shares

    @cached_property
    def walk(self) -> Walk:
        """The tables by which rows go down the tree."""
        if self.missing is not None:
            return Walk.of_mixed(self.feature, self.threshold, self.children, self.default, self.depths)
        return Walk.of(self.feature, self.children, self.threshold if self.kind == "binary" else None)

    @property
    def extras(self) -> Payload:
        """What only mixed trees and regression trees have."""
        known = {"missing": self.missing, "value": self.value}
        return {name: values for name, values in known.items() if values is not None}

    def to_payload(self) -> Payload:
        """The tree as a payload: it may travel. NaN may not, so where there is no threshold it is 0."""
        return {"kind": self.kind, "feature": self.feature, "threshold": self._thresholds(elsewhere=0.0),
                "children": self.children, "counts": self.counts, **self.extras}

    @classmethod
    def from_payload(cls, payload: Received, *, features: int, classes: int, whose: str = "a party") -> Tree:
        """The tree back from a payload that somebody sent; anything but a sound tree for this data is refused."""
        try:
            tree = cls(payload["kind"], whole_numbers(payload["feature"]), real_numbers(payload["threshold"]),
                       whole_numbers(payload["children"]), real_numbers(payload["counts"]),
                       whole_numbers(payload["missing"]) if payload["kind"] == "mixed" else None,
                       real_numbers(payload["value"]) if "value" in payload else None)
            if tree.kind == "mixed":
                tree = replace(tree, threshold=_opened_thresholds(payload["threshold"]))
        except (KeyError, TypeError, ValueError) as cause:
            raise PayloadError(f"{whose} sent something that is not a tree: {cause!r}") from None
        fault = fault_of(tree, features, classes)
        if fault:
            raise PayloadError(f"{whose} sent a tree that is not sound: {fault}")
        return tree if tree.kind == "mixed" else replace(tree, threshold=tree._thresholds(elsewhere=np.nan))

    def _thresholds(self, elsewhere: float) -> NDArray[np.float64]:
        if self.kind == "mixed":
            return np.where(np.isnan(self.threshold), NO_THRESHOLD, self.threshold)
        return np.where((self.feature != LEAF) & (self.kind == "binary"), self.threshold, elsewhere)


def _opened_thresholds(values: Any) -> NDArray[np.float64]:
    """Thresholds of a mixed tree, which are given as a number of their own where there is none."""
    thresholds = real_numbers(values)
    return np.where(thresholds == NO_THRESHOLD, np.nan, thresholds)


def each_once(children: NDArray[np.int32], missing: NDArray[np.int32]) -> NDArray[np.int32]:
    """The children and the one for missing values, the second and further mentions of a child left out."""
    together = np.concatenate([children, missing[:, None]], axis=1)
    once = np.full(together.size, LEAF, dtype=np.int32)
    child, first = np.unique(together, return_index=True)
    once[first] = child
    return once.reshape(together.shape)


def whole_numbers(values: Any) -> NDArray[np.int32]:
    """An array of node or column numbers, from an array or from lists."""
    array = np.asarray(values)
    # A number that does not fit would come out as another one.
    if array.size and (array.dtype.kind not in "iu" or array.min() < LEAF or array.max() > np.iinfo(np.int32).max):
        raise ValueError("nodes and columns are not whole numbers from -1 up")
    return array.astype(np.int32)


def real_numbers(values: Any) -> NDArray[np.float64]:
    """An array of thresholds, counts or other numbers, from an array or from lists."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ValueError("thresholds and counts are not numbers")
    return array.astype(np.float64)


def fault_of(tree: Tree, features: int, classes: int) -> str:
    """What is wrong with a tree, or nothing."""
    nodes = len(tree.feature) if tree.feature.ndim == 1 else 0
    if not isinstance(tree.kind, str) or tree.kind not in ("binary", "multiway", "mixed"):
        return f"its kind is {tree.kind!r}"
    if not nodes or tree.threshold.shape != (nodes,) or tree.children.ndim != 2 or len(tree.children) != nodes or \
            tree.counts.ndim != 2 or len(tree.counts) != nodes:
        return "its arrays do not fit each other"
    if tree.counts.shape[1] != classes:
        return f"it speaks of {tree.counts.shape[1]} classes instead of {classes}"
    if not np.isfinite(tree.counts).all() or (tree.counts < 0).any():
        return "it has counts that are negative or not finite"
    if tree.value is not None and (classes != 1 or tree.value.shape != (nodes,) or not np.isfinite(tree.value).all()):
        return "it has means that do not fit its nodes, are not finite, or have no place here"
    if tree.missing is not None:
        return _fault_of_mixed(tree, features)
    return fault_of_splits(tree.kind, tree.feature, tree.threshold, tree.children, features)


def _fault_of_mixed(tree: Tree, features: int) -> str:
    """The same for a tree that says where missing values go."""
    assert tree.missing is not None
    inner = tree.feature != LEAF
    if tree.missing.shape != tree.feature.shape:
        return "its arrays do not fit each other"
    if (tree.feature[inner] >= features).any():
        return "it splits on a column that does not exist"
    numeric = inner & ~np.isnan(tree.threshold)
    if np.isinf(tree.threshold[numeric]).any():
        return "it has a threshold that is not a finite number"
    first, others = tree.children[numeric, :2], tree.children[numeric, 2:]
    if numeric.any() and (first.shape[1] < 2 or (first == LEAF).any() or (first[:, 0] == first[:, 1]).any() or
                          (others != LEAF).any()):
        return "a node with a threshold does not have two children"
    together = np.concatenate([tree.children, tree.missing[:, None]], axis=1)
    node, place = np.nonzero(together != LEAF)
    child = together[node, place]
    if child.size and (child >= len(tree)).any():
        return "it names a child that does not exist"
    if np.isin(tree.missing[numeric], first).sum() + (tree.missing[numeric] == LEAF).sum() < numeric.sum():
        return "a node with a threshold sends missing values to none of its children"
    if len(np.unique(np.stack([node, child]), axis=1).T) != len(np.unique(child)):
        return "a node has two parents or none"
    return _fault_of_children("mixed", inner, each_once(tree.children, tree.missing))


def fault_of_splits(kind: Kind, feature: Array, threshold: Array, children: Array,
                    features: int) -> str:
    """What is wrong with the shape of a tree whose arrays fit each other, or nothing."""
    inner = feature != LEAF
    if (feature[inner] < 0).any() or (feature[inner] >= features).any():
        return "it splits on a column that does not exist"
    if kind == "binary" and children.shape[1] != 2:
        return f"its nodes have room for {children.shape[1]} children instead of 2"
    if kind == "binary" and not np.isfinite(threshold[inner]).all():
        return "it has a threshold that is not a finite number"
    return _fault_of_children(kind, inner, children)


def _fault_of_children(kind: Kind, inner: NDArray[np.bool_], children: Array) -> str:
    given, held = children[children != LEAF], (children != LEAF).sum(axis=1)
    if held[~inner].any():
        return "a leaf has children"
    if (held[inner] < (2 if kind == "binary" else 1)).any():
        return "a node lacks a child"
    if (given < 0).any() or (given >= len(children)).any():
        return "it names a child that does not exist"
    # Every node but the root has exactly one parent that comes before it, so there can be no cycle.
    if (given <= np.repeat(np.arange(len(children)), held)).any():
        return "a child comes before its parent (a cycle)"
    return "" if len(np.unique(given)) == len(given) == len(children) - 1 else "a node has two parents or none"


@dataclass(frozen=True, eq=False)
class Walk:
    """Look-up tables of a tree. At a leaf, and where there is no child, the way on leads back to the node itself.

    column:     (nodes,) column that a node looks at; 0 at leaves, where it does not matter
    threshold:  (nodes,) where a binary node splits; None in a multiway tree
    onward:     (nodes * width,) the next node; multiway trees have one more place a node, for categories never met,
                which is that for missing values in a mixed tree
    mixed:      whether nodes without a threshold look at categories
    """

    column: NDArray[np.intp]
    threshold: NDArray[np.float64] | None = field(repr=False)
    onward: NDArray[np.intp] = field(repr=False)
    width: int
    levels: int
    leaf: NDArray[np.bool_] = field(repr=False)
    mixed: bool = False

    @classmethod
    def of(cls, feature: Array, children: Array, threshold: NDArray[np.float64] | None) -> Walk:
        """The tables of a tree of which children come after their parents."""
        width = children.shape[1] + (threshold is None)
        onward = np.repeat(np.arange(len(feature), dtype=np.intp)[:, None], width, axis=1)
        node, place = np.nonzero(children != LEAF)
        onward[node, place] = children[node, place]
        return cls(np.maximum(feature, 0).astype(np.intp), threshold, onward.reshape(-1), width,
                   int(node_depths(children).max()), feature == LEAF)

    @classmethod
    def of_mixed(cls, feature: Array, threshold: NDArray[np.float64], children: Array, missing: Array,
                 depths: NDArray[np.int64]) -> Walk:
        """The tables of a tree that says where missing values go."""
        ways = np.concatenate([children, missing[:, None]], axis=1).astype(np.intp)
        onward = np.where(ways != LEAF, ways, np.arange(len(feature))[:, None])
        return cls(np.maximum(feature, 0).astype(np.intp), threshold, onward.reshape(-1), ways.shape[1],
                   int(depths.max()), feature == LEAF, mixed=True)

    def find(self, features: Array) -> NDArray[np.intp]:
        """The node where each row ends."""
        found = np.zeros(len(features), dtype=np.intp)
        for start in range(0, len(features), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            self._descend(np.ascontiguousarray(features[part]), found[part])
        return found

    def step(self, here: NDArray[np.intp], flat: Array, row_starts: NDArray[np.intp]) -> NDArray[np.intp]:
        """One level down from node `here`, for rows that start at these places of the flattened features."""
        values = flat.take(row_starts + self.column.take(here))
        if self.mixed:
            assert self.threshold is not None
            threshold = self.threshold.take(here)
            branch = np.where(np.isnan(threshold), values, values > threshold)
            known = (values == values) & (branch >= 0) & (branch < self.width - 1)
            return self.onward.take(here * self.width + np.where(known, branch, self.width - 1).astype(np.intp))
        if self.threshold is not None:
            # A missing value compares false, so it goes right; `values > threshold` would send it left.
            return self.onward.take(2 * here + ~(values <= self.threshold.take(here)))
        known = (values >= 0) & (values < self.width - 1)
        return self.onward.take(here * self.width + np.where(known, values, self.width - 1).astype(np.intp))

    def _descend(self, features: Array, found: NDArray[np.intp]) -> None:
        flat, rows = features.reshape(-1), np.arange(len(features))
        for top in range(0, self.levels, _LEVELS_AT_A_TIME):
            here, row_starts = found[rows], rows * features.shape[1]
            for _ in range(min(_LEVELS_AT_A_TIME, self.levels - top)):
                here = self.step(here, flat, row_starts)
            found[rows] = here
            rows = rows[~self.leaf.take(here)]
            if not len(rows):
                return


def node_depths(children: Array) -> NDArray[np.int64]:
    """Edges from the root to each node, of a tree of which children come after their parents."""
    depths = np.zeros(len(children), dtype=np.int64)
    level = np.zeros(1, dtype=np.int64)
    for depth in range(len(children)):
        depths[level] = depth
        below = children[level]
        level = below[below != LEAF]
        if not len(level):
            break
    return depths


def with_noisy_counts(tree: Tree, epsilon: float, coins: Coins) -> Tree:
    """The same tree; counts of its leaves are noisy and not negative, those of inner nodes are sums of them.

    Each row is in one leaf and of one class, so one row more or less changes one count by one. Discrete Laplace noise
    (Ghosh, Roughgarden, Sundararajan, 2012) then makes the leaves' counts epsilon-differentially private; what is
    computed from them stays so. The tree's splits still depend on the rows.
    """
    noise = discrete_laplace(coins, 1 / epsilon, (len(tree.leaves), tree.classes))
    noisy = with_leaf_counts(tree, np.maximum(tree.counts[tree.leaves].round() + noise, 0))
    if not noisy.counts[0].any():
        raise DataError(f"noise for epsilon {epsilon:g} leaves nothing of the tree's counts",
                        remedy="raise algorithm.epsilon, or leave out parties with few rows (rules.minimum_rows)")
    return noisy


def with_leaf_counts(tree: Tree, of_leaves: NDArray[np.float64]) -> Tree:
    """The same tree with these (leaves, classes) counts; those of inner nodes are sums of them."""
    counts = np.zeros_like(tree.counts)
    counts[tree.leaves] = of_leaves
    for node in range(len(tree) - 1, 0, -1):  # children come after their parents
        counts[tree.parents[node]] += counts[node]
    return replace(tree, counts=counts)
