from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from tree_tables import numbers

from tequio.data.dataset import Dataset, Schema, Target
from tequio.errors import DataError, PayloadError
from tequio.federation import payload as payloads
from tequio.learners.trees.bins import Bins, RowHistograms, quantile_cuts
from tequio.learners.trees.boosted import BoostedTrees, base_margins, gradients, scores_of
from tequio.learners.trees.boosting import Boosting, Growth, drawn_columns, grow_tree
from tequio.learners.trees.tree import LEAF

RNG = np.random.default_rng(0)


def regression(features, target):
    names = [f"x{column}" for column in range(features.shape[1])]
    return Dataset.of(Schema.of_numbers(names, Target("number")), features, target)


def test_a_stump_by_hand():
    rows, gradient = np.arange(4.0)[:, None], np.array([0.5, 0.5, -0.5, -0.5])
    histograms = RowHistograms(rows, Bins(quantile_cuts(rows, 255)))
    tree = grow_tree(histograms.of(gradient, np.ones(4)), histograms.bins, Growth(depth=1, l2=1.0, learning_rate=0.6))
    assert tree.feature.tolist() == [0, LEAF, LEAF]
    assert tree.threshold.tolist() == [1.5, 0, 0]
    # Left G = 1 and H = 2, right G = -1 and H = 2: values -+ 1 / (2 + 1), gain (1/3 + 1/3 - 0) / 2.
    np.testing.assert_allclose(tree.value, [0, -0.2, 0.2])
    np.testing.assert_allclose(tree.gain, [1 / 3, 0, 0])


@pytest.mark.parametrize(("growth", "nodes"), [
    (Growth(depth=1, min_gain=0.3), 3), (Growth(depth=1, min_gain=0.34), 1),
    (Growth(depth=1, min_child_weight=2), 3), (Growth(depth=1, min_child_weight=2.1), 1)])
def test_a_split_has_to_earn_enough_and_to_leave_enough(growth, nodes):
    rows, gradient = np.arange(4.0)[:, None], np.array([0.5, 0.5, -0.5, -0.5])
    histograms = RowHistograms(rows, Bins(quantile_cuts(rows, 255)))
    assert len(grow_tree(histograms.of(gradient, np.ones(4)), histograms.bins, growth)) == nodes


def test_cuts_lie_between_numbers_or_at_quantiles():
    few, many = np.array([[3.0], [1.0], [1.0], [2.0]]), np.arange(1000.0)[:, None]
    assert quantile_cuts(few, 3)[0].tolist() == [1.5, 2.5]
    assert quantile_cuts(np.ones((5, 1)), 3)[0].tolist() == []
    cuts = quantile_cuts(many, 4)
    assert np.bincount(Bins(cuts).codes(many)[0]).tolist() == [250] * 4
    neighbours = np.array([[1.0], [np.nextafter(1.0, 2)]])
    assert Bins(quantile_cuts(neighbours, 5)).codes(neighbours).tolist() == [[0, 1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 9), st.booleans())
