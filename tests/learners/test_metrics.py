"""Metrics against scikit-learn, tallies that add up, and hand-worked corners."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from tequio.data.dataset import Target
from tequio.errors import ConfigError, DataError
from tequio.federation import payload
from tequio.learners.metrics import METRICS, higher_is_better, merge, metrics_of, row_losses, spread, summarise, tally

BINARY = Target("classes", ("no", "yes"))
LABELS = Target("multilabel", ("red", "round", "ripe"))
NUMBER = Target("number")
NONE = Target("none")

seeds = st.integers(0, 2**32 - 1)


def classes(count: int) -> Target:
    return Target("classes", tuple(f"class_{index}" for index in range(count)))


def probabilities(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Coarse probabilities, so that ties between classes and between rows occur."""
    raw = rng.integers(1, 6, (rows, columns)).astype(float)
    return raw / raw.sum(axis=1, keepdims=True)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, rows=st.integers(1, 40), count=st.integers(2, 6))
def test_class_metrics_equal_scikit_learn(seed: int, rows: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    truth, scores = rng.integers(0, count, rows), probabilities(rng, rows, count)
    predicted = scores.argmax(axis=1)
    found = summarise(classes(count), tally(classes(count), scores, truth))
    macro = {"average": "macro", "zero_division": 0}
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(truth, predicted))
    assert found["loss"] == pytest.approx(reference.log_loss(truth, scores, labels=range(count)))
    assert found["f1_macro"] == pytest.approx(reference.f1_score(truth, predicted, **macro))
    assert found["f1_micro"] == pytest.approx(reference.f1_score(truth, predicted, average="micro"))
    assert found["precision_macro"] == pytest.approx(reference.precision_score(truth, predicted, **macro))
    assert found["recall_macro"] == pytest.approx(reference.recall_score(truth, predicted, **macro))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of predicted classes that do not occur
        assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(truth, predicted))


@settings(max_examples=40, deadline=None)
@given(seed=seeds, rows=st.integers(2, 60))
def test_auc_is_exact_on_scores_of_three_decimals(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(rows) % 2)
    positive = rng.integers(0, 1001, rows) / 1000
    found = summarise(BINARY, tally(BINARY, np.column_stack([1 - positive, positive]), truth))
    assert found["auc"] == pytest.approx(reference.roc_auc_score(truth, positive))


def test_auc_of_any_scores_is_within_a_bin() -> None:
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 2, 5000)
    positive = np.clip(rng.normal(0.4 + 0.2 * truth, 0.2), 0, 1)
    found = summarise(BINARY, tally(BINARY, np.column_stack([1 - positive, positive]), truth))
    assert found["auc"] == pytest.approx(reference.roc_auc_score(truth, positive), abs=2e-4)


def test_auc_of_one_class_is_not_a_number() -> None:
    assert np.isnan(summarise(BINARY, tally(BINARY, [[0.4, 0.6], [0.2, 0.8]], [1, 1]))["auc"])


