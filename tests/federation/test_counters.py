"""Random numbers by counter: the same for the same key whoever else is asked, uniform, and independent across keys."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tequio.federation.rng import truncated_normal, uniform

MANY = np.arange(20_000)


def test_a_partys_number_does_not_depend_on_who_else_is_asked() -> None:
    whole = uniform(3, "speed", 5, MANY)
    some = np.array([17, 4, 19_999])
    np.testing.assert_array_equal(uniform(3, "speed", 5, some), whole[some])


@pytest.mark.parametrize("other", [(4, "speed", 5), (3, "throughput", 5), (3, "speed", 6)])
def test_another_key_gives_independent_numbers(other: tuple[int, str, int]) -> None:
    first, second = uniform(3, "speed", 5, MANY), uniform(*other, MANY)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


def test_numbers_are_uniform_over_parties_and_over_rounds() -> None:
    over_rounds = np.array([uniform(0, "speed", round, np.array([7]))[0] for round in range(5000)])
    for numbers in (uniform(0, "speed", 1, MANY), over_rounds):
        assert stats.kstest(numbers, "uniform").pvalue > 0.001
        assert 0 < numbers.min() < numbers.max() < 1


def test_the_truncated_normal_is_scipys() -> None:
    drawn = truncated_normal(uniform(0, "x", 0, MANY), 0.1, 0.2)
    assert abs(drawn).max() <= 0.2
    assert stats.kstest(drawn, stats.truncnorm(-2, 2, scale=0.1).cdf).pvalue > 0.001


def test_no_deviation_means_no_change() -> None:
    assert truncated_normal(np.array([0.1, 0.9]), 0.0, 0.2).tolist() == [0.0, 0.0]
