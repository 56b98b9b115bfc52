"""CART: binary trees on numbers, grown by scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge

from tequio.errors import DataError
from tequio.learners.trees.id3 import SplitSize
from tequio.learners.trees.learner import Scoring, checked_weights, class_codes, numeric_rows
from tequio.learners.trees.sklearn_form import from_sklearn
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.learners.trees.tree import Tree

Criterion = Literal["gini", "entropy"]


@register("learner", "cart", paper="Breiman et al., 1984")
@dataclass(frozen=True)
class Cart(Scoring):
    """CART decision tree on numeric columns: each node asks whether a column is at most a threshold.

    Parameters:
        depth: most conditions from the root to a leaf
        min_split: rows that a node needs to be split, as a number or as a share of all rows
        min_leaf: rows that each leaf needs
        criterion: impurity that splits reduce, gini or entropy
    """

    depth: Annotated[int, Ge(1)] = 5
    min_split: SplitSize = 2
    min_leaf: Annotated[int, Ge(1)] = 1
    criterion: Criterion = "gini"

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: NDArray[np.float64] | None = None) -> Tree:
        """The tree of these rows; the rng decides between splits that are equally good."""
        from sklearn.tree import DecisionTreeClassifier

        rows, labels = single_precision(data, "cart"), class_codes(data, "cart")
        estimator = DecisionTreeClassifier(criterion=self.criterion, max_depth=self.depth,
                                           min_samples_split=self.min_split, min_samples_leaf=self.min_leaf,
                                           random_state=int(rng.integers(2**31)))
        estimator.fit(rows, labels, sample_weight=checked_weights(weights, len(data)), check_input=False)
        return from_sklearn(estimator, data.schema)


def single_precision(data: Dataset, learner: str) -> NDArray[np.float32]:
    """The rows as scikit-learn's trees want them."""
    rows = numeric_rows(data, learner)
    largest = np.abs(rows).max(axis=0)
    if (largest > np.finfo(np.float32).max).any():
        raise DataError(f"column '{data.schema.names[int(largest.argmax())]}' of '{data.name}' holds numbers too large "
                        f"for '{learner}', which fits in single precision", remedy="set data.prepare = [\"log1p\"]")
    return np.ascontiguousarray(rows, dtype=np.float32)
