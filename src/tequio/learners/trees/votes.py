"""How the trees of an ensemble voted on one row, and how much each column contributes to the decisions.

No single path decides in an ensemble, so the votes are what there is to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.learners.trees.boosted import BoostedTrees, RegressionTree, objective_for
from tequio.learners.trees.forest import Forest, split_by_size
from tequio.learners.trees.indicators import indicators_of
from tequio.learners.trees.tree import LEAF, Tree
from tequio.learners.trees.xgboost_learner import from_bytes, read_document

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Array, Schema
    from tequio.learners.trees.xgboost_learner import Document

Impurity = Literal["gini", "entropy"]


@dataclass(frozen=True, eq=False)
class Panel:
    """Models of several parties that vote by the mean of their class shares, each with its weight."""

    members: tuple[Tree | Forest | BoostedTrees, ...] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.members)

    def predict(self, features: Array) -> NDArray[np.float64]:
        """(rows, classes) shares of the vote."""
        shares: NDArray[np.float64] = np.sum([weight * member.predict(features) for member, weight in
                                              zip(self.members, self.weights, strict=True)], axis=0)
        return shares


Ensemble = Forest | BoostedTrees | Panel


@dataclass(frozen=True)
class Votes:
    """What an ensemble decides on one row.

    prediction:  the class, or the number in words
    shares:      of each class in the decision; nothing where a number is predicted
    votes:       trees that are for each class: they choose it, or they raise its margin in boosted trees; for a number
                 how many trees make it higher, and lower
    trees:       how many there are; those of boosted trees that change nothing are for no class
    """

    prediction: str
    shares: dict[str, float]
    votes: dict[str, int]
    trees: int

    def __str__(self) -> str:
        told = ", ".join(f"{count} for {name}" for name, count in self.votes.items())
        return f"{told} of {self.trees} trees -> {self.prediction}"

    def to_plain(self) -> dict[str, object]:
        """The votes as JSON knows them."""
        return {"prediction": self.prediction, "shares": self.shares, "votes": self.votes, "trees": self.trees}


def votes_on(model: Ensemble, row: Array, schema: Schema) -> Votes:
    """How the trees of an ensemble voted on one row."""
    rows, names = np.asarray(row)[None, :], schema.target.names
    if isinstance(model, BoostedTrees):
        votes = _pushes(model, rows, names)
    elif schema.target.kind == "number":
        votes = _sides_of_mean(model, rows)
    else:
        members = model.trees if isinstance(model, Forest) else model.members
        chosen = [int(member.predict(rows)[0].argmax()) for member in members]
        votes = dict(zip(names, np.bincount(chosen, minlength=len(names)).tolist(), strict=True))
    predicted = model.predict(rows)[0]
    if schema.target.kind == "number":
        return Votes(f"{predicted:.6g}", {}, votes, len(model))
    return Votes(names[int(predicted.argmax())], dict(zip(names, predicted.tolist(), strict=True)), votes, len(model))


def ensemble_importance(model: Tree | Ensemble, columns: int) -> NDArray[np.float64]:
    """(columns,) shares as `importance` gives them; those of a panel are the weighted mean of its members'."""
    if not isinstance(model, Panel):
        return importance(model, columns)
    earned = np.sum([weight * importance(member, columns) for member, weight in
                     zip(model.members, model.weights, strict=True)], axis=0, dtype=np.float64)
    return earned / earned.sum() if earned.sum() > 0 else np.zeros(columns)


def boosted_from_xgboost(data: ArrayLike, schema: Schema) -> BoostedTrees:
    """The trees of an XGBoost document in our own form, on the columns of the schema."""
    objective, indicators = objective_for(schema.target), indicators_of(schema)
    content = np.asarray(data, dtype=np.uint8)
    document, trees = read_document(content, from_bytes(content))
    named, sizes = trees.arrays, trees.sizes
    leaf = named["left_children"] == LEAF
    # XGBoost rounds rows to single precision and goes left below a threshold; we do not round, and go left up to it.
    # The middle between the threshold and the number before it tells the same rows apart.
    above = named["split_conditions"].astype(np.float32)
    cut = (above.astype(np.float64) + np.nextafter(above, np.float32(-np.inf))) / 2
    # At leaves the value stands in the threshold's place.
    children = np.stack([named["left_children"], named["right_children"]], axis=1).astype(np.int32)
    default = np.where(named["default_left"] > 0, children[:, 0], children[:, 1])
    column, threshold, ways, missing = indicators.original(np.where(leaf, LEAF, named["split_indices"]), cut, children,
                                                           default)
    arrays = (column, threshold, ways, np.where(leaf, named["split_conditions"], 0.0),
              np.where(leaf, 0.0, named["loss_changes"]), missing)
    parts = zip(*(split_by_size(array, sizes) for array in arrays), strict=True) if len(sizes) else ()
    return BoostedTrees(objective, _base(document, objective), tuple(RegressionTree(*part) for part in parts))


def _base(document: Document, objective: str) -> NDArray[np.float64]:
    """Classes start from equal chances; numbers from the mean that the document tells."""
    parameters = document["learner"]["learner_model_param"]
    if objective == "squared":
        return np.array([float(parameters["base_score"].strip("[]"))])
    return np.zeros(max(int(parameters["num_class"]), 1))


def _sides_of_mean(model: Forest | Panel, rows: Array) -> dict[str, int]:
    """How many members say less than the mean of all, and more."""
    members = model.trees if isinstance(model, Forest) else model.members
    said, mean = np.array([member.predict(rows)[0] for member in members]), float(model.predict(rows)[0])
    return {"lower": int((said < mean).sum()), "higher": int((said > mean).sum())}


def _pushes(model: BoostedTrees, rows: Array, names: tuple[str, ...]) -> dict[str, int]:
    steps = np.array([tree.predict(rows)[0] for tree in model.trees])
    if model.objective == "softmax":
        return {name: int((steps[index::len(names)] > 0).sum()) for index, name in enumerate(names)}
    down, up = names if model.objective == "logistic" else ("lower", "higher")
    return {down: int((steps < 0).sum()), up: int((steps > 0).sum())}


def importance(model: Tree | Forest | BoostedTrees, columns: int,
               impurity: Impurity | None = None) -> NDArray[np.float64]:
    """(columns,) shares of what all splits earned; all 0 for a model that never splits.

    A tree's split earns the impurity that it takes away, weighted by rows: entropy in a multiway tree and Gini in
    others unless told otherwise, and the squared error where numbers are predicted. A forest's importance is the mean
    over its trees, that of boosted trees goes by the loss that splits lowered.
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
    measure = impurity or ("entropy" if tree.kind == "multiway" else "gini")
    # The squares of nodes' means tell as much of a split as the squared errors that it leaves.
    weighted = tree.support * _impurities(tree.probabilities, measure) if tree.value is None else \
        -tree.support * (tree.value - tree.value[0]) ** 2
    # A node that split gives up its impurity and its children take on theirs.
    node, branch = np.nonzero(tree.branches != LEAF)
    below = np.bincount(node, weighted[tree.branches[node, branch]], minlength=len(tree))
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
