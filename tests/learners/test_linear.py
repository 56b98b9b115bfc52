"""Linear learners against scikit-learn itself, and at parties whose data is hard."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax
from sklearn import linear_model

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.learners.learner import Arrays, Correction, Learner, LocalTraining
from tequio.learners.linear import LogisticRegression, SGDClassifier, SGDRegressor
from tequio.learners.metrics import merge, summarise

COLUMNS = 4
ROWS = 60
HOW = LocalTraining(epochs=2, learning_rate=0.05, weight_decay=0.01)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def schema(target: Target) -> Schema:
    return Schema.of_numbers([f"x{column}" for column in range(COLUMNS)], target)


def class_schema(classes: int) -> Schema:
    return schema(Target("classes", tuple("abcdef"[:classes])))


def class_data(classes: int, seed: int = 0) -> Dataset:
    random = rng(seed)
    features = random.normal(size=(ROWS, COLUMNS))
    target = (features[:, :classes] + 0.5 * random.normal(size=(ROWS, classes))).argmax(axis=1)
    return Dataset.of(class_schema(classes), features, target)


def number_data(seed: int = 0) -> Dataset:
    random = rng(seed)
    features = random.normal(size=(ROWS, COLUMNS))
    return Dataset.of(schema(Target("number")), features, features @ [1.0, -2.0, 0.5, 0.0] + 3.0)


def as_sparse(data: Dataset) -> Dataset:
    return Dataset.of(data.schema, sparse.csr_matrix(data.features), data.target)


def fresh(learner: Learner, data: Dataset) -> Arrays:
    return learner.initial(data.schema, rng())


def assert_same(one: Arrays, other: Arrays, **tolerance: float) -> None:
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], **tolerance or {"rtol": 1e-12, "atol": 1e-14})


EVERY = [(SGDClassifier(), class_data(2)), (SGDClassifier("hinge"), class_data(3)), (SGDRegressor(), number_data()),
         (LogisticRegression(), class_data(2)), (LogisticRegression(), class_data(4))]
every = pytest.mark.parametrize(("learner", "data"), EVERY, ids=[
    "sgd-2-classes", "hinge-3-classes", "sgd-number", "logistic-2-classes", "logistic-4-classes"])


def plain_descent(estimator: Any, data: Dataset, how: LocalTraining, **classes: Any) -> Any:
    random = rng()
    for _ in range(how.epochs):
        order = random.permutation(len(data))
        estimator.partial_fit(data.features[order], data.target[order], **classes)
    return estimator


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
@pytest.mark.parametrize("classes", [2, 3])
def test_sgd_classifier_equals_scikit_learn(loss: Any, classes: int) -> None:
    data, learner = class_data(classes), SGDClassifier(loss)
    trained = learner.train(fresh(learner, data), data, HOW, rng())
    plain = plain_descent(linear_model.SGDClassifier(loss=loss, alpha=0.01, learning_rate="constant", eta0=0.05,
                                                     shuffle=False), data, HOW, classes=range(classes))
    scores = learner.predict(trained.model, data)
    assert trained.model["coef"].shape == (classes, COLUMNS)
    assert trained.steps == 2 * ROWS
    np.testing.assert_array_equal(scores.argmax(axis=1), plain.predict(data.features))
    margins = plain.decision_function(data.features)
    expected = softmax(np.column_stack([0 * margins, margins]) if classes == 2 else margins, axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_sgd_regressor_equals_scikit_learn() -> None:
    data, learner = number_data(), SGDRegressor()
    trained = learner.train(fresh(learner, data), data, HOW, rng())
    plain = plain_descent(linear_model.SGDRegressor(alpha=0.01, learning_rate="constant", eta0=0.05, shuffle=False),
                          data, HOW)
    np.testing.assert_allclose(learner.predict(trained.model, data), plain.predict(data.features), rtol=1e-12)
    expected = np.mean((plain.predict(data.features) - data.target) ** 2)
    assert trained.loss == pytest.approx(expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_equals_scikit_learn(classes: int) -> None:
    data, learner = class_data(classes), LogisticRegression()
    how = LocalTraining(epochs=200, weight_decay=0.05)
    trained = learner.train(fresh(learner, data), data, how, rng())
    plain = linear_model.LogisticRegression(C=1 / (0.05 * ROWS), max_iter=200).fit(data.features, data.target)
    np.testing.assert_allclose(learner.predict(trained.model, data), plain.predict_proba(data.features), rtol=1e-9)
    found = summarise(data.schema.target, learner.evaluate(trained.model, data))
    assert found["accuracy"] == pytest.approx(plain.score(data.features, data.target))
    assert found["loss"] == pytest.approx(trained.loss)


def test_logistic_regression_spans_classes_that_the_party_does_not_hold() -> None:
    data, learner, decay = class_data(4), LogisticRegression(), 0.1
    party = data.take(np.flatnonzero(data.target < 2))
    model = fresh(learner, data)
    for _ in range(30):  # scikit-learn stops at a coarse tolerance; starting again refines it
        model = learner.train(model, party, LocalTraining(epochs=500, weight_decay=decay), rng()).model
    error = learner.predict(model, party) - np.eye(4)[party.target]
    gradient = error.T @ party.features / len(party) + decay * model["coef"]
    np.testing.assert_allclose(gradient, 0.0, atol=1e-3)
    assert (model["intercept"][2:] < model["intercept"][:2].min() - 2).all()


@pytest.mark.parametrize("learner", [SGDClassifier(), SGDClassifier("hinge"), LogisticRegression()])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("make", [lambda data: data, as_sparse], ids=["dense", "sparse"])
def test_a_party_with_one_class_learns_that_class(learner: Learner, classes: int, make: Any) -> None:
    data = make(class_data(classes))
    party = data.take(np.flatnonzero(data.target == 1))
    trained = learner.train(fresh(learner, data), party, LocalTraining(epochs=5, weight_decay=0.01), rng())
    assert trained.model["coef"].shape == (classes, COLUMNS)
    assert trained.loss < 0.75 * np.log(classes)
    assert learner.predict(trained.model, party)[:, 1].mean() > 1.3 / classes


@every
def test_sparse_rows_score_as_dense_ones(learner: Learner, data: Dataset) -> None:
    model = learner.train(fresh(learner, data), data, HOW, rng()).model
    np.testing.assert_allclose(learner.predict(model, as_sparse(data)), learner.predict(model, data))


def test_logistic_regression_learns_the_same_from_sparse_rows() -> None:
    data, learner = class_data(3), LogisticRegression()
    dense, thin = (learner.train(fresh(learner, data), rows, HOW, rng()) for rows in (data, as_sparse(data)))
    assert_same(dense.model, thin.model, rtol=1e-8, atol=1e-10)


def test_descent_on_sparse_rows_equals_scikit_learn() -> None:
    data, learner = as_sparse(class_data(3)), SGDClassifier()
    trained = learner.train(fresh(learner, data), data, HOW, rng())
    plain = plain_descent(linear_model.SGDClassifier(loss="log_loss", alpha=0.01, learning_rate="constant", eta0=0.05,
                                                     shuffle=False), data, HOW, classes=range(3))
    assert_same(trained.model, {"coef": plain.coef_, "intercept": plain.intercept_})


@every
def test_training_leaves_the_given_model_alone_and_repeats_itself(learner: Learner, data: Dataset) -> None:
    start = learner.train(fresh(learner, data), data, HOW, rng()).model
    kept = {name: array.copy() for name, array in start.items()}
    one, other = (learner.train(start, data, HOW, rng(7)) for _ in range(2))
    assert_same(start, kept)
    assert_same(one.model, other.model)
    assert one.rows == ROWS


@pytest.mark.parametrize(("learner", "data"), EVERY[:3])
def test_training_goes_on_from_the_given_model(learner: Learner, data: Dataset) -> None:
    random, single = rng(), replace(HOW, epochs=1)
    halfway = learner.train(fresh(learner, data), data, single, random)
    assert_same(learner.train(halfway.model, data, single, random).model,
                learner.train(fresh(learner, data), data, HOW, rng()).model)


def test_logistic_regression_goes_on_from_the_given_model() -> None:
    data, learner = class_data(3), LogisticRegression()
    done = learner.train(fresh(learner, data), data, LocalTraining(epochs=300, weight_decay=0.05), rng())
    again = learner.train(done.model, data, LocalTraining(epochs=1, weight_decay=0.05), rng())
    assert_same(again.model, done.model, rtol=1e-2, atol=1e-3)


@every
def test_a_model_that_was_rounded_on_its_way_trains(learner: Learner, data: Dataset) -> None:
    start = learner.train(fresh(learner, data), data, HOW, rng()).model
    rounded = {name: array.astype(np.float32) for name, array in start.items()}
    assert_same(learner.train(rounded, data, HOW, rng()).model, learner.train(start, data, HOW, rng()).model,
                rtol=1e-4, atol=1e-5)


@every
def test_no_epochs_change_nothing(learner: Learner, data: Dataset) -> None:
    start = learner.train(fresh(learner, data), data, HOW, rng()).model
    idle = learner.train(start, data, replace(HOW, epochs=0), rng())
    assert_same(idle.model, start)
    assert idle.steps == 0


def test_steps_count_rows() -> None:
    data, learner = class_data(2), SGDClassifier()
    trained = learner.train(fresh(learner, data), data, replace(HOW, steps=ROWS + 5), rng())
    random = rng()
    order = np.concatenate([random.permutation(ROWS), random.permutation(ROWS)[:5]])
    in_order = LocalTraining(epochs=1, learning_rate=0.05, weight_decay=0.01, shuffle=False)
    assert_same(trained.model, learner.train(fresh(learner, data), data.take(order), in_order, rng()).model)
    assert trained.steps == ROWS + 5


def test_the_round_decides_the_learning_rate() -> None:
    data, learner = class_data(2), SGDClassifier()
    slow = learner.train(fresh(learner, data), data, HOW, rng(), learning_rate=0.001)
    same = learner.train(fresh(learner, data), data, replace(HOW, learning_rate=0.001), rng())
    assert_same(slow.model, same.model)


def test_images_are_flattened() -> None:
    flat = class_data(2)
    images = Dataset.of(Schema.of_images((1, 2, 2), ("a", "b")), flat.features.reshape(ROWS, 1, 2, 2), flat.target)
    learner = SGDClassifier()
    assert_same(learner.train(fresh(learner, images), images, HOW, rng()).model,
                learner.train(fresh(learner, flat), flat, HOW, rng()).model)


@every
def test_a_party_without_rows_to_evaluate_adds_nothing(learner: Learner, data: Dataset) -> None:
    model = fresh(learner, data)
    whole, empty = learner.evaluate(model, data), learner.evaluate(model, data.take([]))
    assert empty["rows"] == 0
    assert summarise(data.schema.target, merge([empty, whole])) == summarise(data.schema.target, whole)


@every
def test_what_scikit_learn_cannot_do_is_refused(learner: Learner, data: Dataset) -> None:
    model = fresh(learner, data)
    with pytest.raises(ConfigError, match="gradient learner such as 'logistic'"):
        learner.train(model, data, HOW, rng(), correction=Correction(pull=0.1, anchor=model))
    with pytest.raises(ConfigError, match="no adam and no momentum"):
        learner.train(model, data, LocalTraining(optimizer="adam", momentum=0.9), rng())
    with pytest.raises(DataError, match="no rows"):
        learner.train(model, data.take([]), HOW, rng())
    with pytest.raises(DataError, match="does not fit"):
        learner.train(model, data.select([0, 1]), HOW, rng())


@every
def test_wrong_schemas_are_refused(learner: Learner, data: Dataset) -> None:
    kind = data.schema.target.kind
    with pytest.raises(DataError, match=f"of kind '{kind}', and 'target' is of kind 'multilabel'"):
        learner.initial(schema(Target("multilabel", ("a", "b"))), rng())
    with pytest.raises(DataError, match="'colour' is categorical"):
        learner.initial(Schema((Feature("colour", ("red", "green")),), data.schema.target), rng())
    if kind == "classes":
        with pytest.raises(DataError, match="at least two classes"):
            learner.initial(schema(Target("classes", ("a",))), rng())


def test_divergence_says_what_to_do() -> None:
    data, learner = number_data(), SGDRegressor()
    huge = Dataset.of(data.schema, data.features * 1e300, data.target)
    with pytest.raises(DataError, match="scale the features or lower the learning rate"):
        learner.train(fresh(learner, huge), huge, LocalTraining(epochs=30), rng())


def test_importing_the_learners_does_not_import_scikit_learn() -> None:
    code = "import sys, tequio.learners.linear, tequio.learners.kmeans; print('sklearn' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
