"""Bounds from below on epsilon: the numbers of the papers, and audits that hold."""

from __future__ import annotations

from math import comb, exp, log2

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tequio.errors import ConfigError
from tequio.privacy.auditing import (
    Guesses,
    epsilon_bound,
    epsilon_lower_bound,
    exposure,
    gaussian_bound,
    gaussian_epsilon,
    one_run_bound,
    one_run_epsilon,
    share_bounds,
)

CLAIM = 4.3772
"""Of Gaussian noise as wide as the sensitivity, at delta 1e-5."""


@pytest.mark.parametrize(("canaries", "guessed", "right", "pure", "approximate"), [
    (1000, 1000, 600, 0.2975, 0.2972), (1000, 200, 180, 1.799, 1.796), (1000, 100, 100, 3.493, 3.465),
    (5000, 500, 450, 1.947, 1.941)])
def test_one_run_by_the_table(canaries, guessed, right, pure, approximate):
    assert one_run_bound(canaries, guessed, right) == pytest.approx(pure, abs=1e-3)
    assert one_run_bound(canaries, guessed, right, 1e-5) == pytest.approx(approximate, abs=1e-3)


@pytest.mark.parametrize(("found", "false", "mu", "by_gaussian", "by_any"), [
    (900, 100, 2.347, 12.20, 1.990), (500, 10, 2.011, 10.07, 3.242)])
def test_many_runs_by_the_table(found, false, mu, by_gaussian, by_any):
    guesses = Guesses(found, 1000, false, 1000)
    assert gaussian_bound(guesses) == pytest.approx(mu, abs=1e-3)
    assert gaussian_epsilon(gaussian_bound(guesses), 1e-5) == pytest.approx(by_gaussian, abs=6e-3)
    assert epsilon_bound(guesses, 1e-5) == pytest.approx(by_any, abs=1e-3)


def test_one_run_is_the_sum_of_binomials_that_the_paper_writes():
    """At the bound, the chance of so many right guesses is 5 %, summed term by term."""
    epsilon, (canaries, guessed, right, delta) = one_run_bound(60, 40, 33, 1e-3), (60, 40, 33, 1e-3)
    share = 1 / (1 + exp(-epsilon))
    chances = [comb(guessed, k) * share**k * (1 - share)**(guessed - k) for k in range(guessed + 1)]
    slack = max(sum(chances[right - i:right]) / i for i in range(1, right + 1))
    assert sum(chances[right:]) + 2 * canaries * delta * slack == pytest.approx(0.05, abs=1e-5)


def test_gaussian_privacy_as_epsilon_is_what_the_accountant_says():
    dp_accounting = pytest.importorskip("dp_accounting")
    for mu in (0.1, 0.5, 1.0, 2.347, 5.0, 10.0):
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, 1e-5), abs=1e-4)
    assert gaussian_epsilon(1.0, 1e-5) == pytest.approx(CLAIM, abs=1e-3)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_shares_by_hand():
    assert share_bounds(0, 50)[1] == pytest.approx(1 - 0.025 ** (1 / 50))
    assert share_bounds(50, 50) == (pytest.approx(0.025 ** (1 / 50)), 1.0)
    assert share_bounds(0, 10)[0] == 0.0


def one_run_of(noise, seed):
    draw = np.random.default_rng(seed)
    inside = draw.random(1000) < 0.5
    return one_run_epsilon(inside + noise * draw.standard_normal(1000), inside, 100, 1e-5)


def test_one_run_of_gaussian_canaries_says_what_its_guesses_are_worth_and_stays_below_the_claim():
    bounds = np.array([one_run_of(1.0, seed) for seed in range(100)])
    border = brentq(lambda score: (norm.sf(score - 1) + norm.sf(score)) / 2 - 0.1, 0, 5)
    right = norm.sf(border - 1) / (norm.sf(border - 1) + norm.sf(border))
    assert np.median(bounds) == pytest.approx(one_run_bound(1000, 200, round(200 * right), 1e-5), abs=0.1)
    assert (bounds < CLAIM).sum() >= 95
    # 400 guesses without an error say more than 200 can, which is at most 4.17.
    most = one_run_bound(1000, 200, 200, 1e-5)
    assert most == pytest.approx(4.17, abs=5e-3)
    assert most < one_run_bound(1000, 400, 400, 1e-5)


def many_runs_of(noise, seed):
    draw = np.random.default_rng(seed)
    return epsilon_lower_bound(1 + noise * draw.standard_normal(1000), noise * draw.standard_normal(1000), 1e-5,
                               is_gaussian=True)


def test_a_fifth_of_the_noise_is_caught_in_every_audit_and_the_right_noise_in_none():
    caught = [many_runs_of(0.2, seed) for seed in range(100)]
    assert min(caught) > 20
    right = [many_runs_of(1.0, seed) for seed in range(100)]
    assert np.median(right) == pytest.approx(3.10, abs=0.15)
    assert max(right) < CLAIM


def test_the_threshold_is_chosen_on_other_runs_than_it_is_judged_by():
    """Scores that say nothing: a threshold judged by the runs that chose it would find something in most audits."""
    draw = np.random.default_rng(0)
    bounds = [epsilon_lower_bound(draw.random(100), draw.random(100), 1e-5) for _ in range(200)]
    assert np.mean(np.array(bounds) > 0) <= 0.05


def test_the_bound_of_a_giveaway_is_what_the_runs_allow_on_either_side():
    for sign in (1, -1):
        found = epsilon_lower_bound(sign * np.ones(400), np.zeros(400), 1e-5)
        assert found == pytest.approx(np.log(200 / 3.72), abs=0.1)


def test_guesses_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="11 right of 10 guesses"):
        one_run_bound(20, 10, 11)
    with pytest.raises(ConfigError, match="0 right of 0 guesses"):
        one_run_bound(20, 0, 0)


def test_exposure_by_hand():
    """Third among 1024: log2 1024 - log2 3."""
    references = np.arange(1, 1025, dtype=float)
    assert exposure(2.5, references).bits == pytest.approx(10 - log2(3))
    assert exposure(0.5, references).bits == exposure(0.5, references).high == 10
    low = exposure(0.5, references).low
    assert low == pytest.approx(-log2(1 - 0.025 ** (1 / 1024)))
    assert 0 < low < 10


def test_exposure_of_a_canary_that_was_never_seen_is_one_or_two_bits():
    """Its rank is uniform, so that exposure is k bits with a chance of 2^-k; the interval holds what the rank says."""
    draw = np.random.default_rng(1)
    found = [exposure(*(lambda scores: (scores[0], scores[1:]))(draw.standard_normal(4097))) for _ in range(500)]
    assert np.mean([one.bits for one in found]) == pytest.approx(1 / np.log(2), abs=0.2)
    assert all(one.low <= one.bits <= one.high for one in found)
    assert np.mean([one.bits > 5 for one in found]) < 0.06


def test_exposure_does_not_take_equals_for_a_finding():
    assert exposure(1.0, np.ones(64)).bits == 0
    with pytest.raises(ConfigError, match="there are none with a score"):
        exposure(1.0, [])


def test_gaussian_bound_is_the_distance_of_two_normal_laws():
    """With all errors known exactly, a threshold between two normals a distance mu apart says mu."""
    many = 10**9
    guesses = Guesses(round(many * norm.sf(0.3 - 1.7)), many, round(many * norm.sf(0.3)), many)
    assert gaussian_bound(guesses) == pytest.approx(1.7, abs=1e-3)
