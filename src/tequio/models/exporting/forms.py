"""Models in two plain forms that every format can be written from: sums over trees, and linear models."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.algorithms.vertical.answering import Part, Together
from tequio.errors import ConfigError
from tequio.learners.linear import LogisticRegression, SGDClassifier, SGDRegressor
from tequio.learners.trees.boosted import BoostedTrees, objective_for
from tequio.learners.trees.forest import Forest, split_by_size
from tequio.learners.trees.indicators import indicators_of
from tequio.learners.trees.learner import Scoring, model_from_payload
from tequio.learners.trees.tree import LEAF, Tree
from tequio.learners.trees.xgboost_learner import XGBoost
from tequio.learners.zoo import Logistic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Schema
    from tequio.learners.answers import Answer
    from tequio.learners.learner import Payload
    from tequio.learners.trees.tree import Kind
    from tequio.models.model import Model

    Numbers = NDArray[np.float64]

Link = Literal["identity", "logistic", "softmax", "labels"]
"""What becomes of sums: nothing, two classes by one logit, classes, or labels each by a logit."""


@dataclass(frozen=True, eq=False)
class Branches:
    """A tree of which every node has values to add, one an output; `rows` are those of the training, 0 if unknown.

    `missing` is the child for missing values, where those have one.
    """

    kind: Kind
    feature: Array
    threshold: Numbers
    children: Array
    values: Numbers
    rows: Numbers
    missing: Array | None = None

    def with_gaps(self) -> Branches:
        """The same tree as a mixed one, which knows missing values."""
        return self if self.missing is None else replace(self, kind="mixed")


@dataclass(frozen=True, eq=False)
class TreeSum:
    """Start values, and trees that add to them; the sum is divided, then linked to scores.

    `single` says that rows are rounded to single precision before they are compared, and so are the sums.
    """

    trees: tuple[Branches, ...]
    start: Numbers
    link: Link = "identity"
    divide: int = 1
    single: bool = False


@dataclass(frozen=True, eq=False)
class Linear:
    """Coefficients (outputs, columns) and an intercept each."""

    coef: Numbers
    intercept: Numbers
    link: Link


def answer_of(model: Model) -> Answer:
    """What answers rows, if it can leave tequio."""
    if isinstance(model.common, Part | Together):
        raise ConfigError("a vertical model cannot be exported: the parties hold different columns, and each of them "
                          "its part of the model", remedy="ask all of them: tequio predict RUN --data FILE")
    return model.answer


def tree_sum(learner: object, model: Payload, schema: Schema) -> TreeSum | None:
    """A tree, a forest or boosted trees as a sum over trees; nothing for other models."""
    if isinstance(learner, XGBoost):
        return _from_xgboost(learner, model, schema)
    if not isinstance(learner, Scoring):
        return None
    found = model_from_payload(model, features=len(schema.features), classes=schema.target.size, whose="the model")
    if isinstance(found, BoostedTrees):
        return _boosted([Branches("binary", tree.feature, tree.threshold, tree.children, tree.value[:, None],
                                  np.zeros(len(tree)))
                         for tree in found.trees], found.base, found.objective)
    trees: tuple[Tree, ...] = found.trees if isinstance(found, Forest) else (found,)  # type: ignore[assignment]
    majority = isinstance(found, Forest) and found.voting == "majority"
    return TreeSum(tuple(_of_shares(tree, majority) for tree in trees), np.zeros(schema.target.size),
                   divide=len(trees))


def linear(learner: object, model: Payload, schema: Schema) -> Linear | None:
    """A linear model on prepared columns; nothing for other models."""
    if isinstance(learner, SGDRegressor):
        return Linear(np.asarray(model["coef"], np.float64)[None], model["intercept"], "identity")
    if isinstance(learner, LogisticRegression | SGDClassifier):
        return Linear(np.asarray(model["coef"], np.float64), model["intercept"], "softmax")
    if not isinstance(learner, Logistic):
        return None
    coef, intercept = (np.asarray(model[f"output.{name}"], np.float64) for name in ("weight", "bias"))
    kind = schema.target.kind
    return Linear(coef, intercept, "identity" if kind == "number" else "labels" if kind == "multilabel" else
                  "logistic" if len(coef) == 1 else "softmax")



def _of_shares(tree: Tree, majority: bool) -> Branches:
    shares = np.eye(tree.classes)[tree.probabilities.argmax(axis=1)] if majority else tree.probabilities
    missing = tree.default if tree.kind == "mixed" else tree.children[:, 1] if tree.kind == "binary" else None
    return Branches(tree.kind, tree.feature, tree.threshold, tree.children,
                    shares if tree.value is None else tree.value[:, None], tree.support, missing)


def _boosted(trees: Sequence[Branches], base: Numbers, objective: str, *, single: bool = False) -> TreeSum:
    """Tree i adds to output i % outputs."""
    outputs = len(base)
    placed = [Branches(tree.kind, tree.feature, tree.threshold, tree.children,
                       tree.values * (np.arange(outputs) == number % outputs), tree.rows, tree.missing)
              for number, tree in enumerate(trees)]
    links: dict[str, Link] = {"logistic": "logistic", "softmax": "softmax", "squared": "identity"}
    return TreeSum(tuple(placed), np.asarray(base, np.float64), links[objective], single=single)


def _from_xgboost(learner: XGBoost, model: Payload, schema: Schema) -> TreeSum:
    """XGBoost goes left below a threshold in single precision: that is, up to the number before it."""
    document, trees = learner.opened(model, schema)
    parameters = document["learner"]["learner_model_param"]
    objective = objective_for(schema.target)
    told = np.ravel(json.loads(parameters["base_score"])).astype(np.float64)
    # One half is the chance of two classes, that is a margin of 0; of several classes it is the margin itself.
    base = np.zeros(1) if objective == "logistic" else \
        np.broadcast_to(told, max(int(parameters["num_class"]), 1)).copy()
    named = trees.arrays
    leaf = named["left_children"] == LEAF
    conditions, indicators = named["split_conditions"].astype(np.float32), indicators_of(schema)
    column = np.where(leaf, LEAF, named["split_indices"]).astype(np.int32)
    cut = np.nextafter(conditions, np.float32(-np.inf)).astype(np.float64)
    children = np.stack([named["left_children"], named["right_children"]], axis=1).astype(np.int32)
    missing: Array = np.where(named["default_left"] > 0, children[:, 0], children[:, 1])
    if not indicators.plain:
        column, cut, children, missing = indicators.original(column, cut, children, missing)
    arrays: list[Array] = [column, cut, children, np.where(leaf, conditions, 0.0)[:, None].astype(np.float64),
                           np.zeros(len(leaf)), missing]
    parts = zip(*(split_by_size(array, trees.sizes) for array in arrays), strict=True) if len(trees) else ()
    kind: Kind = "binary" if indicators.plain else "mixed"
    return _boosted([Branches(kind, *part) for part in parts], base, objective, single=True)
