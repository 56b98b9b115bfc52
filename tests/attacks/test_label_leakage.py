"""The attacks find what is there, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.label_leakage import area_under_curve, direction_scores, leaked, norm_scores


def test_scores_by_hand():
    gradients = np.array([[3.0, 4.0], [0.0, -2.0], [1.0, 0.0]])
    assert norm_scores(gradients).tolist() == [5.0, 2.0, 1.0]
    assert direction_scores(gradients, np.array([0.0, 2.0])) == pytest.approx([0.8, -1.0, 0.0])


def test_the_area_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    scores, positive = draw.integers(0, 9, 200).astype(float), draw.random(200) < 0.3
    assert area_under_curve(scores, positive) == pytest.approx(metrics.roc_auc_score(positive, scores))
    assert np.isnan(area_under_curve(scores, np.ones(200, bool)))


def batches(length, side, count=20):
    draw = np.random.default_rng(1)
    for _ in range(count):
        positive = draw.random(64) < 0.3
        gradients = draw.standard_normal((64, 4))
        gradients /= np.linalg.norm(gradients, axis=1)[:, None]
        gradients[:, 0] = np.where(positive, side, -side) + 0.01 * gradients[:, 0] if side else gradients[:, 0]
        yield gradients * np.where(positive, length, 1.0)[:, None], positive


def test_long_gradients_of_one_class_are_found_by_length_and_not_by_direction():
    found = leaked(batches(length=3.0, side=0.0))
    assert found["norm"] == 1.0
    assert found["direction"] < 0.6


def test_gradients_that_point_one_way_are_found_by_direction_and_not_by_length():
    found = leaked(batches(length=1.0, side=2.0))
    assert found["direction"] == 1.0
    assert found["norm"] < 0.6


def test_batches_without_enough_of_both_classes_say_nothing():
    found = leaked([(np.ones((3, 2)), np.zeros(3, bool)), (np.ones((2, 2)), np.array([True, False]))])
    assert found["batches"] == 0
    assert np.isnan(found["norm"])
