"""Trees on numbers, categories and missing values together: by hand, beside scikit-learn, and passed on."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tree_tables import MIXED, mixed, numbers

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import DataError, PayloadError
from tequio.federation import payload as payloads
from tequio.learners.trees.explain import condition, differences, explain
from tequio.learners.trees.forest import Cart, Forest, RandomForest
from tequio.learners.trees.growing import Growing, distil, grow
from tequio.learners.trees.id3 import ID3
from tequio.learners.trees.mixed import MixedGrowth, MixedRows
from tequio.learners.trees.rules import Fusing, Rules, are_disjoint, extract, fuse, matches, mixed_form
from tequio.learners.trees.text import from_json, plain_rules, rules_text, to_json, tree_text
from tequio.learners.trees.tree import EVERY_NUMBER, Tree
from tequio.learners.trees.votes import importance

NAN, RNG = np.nan, np.random.default_rng(0)
YES = Target("classes", ("no", "yes"))
NUMBER, THREE = Target("number"), Target("classes", ("no", "yes", "maybe"))


def one_column(feature, values, target, kind=YES):
    return Dataset.of(Schema((feature,), kind), np.array(values)[:, None], target, missing="keep")


def columns(tree):
    """The arrays of a tree as lists, children after the way that missing values go."""
    return [tree.feature.tolist(), tree.children.tolist(), tree.missing.tolist(), tree.counts.tolist()]


JOB = Feature("job", ("a", "b", "c", "d"))


def test_categories_are_split_into_the_best_two_sets_of_which_missing_is_one():
    data = one_column(JOB, [0, 0, 1, 1, 2, NAN, NAN], [1, 1, 0, 0, 1, 0, 0])
    tree = Cart().fit(data, RNG)
    # a and c say yes, b and missing say no; d was never met and goes with the larger side
    assert columns(tree) == [[0, -1, -1], [[1, 2, 1, 2], [-1] * 4, [-1] * 4], [2, -1, -1],
                             [[4, 3], [0, 3], [4, 0]]]
    assert np.isnan(tree.threshold).all()
    assert tree.find(np.array([[0.0], [1.0], [2.0], [3.0], [NAN]])).tolist() == [1, 2, 1, 2, 2]


@pytest.mark.parametrize(("labels", "threshold", "missing"), [
    ([0, 0, 1, 1, 1], 2.5, 2), ([0, 0, 1, 0, 0], 2.5, 1), ([0, 0, 0, 1, 1], EVERY_NUMBER, 2)])
def test_missing_numbers_go_where_they_tell_more(labels, threshold, missing):
    tree = Cart(depth=1).fit(one_column(Feature("x"), [1, 2, 3, NAN, NAN], labels), RNG)
    assert tree.threshold[0] == threshold
    assert tree.missing.tolist() == [missing, -1, -1]
    assert tree.predict(np.array([[1.0], [2.0], [3.0], [NAN]])).argmax(axis=1).tolist() == labels[:4]


def test_a_gap_that_training_never_met_goes_to_the_larger_child():
    schema = Schema((Feature("x"), JOB), YES)
    tree = Cart(depth=1).fit(Dataset.of(schema, np.array([[1, 0], [2, 0], [3, 1]], float), [0, 0, 1]), RNG)
    assert tree.missing.tolist() == [-1, -1, -1]
    assert tree.find(np.array([[NAN, NAN]])).tolist() == tree.find(np.array([[1.0, 0.0]])).tolist()


def test_id3_has_a_child_for_each_category_and_one_for_missing_values():
    data = one_column(JOB, [0, 0, 1, 1, NAN], [1, 1, 0, 0, 1])
    tree = ID3(depth=1).fit(data, RNG)
    assert columns(tree) == [[0, -1, -1, -1, -1, -1], [[1, 2, 3, 4]] + [[-1] * 4] * 5, [5, -1, -1, -1, -1, -1],
                             [[2, 3], [0, 2], [2, 0], [0, 0], [0, 0], [0, 1]]]
    observed = ID3(depth=1, children="observed").fit(data, RNG)
    assert observed.children[0].tolist() == [1, 2, -1, -1]
    assert observed.missing[0] == 3
    assert observed.stuck(np.array([[0.0], [3.0], [NAN]])).tolist() == [False, True, False]


def test_id3_uses_a_number_again_and_a_category_once():
    data = mixed(2000)
    tree = ID3(depth=4).fit(data, RNG)
    for leaf in tree.leaves.tolist():
        path = []
        while leaf:
            leaf = int(tree.parents[leaf])
            path.append(int(tree.feature[leaf]))
        assert all(path.count(column) <= 1 for column in (1, 2))


@pytest.mark.parametrize("kind", [YES, NUMBER])
def test_no_other_two_sets_of_categories_are_better(kind):
    draw = np.random.default_rng(3)
    codes = draw.integers(0, 6, 80).astype(float)
    target = (draw.random(80) < codes % 5 / 5).astype(int) if kind is YES else draw.normal(size=80) + codes % 4
    feature = Feature("job", tuple("abcdef"))
    tree = Cart(depth=1).fit(one_column(feature, codes, target, kind), RNG)

    def error(left):
        sides = [target[left], target[~left]]
        return sum(len(side) * (np.var(side) if kind is NUMBER else 2 * np.mean(side) * (1 - np.mean(side)))
                   for side in sides)

    ours = error(tree.find(codes[:, None]) == 1)
    every = [error(np.isin(codes, chosen)) for size in (1, 2, 3) for chosen in combinations(range(6), size)]
    assert ours == pytest.approx(min(every))


def test_several_classes_are_split_no_worse_than_by_a_single_category():
    data = mixed(800, gaps=0, target=THREE)
    tree = MixedRows(data, data.features, "cart").grow(MixedGrowth(1), None)

    def gini(left):
        return sum(side.sum() - (np.bincount(data.target[side], minlength=3) ** 2).sum() / side.sum()
                   for side in (left, ~left))

    ours = gini(tree.find(data.features) == 1)
    assert ours <= min(gini(data.features[:, column] == code) for column, count in ((1, 6), (2, 3))
                       for code in range(count)) + 1e-9


@pytest.mark.parametrize("gaps", [0.0, 0.2])
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
def test_on_numbers_it_is_the_tree_of_sklearn(gaps, criterion):
    data = numbers(200, classes=2, seed=4)
    rows = data.features.copy()
    rows[np.random.default_rng(1).random(rows.shape) < gaps] = NAN
    holed = Dataset.of(data.schema, rows, data.target, missing="keep")
    ours = MixedRows(holed, rows, "cart").grow(MixedGrowth(3, min_leaf=8, impurity=criterion), None)
    theirs = DecisionTreeClassifier(max_depth=3, min_samples_leaf=8, criterion=criterion, random_state=0)
    np.testing.assert_allclose(ours.predict(rows), theirs.fit(rows, data.target).predict_proba(rows))
    assert len(ours.leaves) == theirs.get_n_leaves()


def test_the_mixed_regression_tree_is_that_of_sklearn_on_numbers():
    data = mixed(150, gaps=0, target=NUMBER)
    rows = data.features[:, [0, 3]]
    numeric = Dataset.of(Schema((MIXED.features[0], MIXED.features[3]), NUMBER), rows, data.target)
    ours = MixedRows(numeric, rows, "cart").grow(MixedGrowth(4, impurity="squared"), None)
    theirs = DecisionTreeRegressor(max_depth=4, random_state=0).fit(rows, data.target)
    np.testing.assert_allclose(ours.predict(rows), theirs.predict(rows))


@pytest.mark.parametrize("learner", [Cart(depth=4), Cart(depth=9, min_leaf=5, min_split=0.1)])
def test_a_regression_tree_of_numbers_is_that_of_sklearn(learner):
    data = numbers(300)
    target = data.features[:, 0] ** 2 + data.features[:, 1]
    regression = Dataset.of(replace(data.schema, target=NUMBER), data.features, target)
    tree = learner.fit(regression, np.random.default_rng(5))
    seed = int(np.random.default_rng(5).integers(2**31))
    theirs = DecisionTreeRegressor(max_depth=learner.depth, min_samples_leaf=learner.min_leaf,
                                   min_samples_split=learner.min_split, random_state=seed).fit(data.features, target)
    np.testing.assert_allclose(tree.predict(data.features), theirs.predict(data.features))
    assert tree.kind == "binary"
    assert tree.counts[:, 0].tolist() == theirs.tree_.n_node_samples.tolist()


LEARNERS = [Cart(depth=4), ID3(depth=3), ID3(depth=3, children="observed")]
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=["cart", "id3", "id3-observed"])
every_target = pytest.mark.parametrize("target", [YES, THREE, NUMBER], ids=["two", "three", "number"])


def fits(learner, target):
    return isinstance(learner, Cart) or target is not NUMBER


@every_learner
@every_target
def test_the_order_of_rows_does_not_matter(learner, target):
    if not fits(learner, target):
        return
    data = mixed(300, target=target)
    tree = learner.fit(data, RNG)
    shuffled = learner.fit(data.take(np.random.default_rng(1).permutation(300)), RNG)
    assert tree.feature.tolist() == shuffled.feature.tolist()
    np.testing.assert_allclose(tree.predict(data.features), shuffled.predict(data.features))


@every_learner
@every_target
@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(6)), seed=st.integers(0, 50))
def test_the_order_of_categories_does_not_matter(learner, target, order, seed):
    if not fits(learner, target):
        return
    data = mixed(120, seed=seed, target=target)
    weights = np.random.default_rng(seed).random(120) + 1  # so that no two splits are equally good
    features = data.features.copy()
    met = ~np.isnan(features[:, 1])
    features[met, 1] = np.argsort(order)[features[met, 1].astype(int)]
    named = Feature("job", tuple("abcdef"[code] for code in order))
    schema = replace(data.schema, features=(data.schema.features[0], named, *data.schema.features[2:]))
    other = Dataset.of(schema, features, data.target, missing="keep")
    np.testing.assert_allclose(learner.fit(data, RNG, weights=weights).predict(data.features),
                               learner.fit(other, RNG, weights=weights).predict(features))


@every_learner
@every_target
def test_every_form_of_a_tree_sends_rows_the_same_way(learner, target):
    if not fits(learner, target):
        return
    data, fresh = mixed(target=target), mixed(seed=9, gaps=0.3, target=target).features
    tree = learner.fit(data, RNG)
    sent = Tree.from_payload(payloads.decode(payloads.encode(tree.to_payload())), features=4, classes=target.size)
    written = from_json(to_json(tree, data.schema), data.schema)
    for other in (sent, written):
        assert other.find(fresh).tolist() == tree.find(fresh).tolist()
        np.testing.assert_array_equal(other.predict(fresh), tree.predict(fresh))
    rules = Rules.from_payload(payloads.decode(payloads.encode(extract(tree, 4).to_payload())))
    held = matches(rules, fresh)
    ends = tree.find(fresh)
    inside = np.isin(ends, tree.leaves)
    assert are_disjoint(rules)
    assert (held[inside].sum(axis=1) == 1).all()
    assert not held[~inside].any()
    assert tree.leaves[held[inside].argmax(axis=1)].tolist() == ends[inside].tolist()


def parts(target, count=4):
    data = mixed(800, target=target)
    return data, [data.take(np.arange(start, 800, count)) for start in range(count)]


@every_target
def test_the_fused_cart_tree_says_what_the_trees_say_together(target):
    data, own = parts(target)
    trees = [Cart(depth=4).fit(part, RNG) for part in own]
    rules, losses = fuse([extract(tree, 4) for tree in trees], Fusing(budget=10**6))
    assert losses.coverage == 1
    assert (matches(rules, data.features).sum(axis=1) == 1).all()
    tree, _ = grow(rules, Growing(rule_weight="support"))
    together = np.mean([tree.predict(data.features) for tree in trees], axis=0)
    if target is NUMBER:
        np.testing.assert_allclose(tree.predict(data.features), together)
    else:
        best = together.max(axis=1, keepdims=True)
        clear = (together > best - 1e-6).sum(axis=1) == 1
        assert (tree.predict(data.features).argmax(axis=1) == together.argmax(axis=1))[clear].all()
    Tree.from_payload(tree.to_payload(), features=4, classes=target.size)


@pytest.mark.parametrize("target", [YES, THREE], ids=["two", "three"])
def test_the_fused_id3_tree_says_what_the_trees_say_together(target):
    data, own = parts(target)
    trees = [ID3(depth=3).fit(part, RNG) for part in own]
    rules, _ = fuse([extract(tree, 4) for tree in trees], Fusing(budget=10**6))
    tree, _ = grow(rules, Growing(rule_weight="support"))
    together = np.mean([tree.predict(data.features) for tree in trees], axis=0)
    clear = (together > together.max(axis=1, keepdims=True) - 1e-6).sum(axis=1) == 1
    assert (tree.predict(data.features).argmax(axis=1) == together.argmax(axis=1))[clear].all()
    split = np.flatnonzero((tree.feature == 1) & np.isnan(tree.threshold))
    assert (np.sort(tree.children[split], axis=1)[:, -3:] > 0).all()  # one child a category, not two sets


@every_learner
@every_target
def test_one_tree_distilled_is_that_tree(learner, target):
    if not fits(learner, target):
        return
    data = mixed(target=target)
    tree = learner.fit(data, RNG)
    again = distil([extract(tree, 4)])
    same = again.predict(data.features), tree.predict(data.features)
    if target is NUMBER:
        np.testing.assert_allclose(*same)
    else:
        assert same[0].argmax(axis=1).tolist() == same[1].argmax(axis=1).tolist()


def test_a_tree_of_numbers_alone_joins_mixed_ones():
    data = mixed()
    numeric = Tree("binary", np.array([0, -1, -1], np.int32), np.array([0.0, NAN, NAN]),
                   np.array([[1, 2], [-1, -1], [-1, -1]], np.int32), np.array([[5.0, 4.0], [5.0, 0.0], [0.0, 4.0]]))
    joined, _ = fuse([extract(mixed_form(numeric), 4), extract(Cart(depth=2).fit(data, RNG), 4)])
    assert (matches(joined, data.features).sum(axis=1) == 1).all()
    assert mixed_form(numeric).find(np.array([[NAN] * 4])).tolist() == [1]  # the larger child


def test_a_forest_takes_mixed_rows_and_travels():
    for target, better in ((YES, 0.85), (NUMBER, 4.0)):
        data, fresh = mixed(1500, target=target), mixed(500, seed=5, target=target)
        forest = RandomForest(trees=15, depth=6, columns=0.6).fit(data, np.random.default_rng(1))
        again = Forest.from_payload(payloads.decode(payloads.encode(forest.to_payload())), features=4,
                                    classes=target.size)
        np.testing.assert_array_equal(again.predict(fresh.features), forest.predict(fresh.features))
        if target is YES:
            assert (forest.predict(fresh.features).argmax(axis=1) == fresh.target).mean() > better
        else:
            assert ((forest.predict(fresh.features) - fresh.target) ** 2).mean() < better


def test_a_forest_of_numbers_predicts_numbers():
    from sklearn.ensemble import RandomForestRegressor

    data = numbers(400)
    target = data.features[:, 0] ** 2 + data.features[:, 1]
    regression = Dataset.of(replace(data.schema, target=NUMBER), data.features, target)
    learner = RandomForest(trees=40, depth=6, columns=1.0)
    ours = learner.evaluate(learner.fit(regression.take(np.arange(300)), RNG), regression.take(np.arange(300, 400)))
    theirs = RandomForestRegressor(40, max_depth=6, random_state=0).fit(data.features[:300], target[:300])
    error = ((theirs.predict(data.features[300:]) - target[300:]) ** 2).sum()
    assert ours["loss_sum"] == pytest.approx(error, rel=0.3)


def test_missing_values_are_refused_where_the_data_does_not_say_that_they_may_be():
    data = mixed(gaps=0.1)
    with pytest.raises(DataError, match=r"missing value .*data\.missing = 'keep'"):
        Cart().fit(replace(data, source=replace(data.source, missing="")), RNG)
    endless = np.where(np.arange(4) == 0, np.inf, data.features)
    with pytest.raises(DataError, match=r"'age'.*infinite"):
        Cart().fit(replace(data, source=replace(data.source, features=endless)), RNG)


@pytest.mark.parametrize(("change", "fault"), [
    ({"missing": [7, -1, -1]}, "child that does not exist"), ({"missing": [-1, -1]}, "do not fit"),
    ({"missing": [-1, 2, -1]}, "two parents"), ({"feature": [9, -1, -1]}, "column that does not exist"),
    ({"threshold": [np.inf, -np.inf, -np.inf]}, "finite"), ({"children": [[1, 1], [-1, -1], [-1, -1]]}, "two children"),
    ({"children": [[1, 2], [2, -1], [-1, -1]]}, "two parents"), ({"missing": [0, -1, -1]}, "none of its children")])
def test_a_mixed_tree_that_is_not_sound_is_refused(change, fault):
    tree = Cart(depth=1).fit(one_column(Feature("x"), [1, 2, 3, NAN], [0, 0, 1, 1]), RNG)
    arrays = {name: np.array(values) for name, values in change.items()}
    with pytest.raises(PayloadError, match=fault):
        Tree.from_payload({**tree.to_payload(), **arrays}, features=1, classes=2)


def test_a_regression_tree_that_is_not_sound_is_refused():
    tree = Cart(depth=1).fit(one_column(Feature("x"), [1, 2, 3], [0.0, 0.0, 1.0], NUMBER), RNG)
    for value in ([0.0, NAN, 1.0], [0.0, 1.0]):
        with pytest.raises(PayloadError, match="means"):
            Tree.from_payload({**tree.to_payload(), "value": np.array(value)}, features=1, classes=1)
    with pytest.raises(PayloadError, match="means"):
        Tree.from_payload({**tree.to_payload(), "counts": np.ones((3, 2))}, features=1, classes=2)


def test_it_reads_like_a_sentence():
    data = one_column(JOB, [0, 0, 1, 1, 2, NAN, NAN], [1, 1, 0, 0, 1, 0, 0])
    tree = Cart().fit(data, RNG)
    assert tree_text(tree, data.schema).splitlines() == [
        "all rows: 7 rows, split on job", "job in {a, c}: yes (100 % of 3 rows)",
        "job in {b, d} or missing: no (100 % of 4 rows)"]
    assert rules_text(plain_rules(extract(tree, 1), data.schema)).splitlines() == [
        "1. if job in {b, d} or missing then no  (100 % of 4 rows)", "2. if job in {a, c} then yes  (100 % of 3 rows)"]
    assert str(explain(tree, np.array([NAN]), data.schema)) == "{ job in {b, d} or missing } -> no"
    alone = Cart(depth=1).fit(one_column(Feature("x"), [1, 2, 3, NAN, NAN], [0, 0, 0, 1, 1]), RNG)
    schema = Schema((Feature("x"),), YES)
    assert [str(condition(alone, 0, child, schema)) for child in (1, 2)] == ["x is known", "x is missing"]


def test_a_regression_tree_reads_like_a_sentence():
    data = one_column(Feature("x"), [1, 2, 3, NAN], [1.0, 1.0, 4.0, 4.0], NUMBER)
    tree = Cart(depth=1).fit(data, RNG)
    assert tree_text(tree, data.schema).splitlines() == [
        "all rows: 4 rows, split on x", "x <= 2.5: 1 (2 rows)", "x > 2.5 or missing: 4 (2 rows)"]
    assert str(explain(tree, np.array([NAN]), data.schema)) == "{ x > 2.5 or missing } -> 4"
    assert rules_text(plain_rules(extract(tree, 1), data.schema)).splitlines()[0] == \
        "1. if x <= 2.5 then 1  (2 rows)"


def test_trees_part_where_their_sets_do():
    data = one_column(JOB, [0, 0, 1, 1, 2, NAN, NAN], [1, 1, 0, 0, 1, 0, 0])
    other = one_column(JOB, [0, 0, 1, 1, 2, NAN, NAN], [1, 1, 0, 0, 0, 0, 0])
    first, second = Cart().fit(data, RNG), Cart().fit(other, RNG)
    assert differences(first, first, data.schema) == []
    assert [found.change for found in differences(first, second, data.schema)] == ["other split"]


def test_importance_is_what_splits_take_off():
    data = mixed(500, target=NUMBER)
    tree = Cart(depth=3).fit(data, RNG)
    earned = np.zeros(4)
    ends = {0: np.arange(500)}
    for node in range(len(tree)):
        rows = ends[node]
        if tree.feature[node] >= 0:
            for child in set(tree.branches[node].tolist()) - {-1}:
                ends[child] = rows[_step(tree, node, data.features[rows]) == child]
            squares = [len(part) * np.var(data.target[part]) for part in
                       [rows, *(ends[child] for child in set(tree.branches[node].tolist()) - {-1})]]
            earned[tree.feature[node]] += squares[0] - sum(squares[1:])
    np.testing.assert_allclose(importance(tree, 4), earned / earned.sum())


def _step(tree, node, rows):
    """Where rows go from a node, by the words of the class `Tree`."""
    values = rows[:, tree.feature[node]]
    gone = np.full(len(rows), tree.default[node])
    known = ~np.isnan(values)
    if np.isnan(tree.threshold[node]):
        gone[known] = tree.children[node, values[known].astype(int)]
    else:
        gone[known] = tree.children[node, (values[known] > tree.threshold[node]).astype(int)]
    return gone


@every_target
def test_xgboost_takes_the_table_and_its_trees_are_understood(target):
    pytest.importorskip("xgboost")
    from tequio.learners.trees.votes import boosted_from_xgboost
    from tequio.learners.trees.xgboost_learner import XGBoost

    data, fresh = mixed(900, target=target), mixed(400, seed=6, gaps=0.3, target=target)
    learner = XGBoost(trees=12, depth=4, learning_rate=0.4)
    model = learner.fit(data, np.random.default_rng(0))
    sent = payloads.decode(payloads.encode(model.to_payload()))
    np.testing.assert_array_equal(learner.predict(sent, fresh), model.predict(fresh.features))
    ours = boosted_from_xgboost(model.document, data.schema)
    # single precision decides a few of the days at their thresholds
    np.testing.assert_allclose(ours.predict(fresh.features.astype(np.float32)), model.predict(fresh.features),
                               rtol=1e-4, atol=1e-5)
    assert set(np.flatnonzero(importance(ours, 4) > 0.02)) >= {0, 1, 2}
