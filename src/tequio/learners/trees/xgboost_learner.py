"""XGBoost as a learner. Its models travel as JSON documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.errors import MissingExtra
from tequio.learners import metrics
from tequio.learners.trees.boosted import Objective, objective_for, scores_of
from tequio.learners.trees.learner import checked_weights, numeric_rows, rows_of
from tequio.learners.trees.xgboost_documents import from_bytes, read_document, to_bytes, with_trees
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.learners.learner import Tally
    from tequio.learners.trees.xgboost_documents import Document, XGBoostTrees

_OBJECTIVES: dict[Objective, str] = {
    "logistic": "binary:logistic", "softmax": "multi:softprob", "squared": "reg:squarederror"}


@dataclass(frozen=True, eq=False)
class XGBoostModel:
    """A sound document, and what its margins mean."""

    objective: Objective
    document: NDArray[np.uint8] = field(repr=False)

    @classmethod
    def of(cls, document: Document, schema: Schema) -> XGBoostModel:
        """The model that a sound document describes."""
        return cls(objective_for(schema.target), to_bytes(document))

    def margins(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(rows, outputs) sums of the starting score and the trees."""
        xgboost = _package()
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(self.document.tobytes()))
        margins: NDArray[np.float32] = booster.predict(xgboost.DMatrix(features, nthread=1), output_margin=True)
        return margins if margins.ndim == 2 else margins[:, None]

    def predict(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """(rows, classes) probabilities, or (rows,) numbers."""
        return scores_of(self.objective, self.margins(features).astype(np.float64))

    def to_payload(self) -> dict[str, Any]:
        """The model as a payload."""
        return {"kind": "xgboost", "document": self.document}


@register("learner", "xgboost", paper="Chen and Guestrin, 2016")
@dataclass(frozen=True)
class XGBoost:
    """Gradient-boosted trees of the package XGBoost, on numeric columns, for classes or numbers.

    Parameters:
        trees: rounds of boosting; with more than two classes a round adds a tree a class
        depth: most conditions from a root to a leaf
        learning_rate: share of its best values that each tree adds
        bins: most bins a column
        l2: pull of the leaves' values towards 0 (lambda)
        min_gain: what a split has to lower the loss by (gamma)
        min_child_weight: least sum of second derivatives on either side of a split
        rows: share of the rows that each tree looks at
        columns: share of the columns that each tree looks at
    """

    trees: Annotated[int, Ge(1)] = 100
    depth: Annotated[int, Ge(1)] = 6
    learning_rate: Annotated[float, Gt(0)] = 0.1
    bins: Annotated[int, Ge(2)] = 256
    l2: Annotated[float, Ge(0)] = 1.0
    min_gain: Annotated[float, Ge(0)] = 0.0
    min_child_weight: Annotated[float, Ge(0)] = 1.0
    rows: Annotated[float, Interval(gt=0, le=1)] = 1.0
    columns: Annotated[float, Interval(gt=0, le=1)] = 1.0

    def fit(self, data: Dataset, rng: np.random.Generator, *,
            weights: NDArray[np.float64] | None = None) -> XGBoostModel:
        """The ensemble of these rows; the rng draws rows and columns."""
        mean = float(np.average(data.target, weights=weights)) if data.schema.target.kind == "number" else 0.0
        start = self.start(data.schema, mean)
        margins = XGBoostModel.of(start, data.schema).margins(numeric_rows(data, "xgboost"))
        trees = self.boost(margins, data, self.trees, rng, weights=weights)
        return XGBoostModel.of(with_trees(start, trees), data.schema)

    def start(self, schema: Schema, mean: float = 0.0) -> Document:
        """A model without trees: equal chances for all classes, or the mean."""
        return _start(self, schema, mean)

    def boost(self, margins: NDArray[np.float32], data: Dataset, rounds: int, rng: np.random.Generator, *,
              weights: NDArray[np.float64] | None = None) -> XGBoostTrees:
        """The trees of so many rounds of boosting on these rows, which stand at these margins."""
        xgboost, features = _package(), numeric_rows(data, "xgboost")
        rows = xgboost.DMatrix(features, data.target, weight=checked_weights(weights, len(data)), nthread=1,
                               base_margin=margins if margins.shape[1] > 1 else margins[:, 0])
        parameters = {**self.parameters(data.schema), "base_score": 0.5, "seed": int(rng.integers(2**31))}
        grown = np.frombuffer(xgboost.train(parameters, rows, rounds).save_raw("json"), dtype=np.uint8)
        # The score that rows without margins would start from is not looked at.
        return read_document(grown, self.start(data.schema, 0.5), whose="XGBoost")[1]

    def opened(self, payload: Mapping[str, Any], schema: Schema, *,
               whose: str = "a party") -> tuple[Document, XGBoostTrees]:
        """A model without trees and the trees, all checked, that a payload holds."""
        return read_document(payload.get("document"), self.start(schema), whose=whose)

    def predict(self, model: XGBoostModel | Mapping[str, Any], data: Dataset) -> NDArray[np.float64]:
        """Class shares (rows, classes) or numbers (rows,) by a model or by its payload, which is checked first."""
        if not isinstance(model, XGBoostModel):
            model = XGBoostModel.of(with_trees(*self.opened(model, data.schema)), data.schema)
        return model.predict(rows_of(data))

    def evaluate(self, model: XGBoostModel | Mapping[str, Any], data: Dataset) -> Tally:
        """Additive counts of the rows."""
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)

    def parameters(self, schema: Schema) -> dict[str, Any]:
        """The settings under XGBoost's own names."""
        objective = objective_for(schema.target)
        classes = {"num_class": schema.target.size} if objective == "softmax" else {}
        return {"objective": _OBJECTIVES[objective], "tree_method": "hist", "nthread": 1, "verbosity": 0,
                "max_depth": self.depth, "eta": self.learning_rate, "max_bin": self.bins, "lambda": self.l2,
                "gamma": self.min_gain, "min_child_weight": self.min_child_weight, "subsample": self.rows,
                "colsample_bytree": self.columns, **classes}


@lru_cache(maxsize=64)
def _start(learner: XGBoost, schema: Schema, mean: float) -> Document:
    """Made by XGBoost itself, so that the document is of its installed version."""
    xgboost = _package()
    nothing = xgboost.DMatrix(np.zeros((1, len(schema.features))), np.zeros(1), nthread=1)
    base = mean if schema.target.kind == "number" else 0.5
    booster = xgboost.train({**learner.parameters(schema), "base_score": base}, nothing, 0)
    return from_bytes(np.frombuffer(booster.save_raw("json"), dtype=np.uint8))


def _package() -> Any:
    try:
        import xgboost
    except ImportError:
        raise MissingExtra("xgboost", "trees", "the learner 'xgboost'") from None
    return xgboost
