"""Whole-number noise follows its law exactly, whatever way its chances are computed."""

from __future__ import annotations

from dataclasses import replace
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from math import factorial, sqrt

import numpy as np
import pytest
from scipy import special, stats

from tequio.errors import ConfigError
from tequio.noise import laws, sampling
from tequio.noise.coins import Coins
from tequio.noise.sampling import discrete_gaussian, discrete_laplace, rounded_gaussian, rounded_laplace, skellam

DRAWS = 400_000



def interval(distribution, middle, half):
    """The chance of an interval, from the side of the smaller tail."""
    return distribution(half - np.abs(middle)) - distribution(-half - np.abs(middle))


LAWS = {
    "gaussian 0.25": (discrete_gaussian, 0.5, lambda k: np.exp(-2.0 * k**2)),
    "gaussian 1": (discrete_gaussian, 1.0, lambda k: np.exp(-0.5 * k**2)),
    "gaussian 10": (discrete_gaussian, sqrt(10), lambda k: np.exp(-0.05 * k**2)),
    "gaussian 40,000": (discrete_gaussian, 200.0, lambda k: np.exp(-0.5 * (k / 200.0) ** 2)),
    "rounded gaussian 0.5": (rounded_gaussian, 0.5, lambda k: interval(special.ndtr, k / 0.5, 1.0)),
    "rounded gaussian 40,000": (rounded_gaussian, 200.0, lambda k: interval(special.ndtr, k / 200.0, 0.0025)),
    "rounded laplace 2": (rounded_laplace, 2.0, lambda k: interval(stats.laplace.cdf, k / 2.0, 0.25)),
    "laplace 0.4": (discrete_laplace, 0.4, lambda k: np.exp(-np.abs(k) / 0.4)),
    "laplace 10": (discrete_laplace, 10.0, lambda k: np.exp(-np.abs(k) / 10)),
    "laplace 300": (discrete_laplace, 300.0, lambda k: np.exp(-np.abs(k) / 300)),
    "skellam 0.5": (skellam, 0.5, lambda k: special.ive(np.abs(k), 0.5)),
    "skellam 5": (skellam, 5.0, lambda k: special.ive(np.abs(k), 5.0)),
    "skellam 20,000": (skellam, 20_000.0, lambda k: special.ive(np.abs(k), 20_000.0)),
}


def goodness(drawn, law):
    """The p value of Pearson's test; numbers expected fewer than ten times are joined with their neighbours."""
    numbers = np.arange(-6000, 6001)
    expected = law(numbers) / law(numbers).sum() * len(drawn)
    observed = np.bincount(drawn + 6000, minlength=len(numbers))
    groups = np.floor(np.cumsum(expected) / 10).astype(int)
    groups = np.minimum(groups, groups[-1] - 1)
    return stats.chisquare(*(np.bincount(groups, values)[np.unique(groups)] for values in (observed, expected))).pvalue


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_their_law(name):
    draw, size, law = LAWS[name]
    assert goodness(draw(Coins.derived(5, name), size, DRAWS), law) > 0.001


@pytest.mark.parametrize(("draw", "size", "variance"), [
    (discrete_gaussian, 0.5, 0.21501), (discrete_gaussian, 1.0, 1.0), (discrete_gaussian, 2.0**20, 2.0**40),
    (discrete_gaussian, 2.0**40, 2.0**80), (discrete_laplace, 10.0, 199.833), (discrete_laplace, 1e6, 2e12),
    (skellam, 0.5, 0.5), (skellam, 5.0, 5.0), (skellam, 2.0**40, 2.0**40)])
def test_variances(draw, size, variance):
    drawn = draw(Coins.derived(2, str(draw), str(size)), size, DRAWS).astype(np.float64)
    assert np.square(drawn).mean() == pytest.approx(variance, rel=0.01)
    assert abs(drawn.mean()) < 4 * sqrt(variance / DRAWS)


