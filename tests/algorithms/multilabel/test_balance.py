"""Weights of rare labels, decision borders, and the shift that brings borders to one half: worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.algorithms.multilabel.heads import BORDERS, LARGEST_WEIGHT, around_half, balanced_weights, best_borders


def test_positive_rows_weigh_by_how_rare_they_are():
    truth = np.zeros((99, 3), dtype=np.int8)
    truth[:49, 0], truth[:9, 1] = 1, 1
    weights = balanced_weights(truth, 1.0)
    assert weights[0].tolist() == [1, 1, 1]
    assert weights[1].tolist() == [pytest.approx(51 / 50), pytest.approx(91 / 10), LARGEST_WEIGHT]
    np.testing.assert_allclose(balanced_weights(truth, 0.5)[1, :2], [(51 / 50) ** 0.5, (91 / 10) ** 0.5])
    assert balanced_weights(truth, 0.0) is None


def test_a_border_goes_where_f1_is_best_and_is_believed_by_its_positive_rows():
    truth = np.array([[1], [1], [1], [0], [0], [0]])
    scores = np.array([[0.32], [0.33], [0.9], [0.28], [0.1], [0.05]])
    # 0.3 parts them; three positive rows move the logit 3 / 8 of the way from one half.
    odds = (0.3 / 0.7) ** (3 / 8)
    assert best_borders(scores, truth)[0] == pytest.approx(odds / (1 + odds))


def test_without_positive_rows_or_rows_the_border_is_one_half():
    assert best_borders(np.array([[0.1, 0.9]]), np.array([[0, 0]])).tolist() == [0.5, 0.5]
    assert best_borders(np.empty((0, 2)), np.empty((0, 2))).tolist() == [0.5, 0.5]


def test_of_equally_good_borders_the_nearest_to_one_half_is_taken():
    assert best_borders(np.array([[0.99], [0.01]]), np.array([[1], [0]]))[0] == pytest.approx(0.5)


@given(score=st.floats(0.001, 0.999), border=st.sampled_from(list(BORDERS)))
def test_a_score_is_above_its_border_where_the_moved_score_is_above_one_half(score, border):
    moved = around_half(np.array([[score]]), np.array([border]))[0, 0]
    assert (moved > 0.5) == (score > border) or abs(score - border) < 1e-9
