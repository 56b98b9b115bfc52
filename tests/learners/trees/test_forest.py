from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from tree_tables import numbers, walks

from tequio.errors import PayloadError
from tequio.federation import payload as payloads
from tequio.learners.trees.forest import Forest, RandomForest, joined, sample_trees
from tequio.learners.trees.id3 import ID3


def fitted(data, seed=3, **parameters):
    return RandomForest(**{"trees": 12, **parameters}).fit(data, np.random.default_rng(seed))


def test_it_is_the_forest_of_sklearn():
    data = numbers(digits=1)
    half = data.take(np.arange(0, len(data), 2))
    seed = int(np.random.default_rng(3).integers(2**31))
    twin = RandomForestClassifier(12, max_depth=5, random_state=seed).fit(half.features, half.target)
    np.testing.assert_allclose(fitted(half).predict(data.features), twin.predict_proba(data.features), atol=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), [
    ({"min_leaf": 7}, {"min_samples_leaf": 7}), ({"min_split": 0.2}, {"min_samples_split": 0.2}),
    ({"min_split": 40, "depth": 3}, {"min_samples_split": 40, "max_depth": 3}),
    ({"criterion": "entropy"}, {"criterion": "entropy"}), ({"columns": 0.75}, {"max_features": 0.75})])
def test_every_setting_means_what_it_means_in_sklearn(ours, theirs):
    data = numbers()
    seed = int(np.random.default_rng(3).integers(2**31))
    twin = RandomForestClassifier(4, **{"max_depth": 5, "random_state": seed, **theirs}).fit(data.features, data.target)
    forest = RandomForest(trees=4, **ours).fit(data, np.random.default_rng(3))
    assert [len(tree) for tree in forest.trees] == [tree.tree_.node_count for tree in twin.estimators_]
    np.testing.assert_allclose(forest.predict(data.features), twin.predict_proba(data.features), atol=1e-12)


def test_a_class_that_a_party_lacks_keeps_its_place():
    data = numbers(classes=4)
    some = data.take(np.flatnonzero(data.target % 2 == 1))
    shares = fitted(some).predict(data.features)
    assert shares.shape == (len(data), 4)
    assert not shares[:, [0, 2]].any()


def test_majority_counts_each_tree_once():
    data = numbers()
    mean, majority = fitted(data), fitted(data, voting="majority")
    votes = [tree.predict(data.features).argmax(axis=1) for tree in mean.trees]
    expected = np.stack([np.bincount(row, minlength=3) for row in np.stack(votes, axis=1)]) / 12
    np.testing.assert_allclose(majority.predict(data.features), expected)


def test_forests_are_joined_and_thinned():
    data = numbers()
    first, second = fitted(data, 1), fitted(data, 2, trees=5)
    both = joined([first, second])
    assert both.trees == first.trees + second.trees
    weighted = (12 * first.predict(data.features) + 5 * second.predict(data.features)) / 17
    np.testing.assert_allclose(both.predict(data.features), weighted)
    drawn = sample_trees(first, 4, np.random.default_rng(0))
    assert len(set(map(id, drawn.trees))) == 4
    assert set(drawn.trees) < set(first.trees)
    assert len(sample_trees(first, 99, np.random.default_rng(0))) == 12


def test_a_forest_of_multiway_trees_of_different_width_travels():
    data = walks()
    forest = Forest(tuple(ID3(depth=depth).fit(data, np.random.default_rng(0)) for depth in (1, 3)))
    back = Forest.from_payload(payloads.decode(payloads.encode(forest.to_payload())), features=3, classes=2)
    rows = np.array([[weather, wind, day] for weather in range(3) for wind in range(2) for day in range(2)])
    np.testing.assert_array_equal(back.predict(rows), forest.predict(rows))


@pytest.mark.parametrize(("change", "complaint"), [
    ({"sizes": np.array([1, 2])}, "do not make up"), ({"sizes": np.array([], np.int32)}, "do not make up"),
    ({"sizes": None}, "not a forest"), ({"counts": None}, "not a forest"), ({"voting": "loudest"}, "loudest"),
    ({"of": "ternary"}, "ternary"), ({"voting": ["mean"]}, "votes by")])
def test_a_corrupted_forest_is_refused(change, complaint):
    payload = {**fitted(numbers()).to_payload(), **change}
    with pytest.raises(PayloadError, match=f"party '3' sent .*{complaint}"):
        Forest.from_payload(payload, features=4, classes=3, whose="party '3'")


def test_one_bad_tree_spoils_the_forest():
    payload = fitted(numbers()).to_payload()
    threshold = payload["threshold"].copy()
    threshold[int(np.flatnonzero(payload["feature"] >= 0)[-1])] = np.nan
    with pytest.raises(PayloadError, match="threshold"):
        Forest.from_payload({**payload, "threshold": threshold}, features=4, classes=3)
