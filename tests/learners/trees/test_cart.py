from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.tree import DecisionTreeClassifier
from tree_tables import categories, numbers

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import ConfigError, DataError
from tequio.learners.trees.forest import Cart
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.sklearn_form import _double_thresholds, from_sklearn, to_sklearn
from tequio.learners.trees.tree import LEAF


def embedded(load):
    bunch = load()
    target = Target("classes", tuple(bunch.target_names))
    schema = Schema.of_numbers([str(name) for name in bunch.feature_names], target)
    return Dataset.of(schema, bunch.data, bunch.target)


DATA = {"iris": lambda: embedded(load_iris), "breast-cancer": lambda: embedded(load_breast_cancer),
        "random": numbers, "decimals": lambda: numbers(digits=1), "many classes": lambda: numbers(400, classes=7)}


def twin(learner, seed, data):
    """scikit-learn's own tree, given the seed that the learner draws."""
    drawn = int(np.random.default_rng(seed).integers(2**31))
    estimator = DecisionTreeClassifier(criterion=learner.criterion, max_depth=learner.depth, random_state=drawn,
                                       min_samples_split=learner.min_split, min_samples_leaf=learner.min_leaf)
    return estimator.fit(data.features, data.target)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("learner", [Cart(), Cart(depth=20), Cart(min_split=0.1, min_leaf=4, criterion="entropy")])
def test_it_is_the_tree_of_sklearn(name, learner):
    data = DATA[name]()
    half = data.take(np.arange(0, len(data), 2))
    tree, estimator = learner.fit(half, np.random.default_rng(5)), twin(learner, 5, half)
    inner = tree.feature != LEAF
    np.testing.assert_array_equal(inner, estimator.tree_.children_left != LEAF)
    np.testing.assert_array_equal(tree.feature[inner], estimator.tree_.feature[inner])
    np.testing.assert_allclose(tree.threshold[inner], estimator.tree_.threshold[inner], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(tree.counts.sum(axis=1), estimator.tree_.n_node_samples)
    np.testing.assert_allclose(tree.predict(data.features), estimator.predict_proba(data.features), atol=1e-12)


@pytest.mark.parametrize("name", DATA)
def test_there_and_back_through_sklearn(name):
    data = DATA[name]()
    tree = Cart(depth=8).fit(data.take(np.arange(0, len(data), 2)), np.random.default_rng(1))
    estimator = to_sklearn(tree, data.schema)
    np.testing.assert_allclose(estimator.predict_proba(data.features), tree.predict(data.features), atol=1e-12)
    np.testing.assert_array_equal(estimator.predict(data.features), tree.predict(data.features).argmax(axis=1))
    back = from_sklearn(estimator, data.schema)
    for part in ("feature", "children", "counts", "threshold"):
        np.testing.assert_array_equal(getattr(back, part), getattr(tree, part))


def test_a_class_that_a_party_lacks_keeps_its_place():
    data = numbers(classes=4)
    some = data.take(np.flatnonzero(np.isin(data.target, [1, 3])))
    tree = Cart().fit(some, np.random.default_rng(0))
    assert tree.counts.shape[1] == 4
    assert tree.counts[0].tolist() == np.bincount(some.target, minlength=4).tolist()
    assert not tree.counts[:, [0, 2]].any()


def test_a_tree_that_somebody_fitted_on_class_names():
    data = numbers()
    names = np.array(data.schema.target.names)[data.target]
    ours = from_sklearn(DecisionTreeClassifier(max_depth=3, random_state=0).fit(data.features, names), data.schema)
    theirs = DecisionTreeClassifier(max_depth=3, random_state=0).fit(data.features, data.target)
    np.testing.assert_allclose(ours.predict(data.features), theirs.predict_proba(data.features), atol=1e-12)


def test_a_tree_of_other_data_is_refused():
    data = numbers()
    with pytest.raises(DataError, match="looks at 3 columns, the schema names 4"):
        from_sklearn(DecisionTreeClassifier().fit(data.features[:, :3], data.target), data.schema)
    with pytest.raises(DataError, match="class 'x2'"):
        from_sklearn(DecisionTreeClassifier().fit(data.features, np.char.add("x", data.target.astype(str))),
                     Schema(data.schema.features, Target("classes", ("x0", "x1"))))


def test_a_multiway_tree_has_no_form_in_sklearn():
    data = categories([[0], [1], [2]], [0, 1, 1], [3], 2)
    with pytest.raises(ConfigError, match="multiway"):
        to_sklearn(ID3().fit(data, np.random.default_rng(0)), data.schema)


def test_numbers_beyond_single_precision_are_refused():
    data = numbers(20)
    huge = data.features.copy()
    huge[3, 2] = 1e300
    with pytest.raises(DataError, match=r"'x2'.*too large"):
        Cart().fit(Dataset.of(data.schema, huge, data.target), np.random.default_rng(0))


def test_a_target_without_classes_is_refused():
    schema = Schema.of_numbers("ab", Target("multilabel", ("x", "y")))
    with pytest.raises(DataError, match="'multilabel'"):
        Cart().fit(Dataset.of(schema, np.eye(2), np.eye(2, dtype=int)), np.random.default_rng(0))


def test_decimals_at_a_threshold_go_where_sklearn_sends_them():
    # The middle of 0.2 and 0.4 in single precision is above 0.3, but below 0.3 in single precision.
    schema = Schema.of_numbers(["x"], Target("classes", ("a", "b")))
    data = Dataset.of(schema, np.array([[0.2], [0.4]]), [0, 1])
    tree, estimator = Cart().fit(data, np.random.default_rng(0)), twin(Cart(), 0, data)
    assert estimator.tree_.threshold[0] > 0.3
    assert tree.predict(np.array([[0.3]])).tolist() == estimator.predict_proba([[0.3]]).tolist() == [[0, 1]]


def test_a_threshold_of_few_digits_is_left_as_it_is():
    assert _double_thresholds(np.array([0.5, 38.5, -2.25, 1e6])).tolist() == [0.5, 38.5, -2.25, 1e6]


single = st.floats(-1e6, 1e6, width=32)


@given(single, single, st.integers(-3, 3))
def test_rows_in_double_precision_go_as_in_single(low, high, steps):
    threshold = np.array([(low + high) / 2])
    if float(f"{threshold[0]:.6g}") == threshold[0]:
        return
    exact = _double_thresholds(threshold)[0]
    near = float(np.float32(threshold[0]))
    for value in (threshold[0], exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf), near,
                  near + steps * float(np.spacing(np.float32(near))) / 2):
        assert (value <= exact) == (np.float32(value) <= threshold[0])
