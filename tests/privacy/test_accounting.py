"""Epsilon is what dp-accounting says when called by hand, and calibrated noise costs what was asked."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest

from tequio.errors import ConfigError
from tequio.noise.coins import Coins
from tequio.noise.grid import conditional_length, rounded_conditionally
from tequio.privacy.accounting import Release, epsilon_of, noise_for, skellam_numerical

library = pytest.importorskip("dp_accounting")
DELTA = 1e-5


def by_hand(accountant, event, count):
    accountant.compose(event, count)
    return accountant.get_epsilon(DELTA)


def test_poisson_sampling_by_pld():
    from dp_accounting import pld

    event = library.PoissonSampledDpEvent(0.1, library.GaussianDpEvent(1.0))
    expected = by_hand(pld.PLDAccountant(), event, 100)
    found = epsilon_of({Release(1.0, sampling="poisson", rate=0.1): 100}, DELTA)
    assert expected == pytest.approx(7.0466, abs=1e-3)
    assert expected <= found <= expected * 1.001


def test_poisson_sampling_by_rdp():
    from dp_accounting import rdp

    event = library.PoissonSampledDpEvent(0.01, library.GaussianDpEvent(0.8))
    expected = by_hand(rdp.RdpAccountant(), event, 1000)
    found = epsilon_of({Release(0.8, sampling="poisson", rate=0.01): 1000}, DELTA, "rdp")
    assert expected <= found <= expected * 1.02


def test_rounds_without_sampling_are_one_gaussian_of_less_noise():
    from dp_accounting import pld

    expected = by_hand(pld.PLDAccountant(), library.GaussianDpEvent(2.0), 10)
    assert epsilon_of({Release(2.0): 10}, DELTA) == pytest.approx(expected, rel=1e-4)
    assert epsilon_of({Release(2.0): 10}, DELTA) == pytest.approx(epsilon_of({Release(2.0 / sqrt(10)): 1}, DELTA))


def test_samples_of_fixed_size_by_renyi_divergences():
    from dp_accounting import rdp

    event = library.SampledWithoutReplacementDpEvent(1000, 10, library.GaussianDpEvent(2.0))
    expected = by_hand(rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE), event, 50)
    assert epsilon_of({Release(2.0, sampling="fixed-size", rate=0.01): 50}, DELTA) == pytest.approx(expected, rel=0.02)


def test_a_sampling_bound_that_is_worse_than_none_is_not_used():
    everybody = epsilon_of({Release(1.0): 20}, DELTA)
    assert epsilon_of({Release(1.0, sampling="fixed-size", rate=0.99): 20}, DELTA) == pytest.approx(everybody)


def test_laplace_is_never_worse_than_its_pure_sum():
    assert epsilon_of({Release(10.0, "laplace"): 3}, 1e-12) == pytest.approx(0.3, rel=1e-3)
    assert epsilon_of({Release(10.0, "laplace"): 400}, DELTA) < 40


def test_nothing_released_costs_nothing_and_no_noise_costs_everything():
    assert epsilon_of({}, DELTA) == 0
    assert epsilon_of({Release(1.0): 0}, DELTA) == 0
    assert epsilon_of({Release(0.0): 1}, DELTA) == inf


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_calibrated_noise_costs_just_what_was_asked(accountant, rate):
    def spent(noise):
        return {Release(noise, sampling="poisson", rate=rate): 30}

    noise = noise_for(2.0, DELTA, spent, accountant)
    assert epsilon_of(spent(noise), DELTA, accountant) <= 2.0
    assert epsilon_of(spent(noise * 0.995), DELTA, accountant) > 2.0


def test_a_target_that_no_noise_reaches_is_refused():
    with pytest.raises(ConfigError, match="no noise reaches"):
        noise_for(0.0, 0.0, lambda noise: {Release(noise, "laplace"): 1})


TABLE = [({Release(1.0): 1}, "pld", 4.3772), ({Release(2.0): 1}, "pld", 1.9931),
         ({Release(1.0, "discrete-gaussian"): 1}, "rdp", 4.7284),
         ({Release(2.0, "discrete-gaussian"): 1}, "rdp", 2.1657),
         ({Release(1.0, "discrete-gaussian"): 1}, "pld", 4.430), ({Release(2.0, "discrete-gaussian"): 1}, "pld", 2.011),
         ({Release(4.0, "discrete-gaussian"): 1}, "pld", 0.927),
         ({Release(2.0, "skellam", steps=4.0): 1}, "pld", 2.192),
         ({Release(1.0, "skellam", steps=16.0): 1}, "pld", 4.767)]


@pytest.mark.parametrize(("spent", "accountant", "expected"), TABLE)
def test_what_kinds_of_noise_cost(spent, accountant, expected):
    assert epsilon_of(spent, DELTA, accountant) == pytest.approx(expected, abs=1.1e-3)


@pytest.mark.parametrize(("variance", "steps", "one", "units"), [(64, 4, 1.933, 1.990), (256, 16, 4.332, 4.390)])
def test_skellam_noise_by_its_privacy_loss_distribution(variance, steps, one, units):
    """A move in one coordinate, and `steps`^2 moves by one; the table's last number is up to 0.013 too large."""
    from dp_accounting.pld import privacy_loss_distribution as losses
    from scipy.stats import skellam

    numbers = np.arange(-20 * steps**2, 20 * steps**2)
    logs = [skellam.logpmf(numbers - moved, variance / 2, variance / 2) for moved in (steps, 0)]
    kept = np.isfinite(logs).all(axis=0)
    pair = [dict(zip(numbers[kept].tolist(), log[kept].tolist(), strict=True)) for log in logs]
    by_hand = losses.from_two_probability_mass_functions(*pair).get_epsilon_for_delta(DELTA)
    assert by_hand == pytest.approx(one, abs=1e-3)
    found = skellam_numerical({Release(sqrt(variance) / steps, "skellam", steps=float(steps)): 1}, DELTA)
    assert units - 0.0135 < found < units + 1e-3
    assert by_hand < found < epsilon_of({Release(sqrt(variance) / steps, "skellam", steps=float(steps)): 1}, DELTA)


