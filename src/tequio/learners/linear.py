"""Linear models of scikit-learn as learners.

What travels is {"coef", "intercept"}: one row of coefficients a class, for two classes as well, so that averaging never
depends on which classes a party holds. Scores are the softmax of the margins. scikit-learn keeps one row for two
classes; half of it with either sign gives the same probabilities. Rows are visited in the order that the given rng
draws; scikit-learn draws nothing. On CSR features scikit-learn's descent moves the intercept a hundred times more
slowly than on dense ones, so the same rows give another model there.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import sparse

from tequio.errors import ConfigError, DataError
from tequio.learners import metrics
from tequio.learners.learner import Trained, as_doubles, check_numeric, flat_features
from tequio.learners.private_training import refuse_private
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator

    from tequio.data.dataset import Array, Dataset, Matrix, Schema, TargetKind
    from tequio.learners.learner import Arrays, Correction, LocalTraining, Tally


@register("learner", "sgd-classifier", paper="Bottou, 2010")
@dataclass(frozen=True)
class SGDClassifier:
    """Linear classifier of scikit-learn, trained one row at a time by stochastic gradient descent.

    Each class is trained against the rest. A party that holds one class only still trains, and moves every margin
    towards that class. Of the local training settings `batch` does not apply: a step is one row. The loss reported is
    the cross-entropy of the scores whichever loss trains, so that learners can be compared.

    Parameters:
        loss: log_loss for logistic regression, hinge for a linear support-vector machine
    """

    loss: Literal["log_loss", "hinge"] = "log_loss"

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """All zeros, as scikit-learn starts."""
        return _zeros_of_classes(schema, "sgd-classifier")

    def train(self, model: Arrays, data: Dataset, training: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None) -> Trained:
        """Visit the rows in the rng's order for `training.epochs` epochs, or for `training.steps` rows."""
        from sklearn import linear_model

        _check_settings("sgd-classifier", model, data, training, correction)
        estimator = linear_model.SGDClassifier(loss=self.loss, **_descent(training, learning_rate))
        estimator.classes_ = np.arange(len(data.schema.target.names))
        estimator.coef_, estimator.intercept_ = _to_sklearn(model)
        steps = _descend(estimator, data, training, rng)
        trained = _from_sklearn(estimator)
        return Trained(trained, steps, _mean_loss(self.evaluate(trained, data)), len(data))

    def predict(self, model: Arrays, data: Dataset) -> NDArray[np.float64]:
        """Softmax of the margins: the classes rank as scikit-learn ranks them."""
        return _class_scores(model, data)

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        """Additive counts of the rows."""
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)


@register("learner", "sgd-regressor", paper="Bottou, 2010")
@dataclass(frozen=True)
class SGDRegressor:
    """Linear regression of scikit-learn, trained one row at a time by stochastic gradient descent on squared errors.

    Of the local training settings `batch` does not apply: a step is one row. Scale features and target first.
    """

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """All zeros, as scikit-learn starts."""
        _check_schema(schema, "number", "sgd-regressor")
        return {"coef": np.zeros(len(schema.features)), "intercept": np.zeros(1)}

    def train(self, model: Arrays, data: Dataset, training: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None) -> Trained:
        """Visit the rows in the rng's order for `training.epochs` epochs, or for `training.steps` rows."""
        from sklearn import linear_model

        _check_settings("sgd-regressor", model, data, training, correction)
        estimator = linear_model.SGDRegressor(**_descent(training, learning_rate))
        estimator.coef_, estimator.intercept_ = _doubles(model).values()
        steps = _descend(estimator, data, training, rng)
        trained = {"coef": estimator.coef_, "intercept": estimator.intercept_}
        return Trained(trained, steps, _mean_loss(self.evaluate(trained, data)), len(data))

    def predict(self, model: Arrays, data: Dataset) -> NDArray[np.float64]:
        """The predicted numbers."""
        return np.asarray(as_doubles(flat_features(data)) @ model["coef"] + model["intercept"][0])

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        """Additive sums over the rows."""
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)


@register("learner", "logistic-regression", paper="Liu and Nocedal, 1989")
@dataclass(frozen=True)
class LogisticRegression:
    """Multinomial logistic regression of scikit-learn, fitted by L-BFGS from the model it is given.

    An iteration over all rows counts as an epoch (and as a step); `weight_decay` is the L2 strength on the mean loss.
    Learning rate, batch and shuffle do not apply. The softmax always spans all classes of the schema, so a party that
    holds only some of them, or one, pushes the others down. With one class and no weight decay nothing but the number
    of epochs bounds the coefficients.
    """

    def initial(self, schema: Schema, rng: np.random.Generator) -> Arrays:
        """All zeros, as scikit-learn starts."""
        return _zeros_of_classes(schema, "logistic-regression")

    def train(self, model: Arrays, data: Dataset, training: LocalTraining, rng: np.random.Generator, *,
              learning_rate: float | None = None, correction: Correction | None = None) -> Trained:
        """Run at most `training.epochs` (or `training.steps`) iterations of L-BFGS."""
        from sklearn import linear_model
        from sklearn.exceptions import ConvergenceWarning

        _check_settings("logistic-regression", model, data, training, correction)
        iterations, strength = training.steps or training.epochs, training.weight_decay * len(data)
        if not iterations:  # L-BFGS would take one all the same
            return Trained(_doubles(model), 0, _mean_loss(self.evaluate(model, data)), len(data))
        estimator = linear_model.LogisticRegression(C=1 / strength if strength else np.inf, warm_start=True,
                                                    max_iter=iterations)
        estimator.coef_, estimator.intercept_ = _to_sklearn(model)
        with warnings.catch_warnings():
            # Stopping short of the optimum is what a few local epochs mean.
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(*_with_every_class(data))
        trained = _from_sklearn(estimator)
        return Trained(trained, int(estimator.n_iter_[0]), _mean_loss(self.evaluate(trained, data)), len(data))

    def predict(self, model: Arrays, data: Dataset) -> NDArray[np.float64]:
        """Probability of each class."""
        return _class_scores(model, data)

    def evaluate(self, model: Arrays, data: Dataset) -> Tally:
        """Additive counts of the rows."""
        return metrics.tally(data.schema.target, self.predict(model, data), data.target)


