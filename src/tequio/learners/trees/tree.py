"""A decision tree as arrays. Binary trees split numbers at thresholds; multiway trees have a child a category."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

LEAF = -1
"""Stands for "no feature" at a leaf and for "no child"."""

Kind = Literal["binary", "multiway"]
_ROWS_AT_A_TIME = 8192  # keeps the working arrays of a prediction in the cache


@dataclass(frozen=True, eq=False)
class Tree:
    """Node 0 is the root; children come after their parents.

    kind:       binary (x <= threshold goes to child 0, else to child 1) or multiway (category code c goes to child c)
    feature:    (nodes,) column that a node splits on, LEAF at leaves
    threshold:  (nodes,) where a binary node splits; NaN at leaves and in multiway trees
    children:   (nodes, width) node numbers, LEAF where there is no child
    counts:     (nodes, classes) rows of each class that reached the node in training (or weights, after a fusion)
    """

    kind: Kind
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)
    counts: NDArray[np.float64] = field(repr=False)

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
        depths = np.zeros(len(self), dtype=np.int64)
        for node, own in enumerate(self.children):
            depths[own[own != LEAF]] = depths[node] + 1
        return depths

    @cached_property
    def parents(self) -> NDArray[np.int64]:
        """Each node's parent, LEAF for the root."""
        parents = np.full(len(self), LEAF, dtype=np.int64)
        for node, own in enumerate(self.children):
            parents[own[own != LEAF]] = node
        return parents

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """(nodes, classes) class shares at each node; equal shares where nothing was counted."""
        totals = self.counts.sum(axis=1, keepdims=True)
        shares: NDArray[np.float64] = np.full_like(self.counts, 1 / self.classes)
        np.divide(self.counts, totals, out=shares, where=totals > 0)
        return shares

    def find(self, features: NDArray[Any]) -> NDArray[np.int64]:
        """The node where each row ends: a leaf, or an inner node of a multiway tree without a child for the category."""
        found = np.empty(len(features), dtype=np.int64)
        for start in range(0, len(features), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            found[part] = self._descend(features[part])
        return found

    def predict(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """(rows, classes) class shares of the node where each row ends."""
        return self.probabilities[self.find(features)]

    def _descend(self, features: NDArray[Any]) -> NDArray[np.int64]:
        node = np.zeros(len(features), dtype=np.int64)
        moving = np.arange(len(features))
        while True:
            split = self.feature[node[moving]]
            moving = moving[split != LEAF]
            if not len(moving):
                return node
            here = node[moving]
            below = self._step(here, features[moving, self.feature[here]])
            moving, below = moving[below != LEAF], below[below != LEAF]
            node[moving] = below

    def _step(self, here: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int32]:
        if self.kind == "binary":
            # A missing value compares false, so it goes right; `not <=` would send it left.
            return self.children[here, (~(values <= self.threshold[here])).astype(np.int64)]
        codes = values.astype(np.int64)
        known = (codes >= 0) & (codes < self.children.shape[1])
        return np.where(known, self.children[here, np.where(known, codes, 0)], LEAF)

    def to_payload(self) -> dict[str, Any]:
        """The tree as a payload: it may travel."""
        return {"kind": self.kind, "feature": self.feature, "threshold": self.threshold, "children": self.children,
                "counts": self.counts}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], *, features: int, classes: int, whose: str = "a party") -> Tree:
        """The tree back from a payload that somebody sent; anything but a sound tree for this data is refused."""
        try:
            tree = cls(payload["kind"], np.asarray(payload["feature"]).astype(np.int32),
                       np.asarray(payload["threshold"]).astype(np.float64),
                       np.asarray(payload["children"]).astype(np.int32),
                       np.asarray(payload["counts"]).astype(np.float64))
        except (KeyError, TypeError, ValueError) as cause:
            raise PayloadError(f"{whose} sent something that is not a tree: {cause!r}") from None
        fault = fault_of(tree, features, classes)
        if fault:
            raise PayloadError(f"{whose} sent a tree that is not sound: {fault}")
        return tree


def fault_of(tree: Tree, features: int, classes: int) -> str:
    """What is wrong with a tree, or nothing."""
    nodes = len(tree.feature)
    if tree.kind not in ("binary", "multiway"):
        return f"its kind is {tree.kind!r}"
    if not nodes or tree.feature.ndim != 1 or tree.threshold.shape != (nodes,) or tree.children.ndim != 2 or \
            len(tree.children) != nodes or tree.counts.ndim != 2 or len(tree.counts) != nodes:
        return "its arrays do not fit each other"
    if tree.counts.shape[1] != classes:
        return f"it speaks of {tree.counts.shape[1]} classes instead of {classes}"
    if not np.isfinite(tree.counts).all() or (tree.counts < 0).any():
        return "it has counts that are negative or not finite"
    inner = tree.feature != LEAF
    if (tree.feature[inner] < 0).any() or (tree.feature[inner] >= features).any():
        return "it splits on a column that does not exist"
    if tree.kind == "binary" and (not np.isfinite(tree.threshold[inner]).all() or tree.children.shape[1] != 2):
        return "it has a threshold that is not a finite number"
    return _fault_of_children(tree, inner)


def _fault_of_children(tree: Tree, inner: NDArray[np.bool_]) -> str:
    given = tree.children[tree.children != LEAF]
    if (tree.children[~inner] != LEAF).any():
        return "a leaf has children"
    if tree.kind == "binary" and (tree.children[inner] == LEAF).any():
        return "a node lacks a child"
    if (given < 0).any() or (given >= len(tree)).any():
        return "it names a child that does not exist"
    if len(np.unique(given)) != len(given) or len(given) != len(tree) - 1:
        return "a node has two parents or none"
    # Every node but the root has exactly one parent that comes before it, so there can be no cycle.
    parents = np.repeat(np.arange(len(tree)), (tree.children != LEAF).sum(axis=1))
    return "" if (given > parents).all() else "a child comes before its parent (a cycle)"
