"""CART, and random forests: trees of rows drawn with repetition. On numbers alone scikit-learn grows the trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import DataError, PayloadError
from tequio.learners.trees.learner import Scoring, SplitSize, checked_weights, class_codes
from tequio.learners.trees.mixed import MixedGrowth, MixedRows
from tequio.learners.trees.places import is_mixed, mixed_rows
from tequio.learners.trees.rules import mixed_form
from tequio.learners.trees.sklearn_form import Bagging, from_sklearn
from tequio.learners.trees.tree import LEAF, Tree, whole_numbers
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.learner import Payload, Received
    from tequio.learners.trees.mixed import Impurity

Criterion = Literal["gini", "entropy"]

Voting = Literal["mean", "majority"]


@register("learner", "cart", paper="Breiman et al., 1984")
@dataclass(frozen=True)
class Cart(Scoring):
    """CART decision tree, for classes or numbers: a node asks whether a column is at most a threshold, or in a set.

    A table of numbers without missing values gives scikit-learn's tree. In others numbers are split at one of at most
    254 thresholds, and missing values go to the side that tells more.

    Parameters:
        depth: most conditions from the root to a leaf
        min_split: rows that a node needs to be split, as a number or as a share of all rows
        min_leaf: rows that each leaf needs
        criterion: impurity that splits reduce, gini or entropy; of numbers to predict it is the squared error
        ccp_alpha: what each leaf more has to take off the impurity, as a share of all rows, or its branch is cut off
            again (0: no pruning)
    """

    depth: Annotated[int, Ge(1)] = 5
    min_split: SplitSize = 2
    min_leaf: Annotated[int, Ge(1)] = 1
    criterion: Criterion = "gini"
    ccp_alpha: Annotated[float, Ge(0)] = 0.0

    takes: ClassVar[frozenset[str]] = frozenset({"number", "category", "missing"})

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: NDArray[np.float64] | None = None) -> Tree:
        """The tree of these rows; the rng decides between splits that are equally good."""
        rows, weights = mixed_rows(data, "cart"), checked_weights(weights, len(data))
        target = target_of(data, "cart")
        if is_mixed(data, rows, categorical=False):
            how = MixedGrowth(self.depth, self.min_split, self.min_leaf, impurity=impurity_of(data, self.criterion),
                              ccp_alpha=self.ccp_alpha)
            return MixedRows(data, rows, "cart").grow(how, weights)
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        how_many = {"max_depth": self.depth, "min_samples_split": self.min_split, "min_samples_leaf": self.min_leaf,
                    "random_state": int(rng.integers(2**31)), "ccp_alpha": self.ccp_alpha}
        estimator = DecisionTreeRegressor(**how_many) if data.schema.target.kind == "number" else \
            DecisionTreeClassifier(criterion=self.criterion, **how_many)
        estimator.fit(single_precision(data, rows, "cart"), target, sample_weight=weights, check_input=False)
        return from_sklearn(estimator, data.schema)


def target_of(data: Dataset, learner: str) -> Array:
    """The rows' numbers or classes."""
    return data.target.astype(np.float64) if data.schema.target.kind == "number" else class_codes(data, learner)


def impurity_of(data: Dataset, criterion: Criterion) -> Impurity:
    """What the splits of a mixed tree reduce."""
    return "squared" if data.schema.target.kind == "number" else criterion


def single_precision(data: Dataset, rows: Array, learner: str) -> NDArray[np.float32]:
    """The rows as scikit-learn's trees want them."""
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
        """(rows, classes) shares of the vote, or (rows,) mean of the trees' numbers."""
        if self.trees[0].value is not None:
            numbers: NDArray[np.float64] = np.mean([tree.predict(features) for tree in self.trees], axis=0)
            return numbers
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
                "counts": np.concatenate([tree.counts for tree in self.trees]),
                **{name: np.concatenate([tree.extras[name] for tree in self.trees]) for name in self.trees[0].extras}}

    @classmethod
    def from_payload(cls, payload: Received, *, features: int, classes: int, whose: str = "a party") -> Forest:
        """The forest back from a payload that somebody sent; a single unsound tree makes it be refused."""
        try:
            sizes = whole_numbers(payload["sizes"])
            parts = {name: split_by_size(np.asarray(payload[name]), sizes)
                     for name in ("feature", "threshold", "children", "counts", "missing", "value")
                     if name in payload or name not in ("missing", "value")}
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
    """One forest of all the trees, in the given order; of one kind, where only some parties met missing values."""
    trees = [tree for forest in forests for tree in forest.trees]
    if any(tree.kind == "mixed" for tree in trees):
        trees = [mixed_form(tree) for tree in trees]
    return Forest(tuple(trees), voting)


