"""Offers of splits: gains by hand, equality with growing from histograms, and which one wins."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.learners.trees.bins import LossEarned, PurityEarned, best_offer
from tequio.learners.trees.boosting import Growth


def test_the_gain_of_a_split_is_that_of_the_formula():
    # G = -4, 6 and H = 3, 5 on the sides, lambda 1: (16/4 + 36/6 - 4/9) / 2 - 0.5
    earning = LossEarned(Growth(l2=1.0, min_gain=0.5, min_child_weight=0.0))
    gains = earning.gains(np.array([[-4.0, 3.0]]), np.array([2.0, 8.0]))
    assert gains.each[0] == pytest.approx((16 / 4 + 36 / 6 - 4 / 9) / 2 - 0.5)


def test_a_leaf_says_minus_g_over_h_plus_lambda_times_the_learning_rate():
    earning = LossEarned(Growth(l2=1.0, learning_rate=0.3))
    np.testing.assert_allclose(earning.value(np.array([[-4.0, 3.0], [0.0, 0.0]])), [0.3, 0.0])
    assert LossEarned(Growth(l2=0.0)).value(np.array([[1.0, 0.0]])).tolist() == [0.0]


def test_a_side_that_is_too_light_may_not_be_taken():
    earning = LossEarned(Growth(min_child_weight=2.0))
    gains = earning.gains(np.array([[-4.0, 1.9], [-4.0, 2.0], [6.0, 6.1]]), np.array([2.0, 8.0]))
    assert np.isneginf(gains.each).tolist() == [True, False, True]


def test_impurity_falls_by_what_the_sides_are_purer():
    left, total = np.array([[4.0, 0.0], [2.0, 2.0]]), np.array([4.0, 4.0])
    gini = PurityEarned().gains(left, total).each
    np.testing.assert_allclose(gini, [8 * 0.5, 0.0])
    entropy = PurityEarned("entropy").gains(left, total).each
    np.testing.assert_allclose(entropy, [8.0, 0.0], atol=1e-12)


def test_leaves_need_their_rows_and_nodes_theirs():
    left, total = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([4.0, 4.0])
    assert np.isneginf(PurityEarned(min_leaf=2).gains(left, total).each).tolist() == [True, False]
    assert np.isneginf(PurityEarned(min_split=9).gains(left, total).each).all()


def test_the_best_offer_wins_and_the_first_of_equal_ones():
    earning = LossEarned(Growth(min_child_weight=0.0))
    weak, strong = np.array([[-1.0, 4.0]]), np.array([[0.0, 4.0], [-4.0, 3.0]])
    best = best_offer(earning, [weak, strong, strong[::-1]], np.array([2.0, 8.0]))
    assert (best.holder, best.offer) == (1, 1)


def test_no_offer_wins_where_none_earns_anything():
    earning = LossEarned(Growth(min_gain=100.0))
    assert best_offer(earning, [np.array([[-4.0, 3.0]])], np.array([2.0, 8.0])) is None
    assert best_offer(earning, [np.zeros((0, 2))], np.array([2.0, 8.0])) is None
    assert best_offer(earning, [], np.array([2.0, 8.0])) is None