def test_unit_steps_of_skellam_noise_compose_as_dp_accounting_composes_them():
    """Independent: 16 shifts by one, each discretised finely, against the integral along the saddle point."""
    from dp_accounting.pld import privacy_loss_distribution as losses
    from scipy.stats import skellam

    numbers = np.arange(-150, 151)
    upper = dict(zip(numbers.tolist(), skellam.logpmf(numbers, 32, 32).tolist(), strict=True))
    lower = {number + 1: value for number, value in upper.items()}
    width = {"value_discretization_interval": 5e-5}
    high, low = (losses.from_two_probability_mass_functions(lower, upper, pessimistic, **width).self_compose(16)
                 .get_epsilon_for_delta(DELTA) for pessimistic in (True, False))
    found = skellam_numerical({Release(2.0, "skellam", steps=4.0): 1}, DELTA)
    assert low - 1e-4 < found < high + 1e-4
    assert high - low < 2e-3


def test_skellam_noise_of_many_steps_costs_what_gaussian_noise_does():
    for count in (1, 100):
        found = skellam_numerical({Release(2.0, "skellam", steps=2.0**20): count}, DELTA)
        assert found == pytest.approx(epsilon_of({Release(2.0): count}, DELTA), rel=1e-5)


def test_counts_compose_with_other_noise():
    """Discrete Gaussian noise of many steps costs what Gaussian noise does, alone, repeated, and among others."""
    many, gaussian = Release(60.0, "discrete-gaussian"), Release(60.0)
    drawn = {Release(1.5, sampling="poisson", rate=0.1): 9}
    for others in ({}, {Release(3.0): 2}, {Release(9.0, "laplace"): 3}, drawn):
        accountant = "rdp" if any(release.sampling != "none" for release in others) else "pld"
        found, usual = (epsilon_of({**others, one: 400}, DELTA, accountant) for one in (many, gaussian))
        assert found == pytest.approx(usual, rel=3e-3)
    assert epsilon_of({Release(2.0, "discrete-gaussian"): 5}, DELTA) <= epsilon_of(
        {Release(2.0, "discrete-gaussian"): 5}, DELTA, "rdp")


@pytest.mark.parametrize(("size", "length", "expected"), [(100_000, 1024, 1036.7), (100_000, 2**20, 1_048_576.5)])
def test_how_long_a_rounded_vector_is_at_most(size, length, expected):
    assert conditional_length(length, size) == pytest.approx(expected, abs=0.1)
    values = np.random.default_rng(0).standard_normal(size)
    values *= length / np.linalg.norm(values)
    rounded = rounded_conditionally(Coins.derived(1), values, length)
    assert np.linalg.norm(rounded.astype(float)) <= conditional_length(length, size)
    assert np.abs(rounded - values).max() < 1
