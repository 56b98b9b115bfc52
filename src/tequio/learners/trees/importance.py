"""How much each column contributes to a tree's decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.learners.trees.forest import Forest
from tequio.learners.trees.tree import LEAF, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.trees.boosted import BoostedTrees

Impurity = Literal["gini", "entropy"]


def importance(model: Tree | Forest | BoostedTrees, columns: int,
               impurity: Impurity | None = None) -> NDArray[np.float64]:
    """(columns,) shares of what all splits earned; all 0 for a model that never splits.

    A tree's split earns the impurity that it takes away, weighted by rows: entropy in a multiway tree and Gini in a
    binary one unless told otherwise. A forest's importance is the mean over its trees, that of boosted trees goes by
    the loss that splits lowered.
    """
    if isinstance(model, Tree):
        return _shares(_earned(model, columns, impurity))
    if isinstance(model, Forest):
        # A tree that never splits says nothing about the columns.
        trees = [_shares(_earned(tree, columns, impurity)) for tree in model.trees if len(tree) > 1]
        return _shares(np.sum(trees, axis=0)) if trees else np.zeros(columns)
    features = np.concatenate([np.zeros(0, dtype=np.int32), *(tree.feature for tree in model.trees)])
    gains = np.concatenate([np.zeros(0), *(tree.gain for tree in model.trees)])
    inner = features != LEAF
    return _shares(_sums_by_column(features[inner], gains[inner], columns))


def _earned(tree: Tree, columns: int, impurity: Impurity | None) -> NDArray[np.float64]:
    measure = impurity or ("gini" if tree.kind == "binary" else "entropy")
    weighted = tree.support * _impurities(tree.probabilities, measure)
    # A node that split gives up its impurity and its children take on theirs.
    node, branch = np.nonzero(tree.children != LEAF)
    below = np.bincount(node, weighted[tree.children[node, branch]], minlength=len(tree))
    inner = np.flatnonzero(tree.feature != LEAF)
    return _sums_by_column(tree.feature[inner], weighted[inner] - below[inner], columns)


def _sums_by_column(column: NDArray[np.int32], earned: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    return np.bincount(column, earned, minlength=columns).astype(np.float64)


def _impurities(shares: NDArray[np.float64], measure: Impurity) -> NDArray[np.float64]:
    if measure == "gini":
        gini: NDArray[np.float64] = 1.0 - (shares ** 2).sum(axis=1)
        return gini
    entropy: NDArray[np.float64] = -(shares * np.log2(np.where(shares > 0, shares, 1.0))).sum(axis=1)
    return entropy


def _shares(earned: NDArray[np.float64]) -> NDArray[np.float64]:
    total = earned.sum()
    return earned / total if total > 0 else np.zeros(len(earned))
