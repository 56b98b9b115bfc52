"""Epsilon is what dp-accounting says when called by hand, and calibrated noise costs what was asked."""

from __future__ import annotations

from math import inf, sqrt

import pytest

from tequio.errors import ConfigError
from tequio.privacy.accounting import Release, epsilon_of, noise_for

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
