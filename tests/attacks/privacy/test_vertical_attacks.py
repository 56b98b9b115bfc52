"""Labels and columns of other parties, on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.label_leakage import area_under_curve, averaged_scores, completed_scores
from tequio.attacks.privacy.columns import differing_by_a_row, explained, learnt_columns, solved_columns


def test_gradients_along_one_direction_give_labels_by_their_sign():
    draw = np.random.default_rng(0)
    labels, direction = draw.random(60) < 0.3, np.array([0.6, -0.8])
    batches = []
    for _ in range(3):
        order = draw.permutation(60)
        misses = np.where(labels, -1, 1) * draw.uniform(0.1, 0.9, 60)
        batches += [(rows, misses[rows, None] * direction) for rows in np.split(order, 3)]
    scores = averaged_scores(batches, 60)
    assert area_under_curve(scores, labels) in (0.0, 1.0)


def test_noise_that_is_drawn_anew_is_averaged_away():
    draw = np.random.default_rng(1)
    labels = draw.random(200) < 0.5

    def area(batches):
        found = area_under_curve(averaged_scores(
            [(np.arange(200), np.where(labels, -1, 1)[:, None] * [1.0, 0.0] + draw.normal(0, 2, (200, 2)))
             for _ in range(batches)], 200), labels)
        return max(found, 1 - found)

    assert area(1) < 0.85
    assert area(64) > 0.97


def test_few_labels_complete_features_that_tell_them():
    draw = np.random.default_rng(2)
    labels = draw.random(300) < 0.5
    known = np.arange(300) < 20
    features = np.stack([labels + draw.normal(0, 0.2, 300), draw.normal(0, 1, 300)], axis=1)
    assert area_under_curve(completed_scores(features, labels, known)[~known], labels[~known]) > 0.97


def test_equations_are_solved_by_hand():
    weights = np.array([[2.0], [1.0]])
    scores = np.array([[5.0], [0.0]])  # the shortest (x, y) with 2 x + y = 5 is (2, 1)
    np.testing.assert_allclose(solved_columns(weights, scores), [[2, 1], [0, 0]], atol=1e-12)
    draw = np.random.default_rng(3)
    columns, more = draw.standard_normal((20, 3)), draw.standard_normal((3, 3))
    np.testing.assert_allclose(solved_columns(more, columns @ more), columns)


def test_shares_that_are_explained_by_hand():
    columns = np.array([[0.0, 1.0, 7.0], [2.0, 3.0, 7.0]])
    assert explained(columns, columns) == 1.0
    assert explained(columns, np.array([[0.0, 2.0, 0.0], [2.0, 2.0, 0.0]])) == 0.5  # the constant column is left out
    assert explained(columns, -columns) == 0.0


def test_what_is_seen_is_turned_back_into_columns():
    draw = np.random.default_rng(4)
    columns = draw.standard_normal((200, 3))
    seen = columns @ draw.standard_normal((3, 5))
    known = np.arange(200) < 40
    assert explained(columns[~known], learnt_columns(seen, columns, known)[~known]) > 0.999


def test_a_row_between_two_cuts_is_found_by_hand():
    values = np.array([[0.5, 0.25], [-0.4, 0.24], [0.1, 0.09], [0.1, 0.09]])
    # Left of the three places: nothing, row 1, rows 1 and 0. The other two are equal and cannot be told apart.
    sums = np.array([[0.0, 0.0], values[1], values[1] + values[0]])
    claims = differing_by_a_row(sums, values)
    assert (claims.first[:2].tolist(), claims.second[:2].tolist()) == ([1, 0], [2, 1])
    assert claims.missed == pytest.approx([0, 0, np.inf, np.inf])
