"""Binary trees to and from scikit-learn's decision trees, and the trees of its random forests.

The trees of a forest are scikit-learn's bit for bit, without the wrappers around each of them: on the few rows of one
party most of the time goes into checking every tree's parameters and target again. The growing itself is
scikit-learn's; what is used of it is the same from version 1.4 to 1.9, and a test compares. Only weights differ: here a
row that is drawn counts with its weight, as it did in scikit-learn before rows were drawn by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, DataError
from tequio.learners.trees.tree import LEAF, Tree, fault_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
    from sklearn.tree._tree import Tree as FittedTree

    from tequio.data.dataset import Array, Schema


def from_sklearn(estimator: DecisionTreeClassifier | DecisionTreeRegressor | SimpleNamespace,
                 schema: Schema) -> Tree:
    """The tree of a fitted regressor or classifier, whose class counts are spread over all classes of the schema.

    The estimator's classes are class codes or class names of the schema. scikit-learn rounds rows to single precision
    before it compares them; the thresholds are set so that rows in double precision go the same way.
    """
    fitted = estimator.tree_
    if fitted.n_features != len(schema.features):
        raise DataError(f"the tree looks at {fitted.n_features} columns, the schema names {len(schema.features)}")
    counts, value = np.zeros((fitted.node_count, schema.target.size)), None
    if schema.target.kind == "number":
        counts[:, 0], value = _whole(fitted.weighted_n_node_samples), fitted.value[:, 0, 0].copy()
    else:
        # scikit-learn keeps class shares.
        counts[:, _codes(estimator.classes_, schema)] = _whole(fitted.value[:, 0, :] *
                                                               fitted.weighted_n_node_samples[:, None])
    inner = fitted.children_left != LEAF
    tree = Tree("binary", np.where(inner, fitted.feature, LEAF).astype(np.int32),
                np.where(inner, _double_thresholds(fitted.threshold), np.nan),
                np.stack([fitted.children_left, fitted.children_right], axis=1).astype(np.int32), counts, value=value)
    fault = fault_of(tree, len(schema.features), schema.target.size)
    if fault:
        raise DataError(f"this tree of scikit-learn cannot be used: {fault}")
    return tree


def to_sklearn(tree: Tree, schema: Schema) -> DecisionTreeClassifier:
    """A DecisionTreeClassifier that predicts as the tree does; its classes are the schema's class codes."""
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.tree._tree import Tree as FittedTree

    if tree.kind != "binary" or tree.value is not None:
        raise ConfigError(f"a {'regression' if tree.kind == 'binary' else tree.kind} tree has no form here in "
                          "scikit-learn: only trees of classes that split numbers alone have",
                          remedy="export it to onnx: tequio export MODEL --to onnx")
    estimator = DecisionTreeClassifier(max_depth=max(int(tree.depths.max()), 1))
    estimator.n_features_in_, estimator.n_outputs_ = len(schema.features), 1
    estimator.classes_, estimator.n_classes_ = np.arange(tree.classes), tree.classes
    estimator.max_features_ = len(schema.features)
    estimator.tree_ = FittedTree(len(schema.features), np.array([tree.classes], dtype=np.intp), 1)
    nodes = _nodes(tree, estimator.tree_.__getstate__()["nodes"].dtype)
    estimator.tree_.__setstate__({"max_depth": int(tree.depths.max()), "node_count": len(tree), "nodes": nodes,
                                  "values": np.ascontiguousarray(tree.probabilities[:, None, :])})
    return estimator


def _nodes(tree: Tree, layout: np.dtype[np.void]) -> Array:
    nodes = np.zeros(len(tree), dtype=layout)
    nodes["left_child"], nodes["right_child"] = tree.children.T
    # scikit-learn marks leaves by -2.
    nodes["feature"] = np.where(tree.feature == LEAF, -2, tree.feature)
    nodes["threshold"] = np.where(tree.feature == LEAF, -2.0, tree.threshold)
    nodes["impurity"] = 1.0 - (tree.probabilities ** 2).sum(axis=1)
    nodes["n_node_samples"] = np.rint(tree.support)
    nodes["weighted_n_node_samples"] = tree.support
    return nodes