@settings(max_examples=60, deadline=None)
@given(seed=seeds, rows=st.integers(1, 30), count=st.integers(2, 5))
def test_label_metrics_equal_scikit_learn(seed: int, rows: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    target = Target("multilabel", tuple(f"label_{index}" for index in range(count)))
    truth, scores = rng.integers(0, 2, (rows, count)), rng.integers(1, 10, (rows, count)) / 10
    predicted = (scores > 0.5).astype(int)
    found = summarise(target, tally(target, scores, truth))
    for average in ("macro", "micro"):
        expected = reference.f1_score(truth, predicted, average=average, zero_division=0)
        assert found[f"f1_{average}"] == pytest.approx(expected)
    assert found["precision_macro"] == pytest.approx(
        reference.precision_score(truth, predicted, average="macro", zero_division=0))
    assert found["recall_macro"] == pytest.approx(
        reference.recall_score(truth, predicted, average="macro", zero_division=0))
    assert found["subset_accuracy"] == pytest.approx(reference.accuracy_score(truth, predicted))
    assert found["hamming_loss"] == pytest.approx(reference.hamming_loss(truth, predicted))
    assert found["loss"] == pytest.approx(reference.log_loss(
        truth.ravel(), np.column_stack([1 - scores.ravel(), scores.ravel()]), labels=[0, 1]))


@settings(max_examples=60, deadline=None)
@given(seed=seeds, rows=st.integers(2, 40), offset=st.floats(-1e3, 1e3))
def test_number_metrics_equal_scikit_learn(seed: int, rows: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.normal(offset, 2.0, rows)
    predicted = truth + rng.normal(size=rows)
    found = summarise(NUMBER, tally(NUMBER, predicted, truth))
    assert found["rmse"] == pytest.approx(reference.root_mean_squared_error(truth, predicted))
    assert found["mae"] == pytest.approx(reference.mean_absolute_error(truth, predicted))
    # Tallies hold sums of squares: the digits that a far offset takes from a small spread are lost, and no others.
    lost = 8 * np.finfo(float).eps * np.square(truth).sum() / np.square(truth - truth.mean()).sum()
    assert found["r2"] == pytest.approx(reference.r2_score(truth, predicted), rel=max(1e-6, lost), abs=1e-6)


def test_r2_of_a_constant_target_is_one_when_right_and_nought_when_wrong() -> None:
    constant = np.full(7, 0.1)
    assert summarise(NUMBER, tally(NUMBER, constant, constant))["r2"] == 1.0
    assert summarise(NUMBER, tally(NUMBER, constant + 0.5, constant))["r2"] == 0.0
    assert np.isnan(summarise(NUMBER, tally(NUMBER, [1.0], [1.0]))["r2"])


def test_classes_absent_from_truth_and_prediction_do_not_count() -> None:
    scores = [[0.8, 0.1, 0.1, 0.0], [0.7, 0.2, 0.1, 0.0], [0.1, 0.8, 0.1, 0.0], [0.6, 0.2, 0.2, 0.0]]
    found = summarise(classes(4), tally(classes(4), scores, [0, 0, 1, 1]))
    assert found["f1_macro"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert found["balanced_accuracy"] == pytest.approx(3 / 4)


def test_ties_go_to_the_lowest_class() -> None:
    counted = tally(classes(3), [[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]], [0, 2])
    assert counted["confusion"].tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_one_half_is_not_a_predicted_label() -> None:
    counted = tally(LABELS, [[0.5, 0.51, 0.2]], [[1, 1, 0]])
    assert counted["true_positives"].tolist() == [0, 1, 0]
    assert counted["false_negatives"].tolist() == [1, 0, 0]


def example(target: Target, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    if target.kind == "classes":
        return probabilities(rng, rows, len(target.names)), rng.integers(0, len(target.names), rows)
    if target.kind == "multilabel":
        return rng.random((rows, len(target.names))), rng.integers(0, 2, (rows, len(target.names)))
    return rng.random(rows), None if target.kind == "none" else rng.normal(size=rows)


@pytest.mark.parametrize("target", [BINARY, classes(5), LABELS, NUMBER, NONE], ids=lambda target: target.kind)
def test_merged_parties_equal_pooled_rows_after_travelling(target: Target) -> None:
    scores, truth = example(target, np.random.default_rng(3), 50)
    cuts = [slice(0, 1), slice(1, 30), slice(30, 30), slice(30, 50)]
    parts = [tally(target, scores[cut], None if truth is None else truth[cut]) for cut in cuts]
    merged = merge([payload.decode(payload.encode(part)) for part in parts])
    pooled = tally(target, scores, truth)
    assert merged.keys() == pooled.keys()
    for name, value in pooled.items():
        np.testing.assert_allclose(merged[name], value, rtol=1e-12)
    assert list(summarise(target, merged)) == metrics_of(target)


def test_merge_leaves_its_parts_alone() -> None:
    part = tally(BINARY, [[0.1, 0.9]], [1])
    merge([part, part, part])
    assert part["confusion"].sum() == 1


def test_own_loss_is_kept() -> None:
    assert summarise(BINARY, tally(BINARY, [[0.1, 0.9], [0.1, 0.9]], [1, 1], 5.0))["loss"] == 2.5


@pytest.mark.parametrize(("target", "scores", "truth"), [
    (Target("classes", ("a", "b", "c")), [[0.2, 0.5, 0.3], [0.0, 0.1, 0.9]], [1, 2]),
    (Target("multilabel", ("x", "y")), [[0.2, 0.6], [0.5, 1.0]], [[0, 1], [1, 1]]),
    (Target("number"), [1.5, -2.0], [1.0, 2.0])], ids=lambda value: getattr(value, "kind", ""))
def test_losses_of_rows_add_up_to_the_tallys(target: Target, scores: list[object], truth: list[object]) -> None:
    each = row_losses(target, np.array(scores), np.array(truth))
    assert each.shape == (2,)
    assert each.sum() == pytest.approx(tally(target, np.array(scores), np.array(truth))["loss_sum"])


def test_clusters_of_labelled_rows_are_summarised_as_clusters() -> None:
    assert summarise(BINARY, tally(NONE, [1.0, 3.0], None)) == {"inertia": 2.0}


@pytest.mark.parametrize(("scores", "truth", "said"), [
    ([[2.0, -1.0]], [0], "not probabilities"),
    ([[np.nan, np.nan]], [0], "lower the learning rate"),
    ([[0.2, 0.3, 0.5]], [0], r"\(1, 3\)"),
    ([[0.5, 0.5]], [0, 1], "1 rows of scores but 2"),
    ([[0.5, 0.5]], None, "without its true values"),
])
def test_wrong_scores_are_refused(scores: list[list[float]], truth: list[int] | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        tally(BINARY, scores, truth)


def test_what_does_not_add_up_is_refused() -> None:
    with pytest.raises(DataError, match="different targets"):
        merge([tally(BINARY, [[0.1, 0.9]], [1]), tally(NUMBER, [1.0], [1.0])])
    with pytest.raises(DataError, match="different targets"):
        merge([tally(classes(3), [[0.1, 0.8, 0.1]], [1]), tally(classes(4), [[0.1, 0.9, 0.0, 0.0]], [1])])
    with pytest.raises(DataError, match="no tally"):
        merge([])
    with pytest.raises(DataError, match="no rows"):
        summarise(BINARY, tally(BINARY, np.zeros((0, 2)), []))


def test_spread_by_hand() -> None:
    found = spread([0.9, 0.5, 0.7, float("nan")])
    assert found == pytest.approx({"count": 3, "mean": 0.7, "sd": 0.2, "min": 0.5, "max": 0.9, "worst_decile": 0.5})


def test_worst_decile_follows_the_direction_of_the_metric() -> None:
    values = np.arange(20.0)
    assert spread(values)["worst_decile"] == 0.5
    assert spread(values, high_is_good=False)["worst_decile"] == 18.5
    assert spread(np.arange(11.0))["worst_decile"] == 0.5


def test_spread_of_one_and_of_none() -> None:
    alone = spread([0.3])
    assert (alone["mean"], alone["worst_decile"]) == (0.3, 0.3)
    assert np.isnan(alone["sd"])
    assert spread([])["count"] == 0
    assert np.isnan(spread([float("nan")])["mean"])


def test_direction_of_metrics() -> None:
    worse_when_high = [name for name in METRICS if not higher_is_better(name)]
    assert worse_when_high == ["loss", "hamming_loss", "ranking_loss", "coverage", "one_error", "rmse", "mae",
                               "inertia"]
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        higher_is_better("acuracy")