def _check_schema(schema: Schema, kind: TargetKind, learner: str) -> None:
    check_numeric(schema, learner)
    if schema.target.kind != kind:
        raise DataError(f"'{learner}' predicts a target of kind '{kind}', and '{schema.target.name}' is of kind "
                        f"'{schema.target.kind}'", remedy="set learner.name = \"logistic\", which predicts every kind")
    if kind == "classes" and len(schema.target.names) < 2:
        raise DataError(f"'{learner}' needs at least two classes, and '{schema.target.name}' declares "
                        f"{len(schema.target.names)}")


def _check_settings(learner: str, model: Arrays, data: Dataset, training: LocalTraining,
                    correction: Correction | None) -> None:
    refuse_private(training, learner)
    if correction is not None:
        raise ConfigError(f"'{learner}' is trained by scikit-learn, which cannot correct gradients",
                          remedy="FedProx and SCAFFOLD need a gradient learner such as 'logistic'")
    asked = {"adam": training.optimizer == "adam", "momentum": training.momentum > 0,
             "clip_norm": training.clip_norm > 0, "optimizer_memory": training.optimizer_memory == "kept"}
    unknown = [setting for setting, is_asked in asked.items() if is_asked]
    if unknown:
        raise ConfigError(f"'{learner}' is trained by scikit-learn, which has no {' and no '.join(unknown)}",
                          remedy="leave it out, or choose a gradient learner such as 'logistic'")
    if not len(data):
        raise DataError(f"'{data.name}' has no rows to train on", remedy="raise the partition's minimum of rows")
    if model["coef"].shape[-1] != len(data.schema.features):
        raise DataError(f"a model of {model['coef'].shape[-1]} columns does not fit '{data.name}', which has "
                        f"{len(data.schema.features)}")


def _zeros_of_classes(schema: Schema, learner: str) -> Arrays:
    _check_schema(schema, "classes", learner)
    classes = len(schema.target.names)
    return {"coef": np.zeros((classes, len(schema.features))), "intercept": np.zeros(classes)}


def _doubles(model: Arrays) -> Arrays:
    """A copy in the only precision that scikit-learn goes on from, whatever a stage made of the model on its way."""
    return {name: np.array(model[name], dtype=np.float64) for name in ("coef", "intercept")}


def _to_sklearn(model: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    coef, intercept = _doubles(model).values()
    return (np.diff(coef, axis=0), np.diff(intercept)) if len(coef) == 2 else (coef, intercept)


def _from_sklearn(estimator: BaseEstimator) -> Arrays:
    coef, intercept = np.asarray(estimator.coef_), np.asarray(estimator.intercept_)
    if len(coef) == 1:
        return {"coef": np.concatenate([-coef / 2, coef / 2]), "intercept": np.concatenate([-intercept, intercept]) / 2}
    return {"coef": np.ascontiguousarray(coef), "intercept": intercept}


def _descent(training: LocalTraining, learning_rate: float | None) -> dict[str, str | float]:
    return {"alpha": training.weight_decay, "learning_rate": "constant", "shuffle": False,
            "eta0": training.learning_rate if learning_rate is None else learning_rate}


def _descend(estimator: BaseEstimator, data: Dataset, training: LocalTraining, rng: np.random.Generator) -> int:
    """Train in place, one epoch a call; returns how many rows were visited."""
    features, target = as_doubles(flat_features(data)), data.target
    estimator.n_features_in_ = features.shape[1]
    visited = 0
    for order in _orders(len(data), training, rng):
        try:
            estimator.partial_fit(features[order], target[order])
        except ValueError as cause:
            raise DataError(f"training on '{data.name}' failed in scikit-learn: {cause}",
                            remedy="scale the features or lower the learning rate") from cause
        visited += len(order)
    return visited


def _orders(rows: int, training: LocalTraining, rng: np.random.Generator) -> Iterator[Array]:
    """Row order of each epoch, the last one cut short where steps are counted."""
    left = training.steps or rows * training.epochs
    while left > 0:
        order = rng.permutation(rows) if training.shuffle else np.arange(rows)
        yield order[:left]
        left -= rows


def _with_every_class(data: Dataset) -> tuple[Matrix, Array, NDArray[np.float64]]:
    """Features, target and weights, with a row of weight nought for each class that the party does not hold.

    scikit-learn reads the classes off the target; a row without weight names a class and changes nothing else.
    """
    features, target = as_doubles(flat_features(data)), data.target
    absent = np.setdiff1d(np.arange(len(data.schema.target.names)), target)
    weights = np.concatenate([np.ones(len(target)), np.zeros(len(absent))])
    filler = features[np.zeros(len(absent), dtype=np.int64)]
    stack = sparse.vstack if sparse.issparse(features) else np.concatenate
    return stack([features, filler]), np.concatenate([target, absent]), weights


def _class_scores(model: Arrays, data: Dataset) -> NDArray[np.float64]:
    margins = np.asarray(as_doubles(flat_features(data)) @ model["coef"].T + model["intercept"])
    margins -= margins.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(margins, out=margins)
    return np.asarray(margins / margins.sum(axis=1, keepdims=True))


def _mean_loss(tally: Tally) -> float:
    return float(tally["loss_sum"] / tally["rows"])
