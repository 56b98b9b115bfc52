"""What the scores of attacks say, on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.attacks.privacy.inference import (
    flat,
    is_recognised,
    signal_to_noise,
    squared_error,
    structural_similarity,
    told,
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


def test_a_property_that_shifts_updates_is_told_and_one_that_does_not_is_not():
    draw = np.random.default_rng(0)
    had, have = np.arange(100) % 2 == 0, np.arange(60) % 3 == 0

    def made(marks, shift):
        return flat([{"a": draw.standard_normal((2, 3)) + shift * mark, "b": draw.standard_normal(2)}
                     for mark in marks])

    assert (((told(made(had, 3.0), had, made(have, 3.0)) > 0.5) == have).mean()) > 0.95
    blind = told(made(had, 0.0), had, made(have, 0.0))
    assert abs(blind[have].mean() - blind[~have].mean()) < 0.2
