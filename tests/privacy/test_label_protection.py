"""Noise on gradients has the power it should have, and Marvell's is the best of its power."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.privacy.labels import marvell_powers, protected

RNG = np.random.default_rng


def batch(rows=4000, width=3, share=0.25, gap=2.0, seed=0):
    draw = RNG(seed)
    positive = draw.random(rows) < share
    gradients = 0.3 * draw.standard_normal((rows, width))
    gradients[:, 0] += np.where(positive, gap, 0.1)
    return gradients.astype(np.float32), positive


def test_without_protection_gradients_are_left_alone():
    gradients, positive = batch(10)
    assert protected(gradients, positive, "none", 1.0, RNG(0)) is gradients


def test_max_norm_makes_all_expected_squares_equal_to_the_largest():
    gradients = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=np.float32)
    positive = np.array([True, False, False])
    drawn = np.stack([protected(gradients, positive, "max-norm", 1.0, RNG(seed)) for seed in range(4000)])
    squares = np.square(drawn.astype(np.float64)).sum(axis=2).mean(axis=0)
    assert squares[0] == pytest.approx(25.0, rel=1e-6)  # the longest is left as it is
    assert squares[1] == pytest.approx(25.0, rel=0.1)
    assert squares[2] == 0.0
    cosine = drawn[:, 1] @ np.array([0.6, 0.8]) / np.linalg.norm(drawn[:, 1], axis=1)
    np.testing.assert_allclose(np.abs(cosine), 1.0, rtol=1e-5)  # it is stretched along itself


def test_isotropic_noise_has_the_power_of_the_longest_gradient():
    gradients, positive = batch()
    noise = protected(gradients, positive, "isotropic", 2.0, RNG(1)).astype(np.float64) - gradients
    longest = np.square(gradients.astype(np.float64)).sum(axis=1).max()
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(2.0 * longest, rel=0.05)


@pytest.mark.parametrize(("spread0", "spread1", "share1", "width", "power"), [
    (0.1, 0.1, 0.5, 2, 1.0), (0.01, 0.3, 0.2, 3, 4.0), (0.5, 0.05, 0.1, 8, 2.0)])
def test_no_noise_of_the_same_power_makes_the_classes_harder_to_tell(spread0, spread1, share1, width, power):
    def divergence(along0, along1, across0, across1):
        a0, a1, c0, c1 = along0 + spread0, along1 + spread1, across0 + spread0, across1 + spread1
        return (width - 1) * (c0 / c1 + c1 / c0) + (a0 + 1) / a1 + (a1 + 1) / a0

    best = marvell_powers(1.0, spread0, spread1, share1, width, power)
    spent = (1 - share1) * (best[0] + (width - 1) * best[2]) + share1 * (best[1] + (width - 1) * best[3])
    assert spent <= power * (1 + 1e-6)
    draw = RNG(0)
    for _ in range(3000):
        tried = draw.dirichlet(np.full(4, 0.5)) * power
        per_row = np.array([1 - share1, share1, (1 - share1) * (width - 1), share1 * (width - 1)])
        assert divergence(*best) <= divergence(*(tried / per_row)) * (1 + 1e-3)


def test_marvell_spends_its_power_and_keeps_the_mean():
    gradients, positive = batch(20_000)
    noise = protected(gradients, positive, "marvell", 3.0, RNG(2)).astype(np.float64) - gradients
    gap = gradients[positive].mean(axis=0) - gradients[~positive].mean(axis=0)
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(3.0 * float(gap @ gap), rel=0.05)
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.1)


def test_a_batch_of_one_class_or_of_equal_gradients_needs_none():
    gradients, _ = batch(6)
    np.testing.assert_array_equal(protected(gradients, np.ones(6, bool), "marvell", 1.0, RNG(0)), gradients)
    same = np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(protected(same, np.array([True, False, True, False]), "marvell", 1.0, RNG(0)), same)
