"""Rule fusion against its strongest oracle: without caps, the fused tree says what the soft vote of the trees says."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.learners.trees.growing import Growing, distil, grow
from tequio.learners.trees.rules import Fusing, are_disjoint, extract, fuse, matches
from tequio.registry import build

COLUMNS = 4
CLASSES = ("a", "b", "c")


def table(kind, rows, seed):
    draw = np.random.default_rng(seed)
    if kind == "cart":
        features = draw.random((rows, COLUMNS))
        schema = Schema.of_numbers("wxyz", Target("classes", CLASSES))
        score = features[:, 0] + (features[:, 1] > 0.5) - features[:, 2]
    else:
        features = draw.integers(0, 3, (rows, COLUMNS)).astype(np.float64)
        schema = Schema(tuple(Feature(name, ("p", "q", "r")) for name in "wxyz"), Target("classes", CLASSES))
        score = features[:, 0] + (features[:, 1] > 1) - features[:, 2]
    noisy = score + 0.4 * draw.standard_normal(rows)
    return Dataset.of(schema, features, np.digitize(noisy, np.quantile(noisy, [0.3, 0.7])))


def trees_of(kind, count, rows=150, depth=3):
    learner = build("learner", kind, {"depth": depth})
    return [learner.fit(table(kind, rows, seed), np.random.default_rng(seed)) for seed in range(count)]


def fused(trees, **how):
    return fuse([extract(tree, COLUMNS) for tree in trees], Fusing(**how))


@pytest.mark.parametrize("kind", ["cart", "id3"])
def test_the_rules_of_one_tree_are_its_leaves_and_disjoint(kind):
    tree = trees_of(kind, 1)[0]
    rules, features = extract(tree, COLUMNS), table(kind, 200, 9).features
    assert len(rules) == len(tree.leaves)
    assert are_disjoint(rules)
    assert (matches(rules, features).sum(axis=1) == 1).all()


@pytest.mark.parametrize("kind", ["cart", "id3"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_uncapped_tree_is_the_soft_vote_of_its_trees(kind, count):
    trees = trees_of(kind, count)
    rules, losses = fused(trees, budget=10**9)
    features = table(kind, 2000, 99).features
    vote = sum(tree.predict(features) for tree in trees)
    clear = np.diff(np.sort(vote, axis=1)[:, -2:], axis=1)[:, 0] > 1e-9  # ties may go either way
    decided = grow(rules)[0].predict(features).argmax(axis=1)
    assert (decided[clear] == vote.argmax(axis=1)[clear]).all()
    assert losses.supported == 0
    assert are_disjoint(rules)


@pytest.mark.parametrize("kind", ["cart", "id3"])
def test_two_identical_trees_decide_like_one(kind):
    tree = trees_of(kind, 1)[0]
    features = table(kind, 500, 5).features
    grown, _ = grow(fused([tree, tree])[0])
    assert (grown.predict(features).argmax(axis=1) == tree.predict(features).argmax(axis=1)).all()


def test_what_the_budget_costs_is_counted():
    trees = trees_of("cart", 4, depth=4)
    whole, _ = fused(trees, budget=10**9)
    kept, losses = fused(trees, budget=40)
    assert len(kept) <= 40 < len(whole)
    assert losses.supported + losses.unsupported > 0
    assert 0 < losses.coverage < 1


@pytest.mark.parametrize("kind", ["cart", "id3"])
def test_a_depth_cap_holds(kind):
    rules, _ = fused(trees_of(kind, 3))
    assert grow(rules, Growing(depth=2))[0].depths.max() <= 2


@pytest.mark.parametrize("kind", ["cart", "id3"])
def test_a_cap_on_leaves_holds_and_says_what_it_kept_from_being_split(kind):
    rules, _ = fused(trees_of(kind, 3))
    whole, none_left = grow(rules)
    small, left = grow(rules, Growing(leaves=9))
    assert none_left == 0 < left <= len(small.leaves) <= 9 < len(whole.leaves)
    assert small.feature[0] == whole.feature[0]


@pytest.mark.parametrize("kind", ["cart", "id3"])
def test_a_distilled_tree_has_at_most_so_many_leaves_and_comes_near_the_vote(kind):
    trees = trees_of(kind, 4)
    features = table(kind, 2000, 99).features
    vote = sum(tree.predict(features) for tree in trees).argmax(axis=1)
    small = distil([extract(tree, COLUMNS) for tree in trees], leaves=24)
    assert len(small.leaves) <= 24 + 2  # a multiway split adds its children at once
    assert np.mean(small.predict(features).argmax(axis=1) == vote) > 0.85
