"""What the scores of attacks say, on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.privacy.inference import (
    advantage,
    found_at,
    is_recognised,
    signal_to_noise,
    squared_error,
    structural_similarity,
)

ROW = np.array([[0.0, 1.0], [0.5, 0.25]])


def test_likeness_by_hand():
    assert squared_error(ROW, ROW + 0.1) == pytest.approx(0.01)
    assert signal_to_noise(ROW, ROW + 0.1, 1.0) == pytest.approx(20.0)
    assert signal_to_noise(ROW, ROW, 1.0) == 100.0
    assert structural_similarity(ROW, ROW, 1.0) == pytest.approx(1.0)
    assert structural_similarity(ROW, 1 - ROW, 1.0) < 0


def test_a_row_is_recognised_at_any_brightness_but_not_by_a_blank_guess():
    decoys = np.random.default_rng(0).random((20, 2, 2))
    assert is_recognised(ROW, 0.1 * ROW + 3, decoys)
    assert not is_recognised(ROW, np.zeros((2, 2)), decoys)
    assert not is_recognised(ROW, decoys[4], decoys)


def test_members_told_by_hand():
    is_member = np.array([True, True, True, True, False, False])
    assert advantage(np.array([True, True, True, False, True, False]), is_member) == 0.25
    assert found_at(np.array([5.0, 4.0, 1.0, 0.0, 3.0, 2.0]), is_member, 0.01) == 0.5
