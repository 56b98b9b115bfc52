from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier
from tree_tables import mixed, numbers, walks

from tequio.data.dataset import Target
from tequio.learners.trees.forest import Cart
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.mixed import MixedGrowth, MixedRows, weighted_impurity
from tequio.learners.trees.pruning import cut_at, without_errors, without_weak_branches
from tequio.learners.trees.tree import LEAF, fault_of

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("alpha", [0.0, 0.001, 0.01, 0.03, 1.0])
def test_weak_branches_go_as_in_sklearn(alpha):
    data = numbers(300, classes=3)
    whole = Cart(depth=12).fit(data, np.random.default_rng(5))
    theirs = DecisionTreeClassifier(max_depth=12, random_state=int(np.random.default_rng(5).integers(2**31)),
                                    ccp_alpha=alpha).fit(data.features, data.target)
    pruned = without_weak_branches(whole, alpha, weighted_impurity(whole.counts, "gini") / 300)
    np.testing.assert_allclose(pruned.predict(data.features), theirs.predict_proba(data.features))
    assert len(pruned) == theirs.tree_.node_count
    learnt = Cart(depth=12, ccp_alpha=alpha).fit(data, np.random.default_rng(5))
    assert len(learnt) == len(pruned)


def test_mixed_trees_are_pruned_as_they_grow():
    data = mixed(800)
    whole, pruned, bare = (Cart(depth=9, ccp_alpha=alpha).fit(data, RNG) for alpha in (0.0, 0.003, 1.0))
    assert len(whole) > len(pruned) > len(bare) == 1
    assert fault_of(pruned, 4, 2) == ""
    numeric = replace(data, schema=replace(data.schema, target=Target("number")))
    grown = MixedRows(numeric, data.features, "cart").grow(MixedGrowth(9, impurity="squared", ccp_alpha=0.003), None)
    assert 1 < len(grown) < len(whole)


def test_id3_keeps_only_what_tells_enough():
    data = walks()
    whole = ID3(depth=3).fit(data, RNG)
    assert len(ID3(depth=3, ccp_alpha=1e-9).fit(data, RNG)) <= len(whole)
    assert len(ID3(depth=3, ccp_alpha=1.0).fit(data, RNG)) == 1


def errors(tree, rows):
    said = tree.predict(rows.features)
    return (said.argmax(axis=1) != rows.target).sum() if tree.value is None else ((said - rows.target) ** 2).sum()


@pytest.mark.parametrize("learner", [Cart(depth=4), ID3(depth=2), ID3(depth=2, children="observed")])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 100))
def test_no_other_cut_makes_fewer_errors_on_the_rows(learner, seed):
    data, held = mixed(120, seed=seed), mixed(60, seed=seed + 1)
    tree = learner.fit(data, RNG)
    pruned = without_errors(tree, held.features, held.target)
    assert fault_of(pruned, 4, 2) == ""
    inner = np.flatnonzero(tree.feature != LEAF)
    draw = np.random.default_rng(seed)
    for _ in range(40):
        leaf = tree.feature == LEAF
        leaf[inner] = draw.random(len(inner)) < 0.3
        assert errors(pruned, held) <= errors(cut_at(tree, leaf), held)
    # nothing is left that could go without an error more
    for node in np.flatnonzero(pruned.feature != LEAF):
        leaf = pruned.feature == LEAF
        leaf[node] = True
        assert errors(cut_at(pruned, leaf), held) > errors(pruned, held)


def test_regression_trees_are_pruned_by_squared_errors():
    target = Target("number")
    data, held = mixed(300, target=target), mixed(200, seed=3, target=target)
    tree = Cart(depth=10).fit(data, RNG)
    pruned = without_errors(tree, held.features, held.target)
    assert len(pruned) < len(tree)
    assert errors(pruned, held) < errors(tree, held)
