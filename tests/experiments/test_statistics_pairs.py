"""Pairs of methods against SciPy, autorank, scikit-posthocs and baycomp, and by hand."""

from __future__ import annotations

import warnings
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tequio.models.statistics import (
    bayesian_signed_rank,
    cohen_d,
    draw_weights,
    estimate,
    friedman,
    holm,
    nemenyi_p,
    rank_biserial,
    rank_methods,
    smallest_wilcoxon_p,
    wins_ties_losses,
)


def imported(name):
    """A checking library; what it warns of on import is its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(3, 20), count=st.integers(3, 6))
def test_the_corrected_friedman_test_equals_scipy_where_there_are_ties(seed, rows, count):
    values = np.random.default_rng(seed).integers(0, 4, (rows, count)).astype(float)
    if any(len(set(row)) > 1 for row in values):
        expected = stats.friedmanchisquare(*values.T)
        found = friedman(values)
        assert found.corrected == pytest.approx(expected.statistic, abs=1e-9)
        assert found.corrected_p == pytest.approx(expected.pvalue, abs=1e-9)


def test_iman_and_davenports_statistic_of_a_published_example():
    # Demsar (2006), section 3.2.2: four methods, 14 data sets, chi-squared 9.28, F 3.69.
    chi_squared, rows, count = 9.28, 14, 4
    f = (rows - 1) * chi_squared / (rows * (count - 1) - chi_squared)
    assert f == pytest.approx(3.69, abs=0.005)
    ranks = np.random.default_rng(1).permuted(np.tile(np.arange(4.0), (14, 1)), axis=1)
    found = friedman(ranks)
    assert found.f == pytest.approx(13 * found.corrected / (42 - found.corrected))
    assert found.f_p == pytest.approx(stats.f.sf(found.f, 3, 39))


def test_rows_that_all_agree_leave_no_doubt_and_equal_values_no_difference():
    always = friedman([[3.0, 2.0, 1.0]] * 5)
    assert (always.f, always.f_p) == (inf, 0.0)
    never = friedman([[1.0, 1.0, 1.0]] * 5)
    assert (never.corrected, never.corrected_p, never.f_p) == (0.0, 1.0, 1.0)


def test_nemenyi_equals_scikit_posthocs():
    posthocs = imported("scikit_posthocs")
    values = np.random.default_rng(0).random((12, 4)) + np.arange(4) * 0.2
    expected = np.asarray(posthocs.posthoc_nemenyi_friedman(values))
    ranking = rank_methods(values, list("abcd"))
    for first in range(4):
        for second in range(first):
            found = nemenyi_p(ranking.ranks[first] - ranking.ranks[second], 4, 12)
            assert found == pytest.approx(expected[first, second], abs=1e-3)


def test_the_critical_difference_and_the_mean_ranks_equal_autorank():
    autorank, pandas = imported("autorank"), imported("pandas")
    values = np.random.default_rng(3).normal(size=(20, 4)) ** 3 + np.arange(4) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = autorank.autorank(pandas.DataFrame(values, columns=list("abcd")), force_mode="nonparametric")
    ranking = rank_methods(values, list("abcd"))
    assert ranking.critical_difference == pytest.approx(expected.cd, abs=1e-3)
    assert friedman(values).corrected_p == pytest.approx(expected.pvalue)
    for method, rank in zip(ranking.methods, ranking.ranks, strict=True):
        assert expected.rankdf.loc[method, "meanrank"] == pytest.approx(rank)


def test_cohens_d_equals_autorank():
    util = imported("autorank._util")
    first, second = np.random.default_rng(0).normal(size=(2, 15)) + np.array([[1.0], [0.0]])
    assert cohen_d(first, second) == pytest.approx(util._cohen_d(first, second))
    assert cohen_d([1.0, 1.0], [0.0, 0.0]) == inf
    assert cohen_d([1.0, 1.0], [1.0, 1.0]) == 0.0


@pytest.mark.parametrize("rope", [0.0, 0.02])
@pytest.mark.parametrize("shift", [0.0, 0.01, 0.05])
def test_the_bayesian_signed_rank_test_equals_baycomp(rope, shift):
    baycomp = imported("baycomp")
    second = np.random.default_rng(5).random(14)
    first = second + shift + np.random.default_rng(6).normal(scale=0.03, size=14)
    expected = baycomp.SignedRankTest.probs(second, first, rope=rope, random_state=0)
    found = bayesian_signed_rank(first - second, rope, draw_weights(14, np.random.default_rng(0)))
    expected = expected if rope else (expected[0], 0.0, expected[1])
    assert [found.second, found.alike, found.first] == pytest.approx(expected, abs=0.02)


def test_beliefs_add_up_and_equal_methods_favour_neither():
    weights = draw_weights(8, np.random.default_rng(0))
    assert weights.sum(axis=1) == pytest.approx(1)
    found = bayesian_signed_rank(np.zeros(8), 0.0, weights)
    assert (found.first, found.alike, found.second) == (0.5, 0.0, 0.5)
    found = bayesian_signed_rank(np.zeros(8), 0.01, weights)
    assert (found.first, found.alike, found.second) == (0.0, 1.0, 0.0)
    found = bayesian_signed_rank(np.full(8, 0.3), 0.01, weights)
    assert found.first > 0.95
    assert found.first + found.alike + found.second == pytest.approx(1)


def test_holms_correction_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@settings(max_examples=30, deadline=None)
@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_makes_a_p_value_smaller_and_keeps_their_order(p_values):
    adjusted = holm(p_values)
    assert all(new >= old for new, old in zip(adjusted, p_values, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_the_interval_of_a_mean_equals_scipy():
    values = np.random.default_rng(2).random(9)
    found = estimate(values)
    low, high = stats.t.interval(0.95, 8, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.sd == pytest.approx(values.std(ddof=1))
    alone = estimate([0.7])
    assert (alone.mean, alone.sd, alone.low, alone.high) == (0.7, None, None, None)


def test_rank_biserial_by_hand():
    # ranks of |1|, |2|, |3|, |-4| are 1 to 4: (1 + 2 + 3 - 4) / 10
    assert rank_biserial([1.0, 2.0, 3.0, -4.0]) == pytest.approx(0.2)
    assert rank_biserial([0.0, 0.5, 0.1]) == 1.0
    assert rank_biserial([0.0, 0.0]) == 0.0
    assert wins_ties_losses([1.0, 0.0, -2.0, 3.0]) == (2, 1, 1)


@pytest.mark.parametrize("rows", [3, 5, 6, 8])
def test_the_smallest_p_that_wilcoxon_can_reach(rows):
    assert smallest_wilcoxon_p(rows) == pytest.approx(stats.wilcoxon(np.arange(1.0, rows + 1)).pvalue)
