from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from tree_tables import numbers, walks

from tequio.learners.trees.boosted import BoostedTrees
from tequio.learners.trees.boosting import Boosting
from tequio.learners.trees.forest import Cart, RandomForest
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.votes import importance


def rng():
    return np.random.default_rng(4)


SEED = int(rng().integers(2**31))


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_a_tree_weighs_columns_as_sklearn_does(criterion):
    data = numbers(classes=4)
    twin = DecisionTreeClassifier(criterion=criterion, max_depth=6, random_state=SEED).fit(data.features, data.target)
    ours = importance(Cart(depth=6, criterion=criterion).fit(data, rng()), 4, criterion)
    np.testing.assert_allclose(ours, twin.feature_importances_, atol=1e-12)


def test_a_forest_weighs_columns_as_sklearn_does():
    data = numbers()
    twin = RandomForestClassifier(15, max_depth=4, random_state=SEED).fit(data.features, data.target)
    ours = importance(RandomForest(trees=15, depth=4).fit(data, rng()), 4)
    np.testing.assert_allclose(ours, twin.feature_importances_, atol=1e-12)


def test_information_gains_by_hand():
    # wind tells 0.548795 bits of 8 rows, weather 0.311278 of 4, day 1 of 2
    earned = np.array([4 * 0.311278, 8 * 0.548795, 2.0])
    ours = importance(ID3(depth=3).fit(walks(), rng()), 3)
    np.testing.assert_allclose(ours, earned / earned.sum(), atol=1e-6)


def test_boosted_trees_weigh_columns_by_gain():
    data = numbers(300, columns=6, classes=2)
    model = Boosting(trees=10, depth=3).fit(data, rng())
    weights = importance(model, 6)
    assert weights.sum() == pytest.approx(1)
    assert set(np.argsort(-weights)[:2]) == {0, 1}
    earned = sum(tree.gain[tree.feature == 0].sum() for tree in model.trees)
    assert weights[0] == pytest.approx(earned / sum(tree.gain.sum() for tree in model.trees))


def test_a_model_that_never_splits_weighs_nothing():
    one_class = numbers().take(np.flatnonzero(numbers().target == 1))
    assert importance(Cart().fit(one_class, rng()), 4).tolist() == [0] * 4
    assert importance(RandomForest(trees=3).fit(one_class, rng()), 4).tolist() == [0] * 4
    assert importance(BoostedTrees("logistic", np.zeros(1)), 4).tolist() == [0] * 4
