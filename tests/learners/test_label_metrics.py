"""Multi-label metrics against scikit-learn, hand-worked corners, and tallies of parties with different labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from tequio.data.dataset import Target
from tequio.errors import PayloadError
from tequio.learners.label_metrics import at_labels, label_scores, made_possible
from tequio.learners.metrics import check_tally, merge, summarise, tally


def target(labels: int) -> Target:
    return Target("multilabel", tuple(f"l{number}" for number in range(labels)))


def found(scores, truth) -> dict[str, float]:
    scores, truth = np.asarray(scores, dtype=float), np.asarray(truth)
    labels = target(truth.shape[1])
    return summarise(labels, tally(labels, scores, truth))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 30), labels=st.integers(2, 7))
def test_they_equal_scikit_learn(seed, rows, labels):
    rng = np.random.default_rng(seed)
    truth = (rng.random((rows, labels)) < 0.4).astype(int)
    scores = rng.integers(0, 11, (rows, labels)) / 10  # ties occur
    predicted, values = scores > 0.5, found(scores, truth)
    average = {"average": "macro", "zero_division": 0}
    assert values["f1_macro"] == pytest.approx(reference.f1_score(truth, predicted, **average))
    assert values["precision_macro"] == pytest.approx(reference.precision_score(truth, predicted, **average))
    assert values["recall_macro"] == pytest.approx(reference.recall_score(truth, predicted, **average))
    assert values["f1_micro"] == pytest.approx(reference.f1_score(truth, predicted, average="micro", zero_division=0))
    assert values["subset_accuracy"] == pytest.approx(reference.accuracy_score(truth, predicted))
    assert values["hamming_loss"] == pytest.approx(reference.hamming_loss(truth, predicted))
    assert values["ranking_loss"] == pytest.approx(reference.label_ranking_loss(truth, scores))
    assert values["coverage"] == pytest.approx(reference.coverage_error(truth, scores))
    assert values["average_precision"] == pytest.approx(reference.label_ranking_average_precision_score(truth, scores))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_error_is_what_is_missing_to_precision_at_one(seed):
    rng = np.random.default_rng(seed)
    truth = (rng.random((20, 4)) < 0.4).astype(int)
    truth = truth[truth.any(axis=1)]
    scores = rng.permuted(np.tile(np.arange(4) / 4, (len(truth), 1)), axis=1)
    right = truth[np.arange(len(truth)), scores.argmax(axis=1)]
    assert found(scores, truth)["one_error"] == pytest.approx(1 - right.mean())


def test_argmax_agreement_is_not_subset_accuracy():
    # Both labels apply and only the first is predicted: the set is wrong, the highest score is the first label.
    values = found([[0.9, 0.2]], [[1, 1]])
    assert (values["subset_accuracy"], values["argmax_agreement"]) == (0.0, 1.0)
    # No label is predicted, and yet the highest score agrees: why the thesis reports 0.22 where F1 is 0.
    values = found([[0.2, 0.3]], [[0, 1]])
    assert (values["f1_macro"], values["subset_accuracy"], values["argmax_agreement"]) == (0.0, 0.0, 1.0)


def test_with_one_label_argmax_agreement_is_whether_the_decision_is_right():
    assert found([[0.4], [0.9]], [[1], [1]])["argmax_agreement"] == 0.5


def test_the_two_readings_of_f1_macro_differ():
    # Label one: precision 1, recall 1/2, F1 2/3. Label two: precision 1/2, recall 1, F1 2/3.
    values = found([[0.9, 0.9], [0.1, 0.9]], [[1, 1], [1, 0]])
    assert values["f1_macro"] == pytest.approx(2 / 3)
    assert values["f1_macro_harmonic"] == pytest.approx(0.75)


def test_labels_that_never_occur_and_labels_in_all_rows():
    values = found([[0.1, 0.9], [0.2, 0.8]], [[0, 1], [0, 1]])
    assert values["f1_macro"] == 0.5  # a label without positives counts as 0
    assert values["subset_accuracy"] == 1.0
    nothing = found([[0.1, 0.2]], [[0, 0]])
    assert (nothing["f1_macro"], nothing["f1_macro_harmonic"], nothing["argmax_agreement"]) == (0.0, 0.0, 0.0)
    assert nothing["average_precision"] == 1.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), split=st.integers(1, 4))
def test_counts_of_parties_with_different_labels_add_up_to_those_of_all_labels(seed, split):
    """Federated evaluation: the counts give what pooled predictions would, and no prediction moves."""
    rng = np.random.default_rng(seed)
    truth, scores = (rng.random((30, 5)) < 0.4).astype(int), rng.random((30, 5))
    parts = [np.arange(split), np.arange(split, 5)]
    tallies = [at_labels(tally(target(len(own)), scores[:, own], truth[:, own]), own, 5) for own in parts]
    whole, values = found(scores, truth), summarise(target(5), merge(tallies))
    for name in ("f1_macro", "f1_micro", "f1_macro_harmonic", "precision_macro", "recall_macro", "hamming_loss"):
        assert values[name] == pytest.approx(whole[name])


def test_labels_that_nobody_judged_do_not_count():
    known = tally(target(1), np.array([[0.9], [0.1]]), np.array([[1], [0]]))
    assert summarise(target(3), at_labels(known, np.array([1]), 3))["f1_macro"] == 1.0


def test_scores_of_each_label():
    scores = label_scores(tally(target(2), np.array([[0.9, 0.1], [0.9, 0.9]]), np.array([[1, 1], [0, 1]])))
    assert {name: values.tolist() for name, values in scores.items()} == {
        "f1": [pytest.approx(2 / 3), pytest.approx(2 / 3)], "precision": [0.5, 1.0], "recall": [1.0, 0.5],
        "positives": [1.0, 2.0]}


def test_rounded_counts_are_cut_down_to_what_rows_can_have():
    labels = target(3)
    rng = np.random.default_rng(0)
    whole = tally(labels, rng.random((14, 3)), rng.random((14, 3)) > 0.3)
    rounded = {name: np.asarray(np.ceil(np.asarray(value) / 10) * 10).astype(np.asarray(value).dtype)
               if isinstance(value, np.ndarray) else type(value)(-(-value // 10) * 10) for name, value in whole.items()}
    rounded["rows"] = 10
    with pytest.raises(PayloadError, match="sent a tally that"):
        check_tally(labels, rounded, 20, "a party")
    check_tally(labels, made_possible(rounded), 20, "a party")
    check_tally(labels, whole, 14, "a party")
    assert made_possible(whole).keys() == whole.keys()
    assert all(np.array_equal(made_possible(whole)[name], whole[name]) for name in whole)
