"""The trees of scikit-learn's RandomForestClassifier, bit for bit, without the wrappers around each of them.

On the few rows of one party most of the time of a forest goes into checking every tree's parameters and target again.
The growing itself is scikit-learn's; what is used of it is the same from version 1.4 to 1.9, and a test compares. Only
weights differ: here a row that is drawn counts with its weight, as it did in scikit-learn before rows were drawn by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Bagging:
    """How a forest's trees grow; see the learner `random_forest`."""

    trees: int
    depth: int
    min_split: float
    min_leaf: int
    criterion: str
    columns: float

    def grow(self, rows: NDArray[np.float32], labels: NDArray[np.int64], seed: int,
             weights: NDArray[np.float64] | None = None) -> list[Any]:
        """Fitted trees, as far as `from_sklearn` looks at them: `tree_` and `classes_`."""
        classes, codes = np.unique(labels, return_inverse=True)
        target = np.ascontiguousarray(codes[:, None], dtype=np.float64)
        draw = np.random.RandomState(seed)
        seeds = [draw.randint(np.iinfo(np.int32).max) for _ in range(self.trees)]
        return [SimpleNamespace(tree_=self._grow_one(rows, target, len(classes), own, weights), classes_=classes)
                for own in seeds]

    def _grow_one(self, rows: NDArray[np.float32], target: NDArray[np.float64], classes: int, seed: int,
                  weights: NDArray[np.float64] | None) -> Any:
        from sklearn.tree import _criterion, _splitter, _tree

        count, columns = rows.shape
        drawn = np.random.RandomState(seed).randint(0, count, count, dtype=np.int32)
        times = np.bincount(drawn, minlength=count).astype(np.float64)
        sizes = np.array([classes], dtype=np.intp)
        impurity = (_criterion.Gini if self.criterion == "gini" else _criterion.Entropy)(1, sizes)
        looked_at = max(1, int(self.columns * columns)) if self.columns else max(1, int(sqrt(columns)))
        splitter = _splitter.BestSplitter(impurity, looked_at, self.min_leaf, 0.0,
                                          np.random.RandomState(seed), None)
        smallest = self.min_split if isinstance(self.min_split, int) else max(2, ceil(self.min_split * count))
        builder = _tree.DepthFirstTreeBuilder(splitter, max(smallest, 2 * self.min_leaf), self.min_leaf, 0.0,
                                              self.depth, 0.0)
        tree = _tree.Tree(columns, sizes, 1)
        builder.build(tree, rows, target, times if weights is None else times * weights, None)
        return tree