def sample_trees(forest: Forest, count: int, rng: np.random.Generator) -> Forest:
    """That many of the trees, drawn without repetition (all of them where there are no more)."""
    drawn: Sequence[int] = rng.permutation(len(forest))[:count].tolist()
    return Forest(tuple(forest.trees[index] for index in sorted(drawn)), forest.voting)


@register("learner", "random-forest", paper="Breiman, 2001")
@dataclass(frozen=True)
class RandomForest(Scoring):
    """Random forest, for classes or numbers: trees on rows and columns drawn at random, which vote.

    Parameters:
        trees: how many trees
        depth: most conditions from a root to a leaf
        min_split: rows that a node needs to be split, as a number or as a share of all rows
        min_leaf: rows that each leaf needs
        criterion: impurity that splits reduce, gini or entropy; of numbers to predict it is the squared error
        columns: share of the columns that each split looks at (0: the square root of their number)
        voting: mean (of the trees' class shares) or majority (each tree votes for one class); numbers: always the mean
    """

    trees: Annotated[int, Ge(1)] = 100
    depth: Annotated[int, Ge(1)] = 5
    min_split: SplitSize = 2
    min_leaf: Annotated[int, Ge(1)] = 1
    criterion: Criterion = "gini"
    columns: Annotated[float, Interval(ge=0, le=1)] = 0.0
    voting: Voting = "mean"

    takes: ClassVar[frozenset[str]] = frozenset({"number", "category", "missing"})

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: NDArray[np.float64] | None = None) -> Forest:
        """The forest of these rows; the rng draws rows and columns."""
        rows, weights = mixed_rows(data, "random-forest"), checked_weights(weights, len(data))
        target = target_of(data, "random-forest")
        if is_mixed(data, rows, categorical=False):
            return Forest(tuple(self._mixed(data, rows, weights, rng)), self.voting)
        criterion = "squared" if data.schema.target.kind == "number" else self.criterion
        how = Bagging(self.trees, self.depth, self.min_split, self.min_leaf, criterion, self.columns)
        grown = how.grow(single_precision(data, rows, "random-forest"), target, int(rng.integers(2**31)), weights)
        return Forest(tuple(from_sklearn(tree, data.schema) for tree in grown), self.voting)

    def _mixed(self, data: Dataset, rows: Array, weights: NDArray[np.float64] | None,
               rng: np.random.Generator) -> Iterator[Tree]:
        columns, grower = rows.shape[1], MixedRows(data, rows, "random-forest")
        drawn = max(1, int(self.columns * columns) if self.columns else int(columns ** 0.5))
        how = MixedGrowth(self.depth, self.min_split, self.min_leaf, impurity=impurity_of(data, self.criterion),
                          drawn=drawn)
        for _ in range(self.trees):
            times = np.bincount(rng.integers(0, len(rows), len(rows)), minlength=len(rows)).astype(np.float64)
            yield grower.grow(how, times if weights is None else times * weights, rng)


def _widened(children: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    """The same children with room for more."""
    if children.shape[1] == width:
        return children
    return np.pad(children, ((0, 0), (0, width - children.shape[1])), constant_values=LEAF)


def _choices(tree: Tree) -> NDArray[np.float64]:
    """(nodes, classes): 1 for the class that a node votes for."""
    chosen: NDArray[np.float64] = np.eye(tree.classes)[tree.probabilities.argmax(axis=1)]
    return chosen