def test_large_noise_is_normal():
    """On a fine grid the discrete laws are the continuous ones to seven digits."""
    for drawn in (discrete_gaussian(Coins.derived(3), 2.0**30, DRAWS) / 2.0**30,
                  rounded_gaussian(Coins.derived(5), 2.0**20, DRAWS) / 2.0**20,
                  skellam(Coins.derived(4), 2.0**40, DRAWS) / 2.0**20):
        assert stats.kstest(drawn, "norm").pvalue > 0.001
        assert np.count_nonzero(np.abs(drawn) > 4) / DRAWS == pytest.approx(6.33e-5, abs=5e-5)


def test_the_chance_of_nought():
    with localcontext() as context:
        context.prec = 40
        total = 1 + 2 * sum(laws.Gaussian(Fraction(1)).exact(number) for number in range(1, 20))
    assert round(float(1 / total), 6) == 0.398942
    drawn = discrete_gaussian(Coins.derived(9), 1.0, DRAWS)
    assert np.count_nonzero(drawn == 0) / DRAWS == pytest.approx(0.398942, abs=4 * sqrt(0.24 / DRAWS))


@pytest.mark.parametrize("name", ["gaussian 40,000", "rounded gaussian 40,000", "rounded laplace 2", "laplace 10",
                                  "laplace 300", "skellam 20,000"])
def test_exact_chances_decide_as_those_in_double_precision(name, monkeypatch):
    """Comparisons with as many digits as it takes give the same numbers, from the same coins."""
    draw, size, _ = LAWS[name]
    wanted = draw(Coins.derived(8), size, 30_000)
    asked = counted(monkeypatch)
    assert np.array_equal(draw(Coins.derived(8), size, 30_000), wanted)
    assert len(asked) > 10


@pytest.mark.parametrize("name", ["gaussian 0.25", "gaussian 10", "rounded gaussian 0.5", "laplace 10", "skellam 5"])
def test_draws_that_are_all_decided_exactly_follow_their_law(name, monkeypatch):
    draw, size, law = LAWS[name]
    made, asked = sampling._table, counted(monkeypatch)
    monkeypatch.setattr(sampling, "_table", lambda law: replace(made(law), surely=np.zeros_like(made(law).surely)))
    drawn = draw(Coins.derived(8), size, 3_000)
    assert goodness(drawn, law) > 0.001
    assert len(asked) >= 3_000


def counted(monkeypatch):
    """Every comparison is an exact one from now on; their answers."""
    asked, decide = [], sampling._is_below
    monkeypatch.setattr(sampling, "_BAND", 1e9)
    monkeypatch.setattr(sampling, "_is_below", lambda *given: asked.append(decide(*given)) or asked[-1])
    return asked


@pytest.mark.parametrize("law", [
    *(laws.Gaussian(Fraction(size)) for size in (2**-20, 0.01, 0.5, 1.0, 3.3, 70.1, 1e6, 2.0**40)),
    *(laws.Exponential(Fraction(size)) for size in (30.0, 1.0, 0.1, 1e-6)),
    *(laws.Geometric(Fraction(size)) for size in (1e3, 0.01)),
    *(laws.RoundedLaplace(Fraction(size)) for size in (3.0, 0.2, 1e-6)),
    *(laws.RoundedGaussian(Fraction(size)) for size in (0.0625, 0.5, 3.3, 63.9, 64.1, 1e6, 2.0**40)),
    *(laws.Skellam(Fraction(size)) for size in (1e-3, 0.5, 5.0, 777.0, 10_001.0, 1e6))], ids=str)