def test_histograms_are_sums_over_rows(seed, bins, mostly_zero):
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(60, 3)).round(1)
    rows[:, 1] = rows[:, 1] * (draw.random(60) < (0.2 if mostly_zero else 0.9))
    gradient, curvature = draw.normal(size=60), draw.random(60)
    histograms = RowHistograms(rows, Bins(quantile_cuts(rows, bins)))
    histogram_of = histograms.of(gradient, curvature)
    tree = grow_tree(histogram_of, histograms.bins, Growth(depth=2, min_child_weight=0))
    nodes = np.flatnonzero(tree.feature == LEAF)[::-1]
    sums, weights = histogram_of(tree, nodes)
    at, codes = tree.walk.find(rows), histograms.bins.codes(rows)
    for slot, node in enumerate(nodes):
        for column in range(3):
            for code in range(histograms.bins.sizes[column]):
                inside = (at == node) & (codes[column] == code)
                place = histograms.bins.starts[column] + code
                assert sums[slot, place] == pytest.approx(gradient[inside].sum(), abs=1e-9)
                assert weights[slot, place] == pytest.approx(curvature[inside].sum(), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_summed_histograms_of_parties_grow_the_tree_of_the_pooled_rows(seed, depth):
    draw = np.random.default_rng(seed)
    rows, party = draw.normal(size=(120, 4)), draw.integers(0, 3, 120)
    rows[:, 3] = rows[:, 3] > 0.8
    gradient, curvature = draw.normal(size=120), draw.random(120)
    bins, growth = Bins(quantile_cuts(rows, 16)), Growth(depth=depth)
    whole = grow_tree(RowHistograms(rows, bins).of(gradient, curvature), bins, growth)
    parts = [RowHistograms(rows[party == one], bins).of(gradient[party == one], curvature[party == one])
             for one in range(3)]

    def summed(tree, nodes):
        return tuple(sum(sums) for sums in zip(*(part(tree, nodes) for part in parts), strict=True))

    together = grow_tree(summed, bins, growth)
    np.testing.assert_array_equal(together.feature, whole.feature)
    np.testing.assert_array_equal(together.threshold, whole.threshold)
    np.testing.assert_allclose(together.value, whole.value, atol=1e-9)


def test_the_lighter_child_of_each_pair_is_asked_for():
    data, asked = numbers(300, classes=2), []
    histograms = RowHistograms(data.features, Bins(quantile_cuts(data.features, 32)))
    histogram_of = histograms.of(data.target - 0.5, np.ones(300))

    def listening(tree, nodes):
        asked.append((tree, nodes))
        return histogram_of(tree, nodes)

    grow_tree(listening, histograms.bins, Growth(depth=3))
    assert [len(nodes) for _, nodes in asked] == [1, 1, 2]
    for tree, nodes in asked[1:]:
        rows = np.bincount(tree.walk.find(data.features), minlength=len(tree))
        for node in nodes:
            pair = tree.children[(tree.children == node).any(axis=1)][0]
            assert rows[node] == rows[pair].min()


def test_numbers_are_boosted_as_by_sklearn():
    draw = np.random.default_rng(1)
    features = draw.normal(size=(200, 3))
    target = features[:, 0] ** 2 + features[:, 1] + 0.1 * draw.normal(size=200)
    ours = Boosting(trees=20, depth=3, learning_rate=0.3, l2=0.0).fit(regression(features, target), RNG)
    twin = GradientBoostingRegressor(n_estimators=20, max_depth=3, learning_rate=0.3)
    np.testing.assert_allclose(ours.predict(features), twin.fit(features, target).predict(features), atol=1e-9)


def test_two_classes_are_ranked_as_well_as_by_sklearn():
    bunch = load_breast_cancer()
    schema = Schema.of_numbers([str(name) for name in bunch.feature_names], Target("classes", ("bad", "good")))
    data, fold = Dataset.of(schema, bunch.data, bunch.target), np.random.default_rng(0).permutation(569) % 3
    scores = []
    for one in range(3):
        train, test = data.take(fold != one), data.take(fold == one)
        twins = [GradientBoostingClassifier(n_estimators=40, max_depth=3, random_state=0),
                 HistGradientBoostingClassifier(max_iter=40, max_depth=3, early_stopping=False)]
        theirs = [twin.fit(train.features, train.target).predict_proba(test.features) for twin in twins]
        ours = Boosting(trees=40, depth=3).fit(train, RNG).predict(test.features)
        scores.append([roc_auc_score(test.target, each[:, 1]) for each in (ours, *theirs)])
    ours, *theirs = np.mean(scores, axis=0)
    assert theirs == pytest.approx([ours, ours], abs=0.01)


def test_several_classes_are_told_apart_as_well_as_by_sklearn():
    data = numbers(600, classes=4)
    train, test = data.take(np.arange(400)), data.take(np.arange(400, 600))
    model = Boosting(trees=30, depth=3).fit(train, RNG)
    assert len(model) == 120
    twin = GradientBoostingClassifier(n_estimators=30, max_depth=3, random_state=0).fit(train.features, train.target)
    accuracy = (model.predict(test.features).argmax(axis=1) == test.target).mean()
    assert accuracy >= twin.score(test.features, test.target) - 0.03


@pytest.mark.parametrize("objective", ["logistic", "softmax", "squared"])
def test_gradients_are_the_slopes_of_the_loss(objective):
    outputs = 3 if objective == "softmax" else 1
    margins = np.random.default_rng(2).normal(size=(6, outputs))
    target = np.arange(6) % (3 if objective == "softmax" else 2)

    def loss(moved):
        scores = scores_of(objective, moved)
        return (scores - target) ** 2 / 2 if objective == "squared" else -np.log(scores[np.arange(6), target])

    gradient, curvature = gradients(objective, margins, target)
    for output in range(outputs):
        step = np.zeros((6, outputs))
        step[:, output] = 1e-4
        up, here, down = loss(margins + step), loss(margins), loss(margins - step)
        np.testing.assert_allclose(gradient[:, output], (up - down) / 2e-4, atol=1e-6)
        np.testing.assert_allclose(curvature[:, output], (up - 2 * here + down) / 1e-8, atol=1e-5)


def test_an_ensemble_without_trees_predicts_the_class_shares():
    np.testing.assert_allclose(scores_of("logistic", base_margins("logistic", np.array([30, 10]), 40)[None]),
                               [[0.75, 0.25]])
    np.testing.assert_allclose(scores_of("softmax", base_margins("softmax", np.array([1, 1, 2]), 4)[None]),
                               [[0.25, 0.25, 0.5]])
    assert base_margins("squared", np.array(6.0), 4).tolist() == [1.5]
    assert np.isfinite(base_margins("logistic", np.array([9, 0]), 9)).all()


def test_extreme_margins_stay_probabilities():
    scores = scores_of("logistic", np.array([[800.0], [-800.0]]))
    assert scores.tolist() == [[0, 1], [1, 0]]
    assert scores_of("softmax", np.array([[800.0, -800.0, 0]])).tolist() == [[1, 0, 0]]


def test_boosting_goes_on_from_a_model():
    data = numbers(150)
    whole = Boosting(trees=6, depth=2).fit(data, RNG)
    first = Boosting(trees=4, depth=2).fit(data, RNG)
    both = Boosting(trees=2, depth=2).fit(data, RNG, start=first)
    np.testing.assert_allclose(both.predict(data.features), whole.predict(data.features), atol=1e-12)


def test_a_tree_looks_at_drawn_columns_only():
    assert drawn_columns(5, 1.0, RNG) is None
    assert [drawn_columns(10, share, RNG).sum() for share in (0.01, 0.5, 0.8)] == [1, 5, 8]
    data = numbers(200, classes=2)
    histograms = RowHistograms(data.features, Bins(quantile_cuts(data.features, 32)))
    tree = grow_tree(histograms.of(data.target - 0.5, np.ones(200)), histograms.bins, Growth(depth=4),
                     columns=np.array([False, True, False, True]))
    assert set(tree.feature[tree.feature != LEAF]) == {1, 3}
    model = Boosting(trees=5, depth=2, columns=0.25).fit(data, np.random.default_rng(0))
    assert all(len(set(tree.feature.tolist()) - {LEAF}) <= 1 for tree in model.trees)


def test_a_target_of_labels_is_refused():
    schema = Schema.of_numbers("ab", Target("multilabel", ("p", "q")))
    with pytest.raises(DataError, match="multilabel"):
        Boosting().fit(Dataset.of(schema, np.eye(2), np.eye(2)), RNG)


@pytest.mark.parametrize("classes", [2, 3])
def test_an_ensemble_travels_even_without_trees(classes):
    data = numbers(80, classes=classes)
    for model in (Boosting(trees=3, depth=2).fit(data, RNG),
                  BoostedTrees("logistic" if classes == 2 else "softmax", np.zeros(1 if classes == 2 else 3))):
        payload = payloads.decode(payloads.encode(model.to_payload()))
        back = BoostedTrees.from_payload(payload, features=4, classes=classes)
        np.testing.assert_array_equal(back.predict(data.features), model.predict(data.features))


CORRUPTED = {
    "objective": ({"objective": "hinge"}, "hinge"), "objective for numbers": ({"objective": "squared"}, "does not fit"),
    "base": ({"base": np.zeros(2)}, "does not fit"), "base not finite": ({"base": np.full(3, np.nan)}, "margin"),
    "values": ({"value": None}, "not an ensemble"), "sizes": ({"sizes": np.array([7, 7])}, "do not make up"),
    "words": ({"value": np.array(["a"])}, "not numbers"),
}


@pytest.mark.parametrize("what", CORRUPTED)
def test_a_corrupted_ensemble_is_refused(what):
    change, complaint = CORRUPTED[what]
    payload = {**Boosting(trees=2, depth=2).fit(numbers(80), RNG).to_payload(), **change}
    with pytest.raises(PayloadError, match=f"party '3' sent .*{complaint}"):
        BoostedTrees.from_payload(payload, features=4, classes=3, whose="party '3'")


@pytest.mark.parametrize(("name", "wrong"),
                         [("value", np.nan), ("threshold", np.inf), ("feature", 9), ("children", 99)])
def test_one_wrong_number_in_a_tree_is_refused(name, wrong):
    payload = Boosting(trees=2, depth=2).fit(numbers(80), RNG).to_payload()
    changed = payload[name].copy()
    changed[0] = wrong
    with pytest.raises(PayloadError, match="not sound"):
        BoostedTrees.from_payload({**payload, name: changed}, features=4, classes=3)
