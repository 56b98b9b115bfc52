"""CART, binary trees on numbers grown by scikit-learn, and random forests: trees of rows drawn with repetition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import DataError, PayloadError
from tequio.learners.trees.id3 import SplitSize
from tequio.learners.trees.learner import Scoring, checked_weights, class_codes, numeric_rows
from tequio.learners.trees.sklearn_form import Bagging, from_sklearn
from tequio.learners.trees.tree import LEAF, Tree, whole_numbers
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.learner import Payload, Received

Criterion = Literal["gini", "entropy"]

Voting = Literal["mean", "majority"]


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


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees of one kind that vote: by the mean of their class shares, or each for one class."""

    trees: tuple[Tree, ...] = field(repr=False)
    voting: Voting = "mean"

    def __len__(self) -> int:
        return len(self.trees)

    def predict(self, features: Array) -> NDArray[np.float64]:
        """(rows, classes) shares of the vote."""
        votes = np.zeros((len(features), self.trees[0].classes))
        for tree in self.trees:
            shares = tree.probabilities if self.voting == "mean" else _choices(tree)
            votes += shares.take(tree.find(features), axis=0)
        return votes / len(self.trees)

    def to_payload(self) -> Payload:
        """The forest as a payload: the trees' arrays one after the other, and how many nodes each has."""
        width = max(tree.children.shape[1] for tree in self.trees)
        children = [_widened(tree.children, width) for tree in self.trees]
        return {"kind": "forest", "of": self.trees[0].kind, "voting": self.voting,
                "sizes": np.array([len(tree) for tree in self.trees], dtype=np.int32),
                "feature": np.concatenate([tree.feature for tree in self.trees]),
                "threshold": np.concatenate([tree.to_payload()["threshold"] for tree in self.trees]),
                "children": np.concatenate(children),
                "counts": np.concatenate([tree.counts for tree in self.trees])}

    @classmethod
    def from_payload(cls, payload: Received, *, features: int, classes: int, whose: str = "a party") -> Forest:
        """The forest back from a payload that somebody sent; a single unsound tree makes it be refused."""
        try:
            sizes = whole_numbers(payload["sizes"])
            parts = {name: split_by_size(np.asarray(payload[name]), sizes)
                     for name in ("feature", "threshold", "children", "counts")}
            kind, voting = payload["of"], payload["voting"]
        except (KeyError, TypeError, ValueError) as cause:
            raise PayloadError(f"{whose} sent something that is not a forest: {cause!r}") from None
        if voting not in ("mean", "majority"):
            raise PayloadError(f"{whose} sent a forest that votes by {voting!r}")
        trees = [Tree.from_payload({"kind": kind, **{name: part[index] for name, part in parts.items()}},
                                   features=features, classes=classes, whose=whose) for index in range(len(sizes))]
        return cls(tuple(trees), voting)


def split_by_size(values: Array, sizes: Array) -> list[Array]:
    """An array cut into pieces of these sizes, which have to add up to it."""
    if sizes.ndim != 1 or not len(sizes) or (sizes < 1).any() or values.ndim < 1 or sizes.sum() != len(values):
        raise ValueError(f"trees of sizes {sizes[:5].tolist()} do not make up {values.shape} nodes")
    return np.split(values, np.cumsum(sizes)[:-1])


def joined(forests: Iterable[Forest], voting: Voting = "mean") -> Forest:
    """One forest of all the trees, in the given order."""
    return Forest(tuple(tree for forest in forests for tree in forest.trees), voting)


def sample_trees(forest: Forest, count: int, rng: np.random.Generator) -> Forest:
    """That many of the trees, drawn without repetition (all of them where there are no more)."""
    drawn: Sequence[int] = rng.permutation(len(forest))[:count].tolist()
    return Forest(tuple(forest.trees[index] for index in sorted(drawn)), forest.voting)


@register("learner", "random-forest", paper="Breiman, 2001")
@dataclass(frozen=True)
class RandomForest(Scoring):
    """Random forest on numeric columns: trees on rows and columns drawn at random, which vote.

    Parameters:
        trees: how many trees
        depth: most conditions from a root to a leaf
        min_split: rows that a node needs to be split, as a number or as a share of all rows
        min_leaf: rows that each leaf needs
        criterion: impurity that splits reduce, gini or entropy
        columns: share of the columns that each split looks at (0: the square root of their number)
        voting: mean (of the trees' class shares) or majority (each tree votes for one class)
    """

    trees: Annotated[int, Ge(1)] = 100
    depth: Annotated[int, Ge(1)] = 5
    min_split: SplitSize = 2
    min_leaf: Annotated[int, Ge(1)] = 1
    criterion: Criterion = "gini"
    columns: Annotated[float, Interval(ge=0, le=1)] = 0.0
    voting: Voting = "mean"

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: NDArray[np.float64] | None = None) -> Forest:
        """The forest of these rows; the rng draws rows and columns."""
        rows, labels = single_precision(data, "random-forest"), class_codes(data, "random-forest")
        how = Bagging(self.trees, self.depth, self.min_split, self.min_leaf, self.criterion, self.columns)
        grown = how.grow(rows, labels, int(rng.integers(2**31)), checked_weights(weights, len(data)))
        return Forest(tuple(from_sklearn(tree, data.schema) for tree in grown), self.voting)


def _widened(children: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    """The same children with room for more."""
    if children.shape[1] == width:
        return children
    return np.pad(children, ((0, 0), (0, width - children.shape[1])), constant_values=LEAF)


def _choices(tree: Tree) -> NDArray[np.float64]:
    """(nodes, classes): 1 for the class that a node votes for."""
    chosen: NDArray[np.float64] = np.eye(tree.classes)[tree.probabilities.argmax(axis=1)]
    return chosen
