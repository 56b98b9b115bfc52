"""Every tree learner: repeatable, no touch of global randomness or of its data, additive evaluation, odd data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tequio import registry
from tequio.data.dataset import Dataset, Feature
from tequio.errors import DataError, PayloadError
from tequio.federation import payload as payloads
from tequio.learners.learner import Learner, takes_of
from tequio.learners.metrics import merge, summarise
from tequio.learners.trees.learner import TreeLearner

from .subjects import make, table

every_tree_learner = pytest.mark.parametrize(
    "name", [entry.name for entry in registry.entries("learner") if hasattr(entry.component, "fit")])


def categories(rows):
    """The rows of `table`, each number cut into three categories."""
    numbers = table(rows)
    schema = replace(numbers.schema, features=tuple(Feature(name, ("low", "middle", "high")) for name in "abcd"))
    return Dataset.of(schema, np.digitize(numbers.features, [-0.4, 0.4]), numbers.target)


# Learners that only make sense on data of a certain form.
DATA = {"id3": categories}


def subject(name):
    return make("learner", name), DATA.get(name, table)(60)


def fit(learner, data, seed=1):
    return learner.fit(data, np.random.default_rng(seed))


def bytes_of(model):
    return payloads.encode(model.to_payload())


@every_tree_learner
def test_it_is_a_tree_learner_and_no_other(name):
    learner = make("learner", name)
    assert isinstance(learner, TreeLearner)
    assert not isinstance(learner, Learner)


@every_tree_learner
def test_fitting_is_repeatable_and_leaves_its_rows_alone(name):
    learner, data = subject(name)
    rows, target = data.features.copy(), data.target.copy()
    assert bytes_of(fit(learner, data)) == bytes_of(fit(learner, data))
    np.testing.assert_array_equal(data.features, rows)
    np.testing.assert_array_equal(data.target, target)


@every_tree_learner
def test_it_learns(name):
    learner, data = subject(name)
    accuracy = summarise(data.schema.target, learner.evaluate(fit(learner, data), data))["accuracy"]
    assert accuracy > np.bincount(data.target).max() / len(data)


@every_tree_learner
def test_global_randomness_is_not_touched(name):
    learner, data = subject(name)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    learner.evaluate(fit(learner, data), data)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@every_tree_learner
def test_tallies_of_parts_add_up_to_the_whole(name):
    learner, data = subject(name)
    model = fit(learner, data)
    parts = [learner.evaluate(model, data.take(rows)) for rows in np.split(np.arange(len(data)), [20])]
    together = summarise(data.schema.target, merge(parts))
    for metric, value in summarise(data.schema.target, learner.evaluate(model, data)).items():
        assert together[metric] == pytest.approx(value, nan_ok=True), metric


@every_tree_learner
def test_one_row_and_one_class_can_be_fitted(name):
    learner, data = subject(name)
    for rows in ([0], [0, 1, 2, 3, 4], np.flatnonzero(data.target == 1)):
        some = data.take(rows)
        scores = learner.predict(fit(learner, some), data)
        assert scores.shape == (len(data), 2)
        np.testing.assert_allclose(scores.sum(axis=1), 1)
        if len(np.unique(some.target)) == 1:
            assert (scores[:, some.target[0]] >= 0.5).all()


@every_tree_learner
def test_no_rows_are_an_error(name):
    learner, data = subject(name)
    with pytest.raises(DataError, match="no rows"):
        fit(learner, data.take([]))


@every_tree_learner
def test_a_row_of_weight_two_counts_like_two_rows(name):
    learner, data = subject(name)
    if name == "random-forest":
        pytest.skip("draws rows, so other rows are drawn")
    weights = 1.0 + (np.arange(len(data)) % 3 == 0)
    weighted = learner.fit(data, np.random.default_rng(1), weights=weights)
    repeated = fit(learner, data.take(np.repeat(np.arange(len(data)), weights.astype(int))))
    np.testing.assert_allclose(weighted.predict(data.features), repeated.predict(data.features))


@every_tree_learner
def test_weights_that_do_not_fit_are_refused(name):
    learner, data = subject(name)
    for weights in (np.ones(len(data) - 1), -np.ones(len(data)), np.zeros(len(data)), np.full(len(data), np.nan)):
        with pytest.raises(DataError, match="weights"):
            learner.fit(data, np.random.default_rng(0), weights=weights)


@every_tree_learner
def test_a_model_predicts_from_its_bytes(name):
    learner, data = subject(name)
    model = fit(learner, data)
    payload = payloads.decode(bytes_of(model))
    np.testing.assert_array_equal(learner.predict(payload, data), learner.predict(model, data))


@every_tree_learner
def test_a_model_of_other_data_is_refused(name):
    learner, data = subject(name)
    payload = fit(learner, data).to_payload()
    more_classes = replace(data.schema, target=replace(data.schema.target, names=("no", "yes", "perhaps")))
    for other in (data.select([3]), replace(data, schema=more_classes)):
        with pytest.raises(PayloadError):
            learner.predict(payload, other)
    for broken in ({}, {"kind": payload["kind"]}):
        with pytest.raises(PayloadError):
            learner.predict(broken, data)


@every_tree_learner
def test_columns_of_the_other_kind_are_taken_or_refused_with_a_remedy(name):
    learner, wrong = make("learner", name), table(20) if name in DATA else categories(20)
    if {"number", "category"} <= takes_of(learner):
        assert len(learner.predict(fit(learner, wrong), wrong)) == 20
        return
    with pytest.raises(DataError, match=r"column 'a'.*data\.prepare = "):
        fit(learner, wrong)


@every_tree_learner
def test_a_missing_value_is_an_error(name):
    learner, data = subject(name)
    rows = data.features.astype(np.float64)
    rows[7, 2] = np.nan
    with pytest.raises(DataError, match=r"column 'c'.*row 7"):
        fit(learner, replace(data, source=replace(data.source, features=rows)))
