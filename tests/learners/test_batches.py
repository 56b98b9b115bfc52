"""Which rows are visited at which step."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.learners.descent import is_finite, row_orders, steps_of_epochs
from tequio.learners.learner import LocalTraining


@pytest.mark.parametrize(("rows", "how", "steps"), [
    (10, LocalTraining(epochs=2, batch=5), (2, 2)),
    (11, LocalTraining(epochs=2, batch=5), (3, 3)),
    (3, LocalTraining(epochs=2, batch=5), (1, 1)),
    (11, LocalTraining(epochs=2, batch=0), (1, 1)),
    (11, LocalTraining(epochs=0), ()),
    (11, LocalTraining(epochs=9, batch=5, steps=7), (3, 3, 1)),
    (11, LocalTraining(epochs=9, batch=5, steps=6), (3, 3)),
    (11, LocalTraining(epochs=9, batch=5, steps=2), (2,)),
])
def test_steps_of_epochs_by_hand(rows, how, steps):
    assert steps_of_epochs(rows, how) == steps


def test_orders_are_permutations_drawn_one_after_the_other():
    how = LocalTraining(batch=4, steps=5)
    first, second = row_orders(10, how, np.random.default_rng(3))
    draw = np.random.default_rng(3)
    np.testing.assert_array_equal(first, draw.permutation(10))
    np.testing.assert_array_equal(second, draw.permutation(10)[:8])


def test_rows_as_stored_draw_nothing():
    draw = np.random.default_rng(3)
    for order in row_orders(5, LocalTraining(epochs=2, shuffle=False), draw):
        np.testing.assert_array_equal(order, np.arange(5))
    assert draw.integers(2**60) == np.random.default_rng(3).integers(2**60)


@pytest.mark.parametrize(("values", "finite"), [([1.0, 2.0], True), ([1.0, np.nan], False), ([np.inf], False),
                                                ([], True), ([1e200, 1e200], True)])
def test_finite(values, finite):
    assert is_finite([np.zeros(2), np.array(values), np.array([2**62])]) is finite
