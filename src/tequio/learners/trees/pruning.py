"""Making trees smaller: by their training rows and a price of leaves, or by rows that they were not grown from.

Minimal cost-complexity pruning: Breiman, Friedman, Olshen, Stone: Classification and regression trees, 1984.
Reduced-error pruning: Quinlan: Simplifying decision trees, International Journal of Man-Machine Studies 27, 1987.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.trees.tree import LEAF, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array


def without_weak_branches(tree: Tree, alpha: float, cost: NDArray[np.float64]) -> Tree:
    """The tree without the branches that lower the `cost` of their node by less than `alpha` for each leaf more.

    The weakest branch goes first, as in scikit-learn. `cost` is (nodes,) the impurity of each node's training rows, as
    a share of all rows.
    """
    leaf = tree.feature == LEAF
    while not leaf[0]:
        below, leaves = np.where(leaf, cost, 0.0), leaf.astype(np.int64)
        reached = _reached(tree, leaf)
        for node in range(len(tree) - 1, 0, -1):  # children come after their parents
            if reached[node]:
                below[tree.parents[node]] += below[node]
                leaves[tree.parents[node]] += leaves[node]
        inner = reached & ~leaf
        price = np.where(inner, (cost - below) / np.maximum(leaves - 1, 1), np.inf)
        weakest = int(price.argmin())
        if price[weakest] > alpha:
            break
        leaf[weakest] = True
    return cut_at(tree, leaf)


def without_errors(tree: Tree, features: Array, target: Array) -> Tree:
    """The tree without the branches that do not lower the error on these rows, which it was not grown from."""
    said = tree.probabilities.argmax(axis=1) if tree.value is None else tree.value

    def losses(at: NDArray[np.intp], truth: Array) -> NDArray[np.float64]:
        wrong = said[at] != truth if tree.value is None else (said[at] - truth) ** 2
        return np.bincount(at, wrong, minlength=len(tree)).astype(np.float64)

    here = tree.find(features)
    best, as_leaf = losses(here, target), np.zeros(len(tree))  # rows may also stop for want of a child
    while len(here):
        as_leaf += losses(here, target)
        below = here > 0
        here, target = tree.parents[here[below]], target[below]
    leaf = tree.feature == LEAF
    for node in range(len(tree) - 1, -1, -1):  # children come after their parents
        leaf[node] |= as_leaf[node] <= best[node]
        best[node] = min(as_leaf[node], best[node])
        if node:
            best[tree.parents[node]] += best[node]
    return cut_at(tree, leaf)


def cut_at(tree: Tree, leaf: NDArray[np.bool_]) -> Tree:
    """The tree whose leaves are those nodes, as far as rows still get there."""
    if bool((leaf == (tree.feature == LEAF)).all()):
        return tree
    kept = np.flatnonzero(_reached(tree, leaf))
    number = np.full(len(tree) + 1, LEAF, dtype=np.int32)  # the last entry stands for no child
    number[kept] = np.arange(len(kept))
    ends = leaf[kept]
    children = np.where(ends[:, None], LEAF, number[tree.children[kept]]).astype(np.int32)
    missing = None if tree.missing is None else np.where(ends, LEAF, number[tree.missing[kept]]).astype(np.int32)
    return replace(tree, feature=np.where(ends, LEAF, tree.feature[kept]).astype(np.int32),
                   threshold=np.where(ends, np.nan, tree.threshold[kept]), children=children,
                   counts=tree.counts[kept], missing=missing,
                   value=None if tree.value is None else tree.value[kept])


def _reached(tree: Tree, leaf: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which nodes have no leaf above them."""
    reached = np.ones(len(tree), dtype=bool)
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        reached[node] = reached[parent] and not leaf[parent]
    return reached
