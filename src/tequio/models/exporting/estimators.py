"""A model as a fitted scikit-learn estimator: a pipeline that prepares raw rows, and a plain estimator at its end.

The last step knows nothing of tequio: take it with `pipeline[-1]` where rows are prepared already. scikit-learn's trees
round rows to single precision before they compare; a row that lies nearer to a threshold than that may go another way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.errors import ConfigError
from tequio.learners.answers import One
from tequio.learners.kmeans import KMeans
from tequio.learners.learner import flat_features
from tequio.learners.trees.sklearn_form import to_sklearn
from tequio.learners.trees.tree import Tree
from tequio.learners.zoo import MLP
from tequio.models.exporting.forms import answer_of, linear, tree_sum
from tequio.models.rows import asked, batches
from tequio.registry import name_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator
    from sklearn.pipeline import Pipeline

    from tequio.data.dataset import Schema
    from tequio.models.exporting.forms import Linear, TreeSum
    from tequio.models.model import Model
    from tequio.models.rows import Reading


def to_estimator(model: Model) -> Pipeline:
    """The pipeline: preparation, and the estimator, whose classes are those of the model."""
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    answer, schema = answer_of(model), model.reading.prepared_schema
    if not isinstance(answer, One):
        raise ConfigError("several models answer together here, which scikit-learn has no form for",
                          remedy="export it to onnx: tequio export MODEL --to onnx")
    estimator = _estimator(answer.learner, answer.model, schema)
    if hasattr(estimator, "classes_"):
        estimator.classes_ = np.array(model.classes.tolist())
    if hasattr(estimator, "_label_binarizer"):
        estimator._label_binarizer.classes_ = estimator.classes_
    prepare = FunctionTransformer(Prepared(model.reading, model.party), check_inverse=False)
    return Pipeline([("preparation", prepare), ("model", estimator)])


@dataclass(frozen=True)
class Prepared:
    """A function from raw rows, as `Model.predict` takes them, to the numbers that the model was trained on."""

    reading: Reading
    party: str = ""

    def __call__(self, rows: Any) -> Any:
        """Prepared rows, (rows, columns)."""
        parts = [flat_features(self.reading.prepared(asked(self.reading, part).rows, self.party))
                 for part in batches(rows)]
        return parts[0] if len(parts) == 1 else (sparse.vstack if self.reading.sparse else np.concatenate)(parts)


def _estimator(learner: object, model: Any, schema: Schema) -> BaseEstimator:
    kind, columns = schema.target.kind, len(schema.features)
    if isinstance(learner, KMeans):
        return _clusters(model["centroids"])
    if (trees := tree_sum(learner, model, schema)) is not None:
        return _forest(trees, schema, name_of(type(learner)))
    if kind in ("classes", "number") and (plain := linear(learner, model, schema)) is not None:
        return _linear(plain, columns)
    if kind in ("classes", "number") and isinstance(learner, MLP):
        return _network(learner, model, schema)
    raise ConfigError(f"scikit-learn has no form for a model of the learner '{name_of(type(learner))}' that predicts "
                      f"{kind}", remedy="export it to onnx: tequio export MODEL --to onnx")


def _clusters(centroids: NDArray[np.float64]) -> BaseEstimator:
    from sklearn.cluster import KMeans as Clusters

    estimator = Clusters(len(centroids), n_init=1)
    estimator.cluster_centers_ = np.ascontiguousarray(centroids, dtype=np.float64)
    estimator.n_features_in_, estimator._n_threads = centroids.shape[1], 1
    return estimator


def _linear(model: Linear, columns: int) -> BaseEstimator:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if model.link == "identity":
        regression = LinearRegression()
        regression.coef_, regression.intercept_ = model.coef[0], float(model.intercept[0])
        regression.n_features_in_ = columns
        return regression
    pair = model.link == "softmax" and len(model.coef) == 2
    estimator = LogisticRegression()
    estimator.coef_ = np.diff(model.coef, axis=0) if pair else model.coef
    estimator.intercept_ = np.diff(model.intercept) if pair else model.intercept.astype(np.float64)
    estimator.n_features_in_, estimator.classes_ = columns, np.arange(max(len(estimator.coef_), 2))
    return estimator


def _forest(model: TreeSum, schema: Schema, learner: str) -> BaseEstimator:
    """A tree or a forest; what boosted trees add up to has no estimator that can be filled in from outside."""
    from sklearn.ensemble import RandomForestClassifier

    if model.link != "identity" or schema.target.kind != "classes" or len(model.start) < 2:
        raise ConfigError(f"scikit-learn has no form for boosted trees such as those of '{learner}'",
                          remedy="export them to onnx: tequio export MODEL --to onnx")
    trees = [to_sklearn(Tree(tree.kind, tree.feature, tree.threshold, tree.children,
                             tree.values * np.maximum(_support(tree.rows), 1e-300)), schema) for tree in model.trees]
    if len(trees) == 1:
        return trees[0]
    forest = RandomForestClassifier(len(trees))
    forest.estimators_, forest.estimator_ = trees, trees[0]
    forest.classes_, forest.n_classes_ = np.arange(len(model.start)), len(model.start)
    forest.n_outputs_, forest.n_features_in_ = 1, len(schema.features)
    return forest


def _support(rows: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert rows is not None
    return rows[:, None]


def _network(learner: MLP, model: Any, schema: Schema) -> BaseEstimator:
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import LabelBinarizer

    names = [*(f"hidden{number}" for number in range(1, len(learner.hidden) + 1)), "output"]
    activation = {"sigmoid": "logistic"}.get(learner.activation, learner.activation)
    is_number, classes = schema.target.kind == "number", len(schema.target.names)
    made = (MLPRegressor if is_number else MLPClassifier)(learner.hidden, activation=activation)
    made.coefs_ = [np.ascontiguousarray(model[f"{name}.weight"].T) for name in names]
    made.intercepts_ = [model[f"{name}.bias"] for name in names]
    made.n_layers_, made.n_outputs_ = len(names) + 1, len(made.intercepts_[-1])
    made.n_features_in_ = len(schema.features)
    made.out_activation_ = "identity" if is_number else "logistic" if made.n_outputs_ == 1 else "softmax"
    if not is_number:
        made.classes_ = np.arange(classes)
        made._label_binarizer = LabelBinarizer().fit(made.classes_)
    return made