def test_tables_leave_room_for_every_chance(law):
    """By exact chances: none is above 1, and what is accepted without a look would have been with one."""
    table, random = sampling._table(law), np.random.default_rng(0)
    assert table.counts.sum() == 2**16
    bits, width = 47 - table.shift, 1 << table.shift
    cells = {0, 1, 2, table.cells // 2, table.cells - 1, *random.integers(0, table.cells, 4).tolist()}
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 40, MIN_EMIN, MAX_EMAX
        for cell in cells:
            numbers = {cell * width, cell * width + min(1, width - 1), (cell + 1) * width - 1}
            chances = [table.exact_chance(cell, number) for number in numbers]
            assert max(chances) <= 1
            assert Decimal(int(table.surely[cell]) >> (64 - bits)) / 2**bits <= min(chances)
            found, error = table.chances(np.full(len(numbers), cell), np.array(list(numbers)))
            assert all(abs(Decimal(one) - chance) <= Decimal(band) / 16
                       for one, chance, band in zip(found.tolist(), chances, error.tolist(), strict=True))
        tail = [table.end + beyond for beyond in (0, 1, 2, 5, 5 + width)]
        chances = [table.exact_chance(table.cells, number) for number in tail]
        assert 0 < chances[0] <= 1
        assert all(later <= earlier * (1 + Decimal("1e-30")) for earlier, later in pairwise(chances))
        found, error = table.chances(np.full(5, table.cells), np.array(tail))
        assert all(abs(Decimal(one) - chance) <= Decimal(band) / 16
                   for one, chance, band in zip(found.tolist(), chances, error.tolist(), strict=True))


def test_bessel_functions_by_their_series():
    """The exact weights of Skellam noise, against the power series in whole numbers."""
    def bessel(order, size):
        return sum(Fraction(size, 2)**(2 * term + order) / (factorial(term) * factorial(term + order))
                   for term in range(120))

    with localcontext() as context:
        context.prec = 50
        for number in (0, 1, 7, 40):
            found = laws.Skellam(Fraction(5)).exact(number)
            wanted = bessel(number, 5) / bessel(0, 5)
            assert abs(Fraction(found) / wanted - 1) < Fraction(1, 10**40)


def test_a_comparison_takes_as_many_digits_as_it_needs():
    """A uniform number that agrees with the chance in its first 64, 128, 192 bits is compared all the same."""
    table = sampling._table(laws.Gaussian(Fraction(1)))
    with localcontext() as context:
        context.prec = 120
        chance = table.exact_chance(1, 1)
        for bits in (64, 128, 192):
            fraction = int(chance * 2**bits)
            assert sampling._is_below(Coins.derived(1), table, 1, 1, fraction - 1, bits)
            assert not sampling._is_below(Coins.derived(1), table, 1, 1, fraction + 1, bits)
            assert sampling._is_below(Fixed(0), table, 1, 1, fraction, bits)
            assert not sampling._is_below(Fixed(2**64 - 1), table, 1, 1, fraction, bits)


class Fixed:
    def __init__(self, word):
        self.word = word

    def words(self, count):
        return np.full(count, self.word, np.uint64)


def test_shapes_and_noise_of_nothing():
    assert discrete_gaussian(Coins.derived(1), 3.0, (2, 3)).shape == (2, 3)
    assert discrete_gaussian(Coins.derived(1), 3.0, (0, 3)).shape == (0, 3)
    assert not skellam(Coins.derived(1), 0.0, 5).any()
    assert discrete_laplace(Coins.derived(1), 3.0, ()).shape == ()


@pytest.mark.parametrize("size", [float("nan"), float("inf"), -1.0, 2.0**41, 1e-9])
def test_sizes_that_cannot_be_drawn(size):
    with pytest.raises(ConfigError, match="cannot be drawn"):
        discrete_gaussian(Coins.derived(1), size, 3)


def test_the_same_coins_give_the_same_noise_for_good():
    assert discrete_gaussian(Coins.derived(1, "noise", 2), 1000.0, 6).tolist() == [-210, 1437, -481, -152, -410, 654]
    assert skellam(Coins.derived(1, "noise", 2), 5.0, 6).tolist() == [0, 3, -1, 0, -1, 1]
    assert discrete_laplace(Coins.derived(1, "noise", 2), 5.0, 6).tolist() == [-1, 9, -2, -1, -2, 3]