def _codes(classes: Array, schema: Schema) -> list[int]:
    names = schema.target.names
    codes = [names.index(label) if isinstance(label, str) and label in names else label for label in classes.tolist()]
    wrong = [code for code in codes if not isinstance(code, int) or not 0 <= code < len(names)]
    if wrong:
        raise DataError(f"the tree knows a class {wrong[0]!r} that is not in the schema",
                        remedy=f"fit it on class codes 0 to {len(names) - 1} or on the names {', '.join(names)}")
    return codes


def _whole(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts of rows without the rounding of their shares; weights are left as they are."""
    whole = np.rint(counts)
    return whole if np.allclose(counts, whole, rtol=1e-9, atol=1e-6) else counts


def _double_thresholds(thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds for which x <= t in double precision is what float32(x) <= t was.

    float32(x) <= t holds up to the middle between the largest single number that is not above t and the next one. A
    threshold of few digits (0.5, 38.5) is left alone: only rows that differ from it by less than single precision can
    tell would go another way, and people read it.
    """
    below = thresholds.astype(np.float32)
    below = np.where(below > thresholds, np.nextafter(below, np.float32(-np.inf)), below)
    above = np.nextafter(below, np.float32(np.inf))
    middle = (below.astype(np.float64) + above.astype(np.float64)) / 2
    # The middle itself is rounded to the even neighbour.
    exact = np.where(middle.astype(np.float32) == below, middle, np.nextafter(middle, -np.inf))
    short = np.array([float(f"{threshold:.6g}") for threshold in thresholds]) == thresholds
    return np.where(short, thresholds, exact)


@dataclass(frozen=True)
class Bagging:
    """How a forest's trees grow; see the learner `random-forest`."""

    trees: int
    depth: int
    min_split: float
    min_leaf: int
    criterion: str
    columns: float

    def grow(self, rows: NDArray[np.float32], labels: Array, seed: int,
             weights: NDArray[np.float64] | None = None) -> list[SimpleNamespace]:
        """Fitted trees, as far as `from_sklearn` looks at them: `tree_` and `classes_`."""
        if self.criterion == "squared":
            classes, codes = np.zeros(1), labels
        else:
            classes, codes = np.unique(labels, return_inverse=True)
        target = np.ascontiguousarray(codes[:, None], dtype=np.float64)
        draw = np.random.RandomState(seed)
        seeds = [draw.randint(np.iinfo(np.int32).max) for _ in range(self.trees)]
        return [SimpleNamespace(tree_=self._grow_one(rows, target, len(classes), own, weights), classes_=classes)
                for own in seeds]

    def _grow_one(self, rows: NDArray[np.float32], target: NDArray[np.float64], classes: int, seed: int,
                  weights: NDArray[np.float64] | None) -> FittedTree:
        from sklearn.tree import _criterion, _splitter, _tree

        count, columns = rows.shape
        drawn = np.random.RandomState(seed).randint(0, count, count, dtype=np.int32)
        times = np.bincount(drawn, minlength=count).astype(np.float64)
        sizes = np.array([classes], dtype=np.intp)
        impurity = _criterion.MSE(1, count) if self.criterion == "squared" else \
            (_criterion.Gini if self.criterion == "gini" else _criterion.Entropy)(1, sizes)
        looked_at = max(1, int(self.columns * columns)) if self.columns else max(1, int(sqrt(columns)))
        splitter = _splitter.BestSplitter(impurity, looked_at, self.min_leaf, 0.0,
                                          np.random.RandomState(seed), None)
        smallest = self.min_split if isinstance(self.min_split, int) else max(2, ceil(self.min_split * count))
        builder = _tree.DepthFirstTreeBuilder(splitter, max(smallest, 2 * self.min_leaf), self.min_leaf, 0.0,
                                              self.depth, 0.0)
        tree = _tree.Tree(columns, sizes, 1)
        builder.build(tree, rows, target, times if weights is None else times * weights, None)
        return tree
