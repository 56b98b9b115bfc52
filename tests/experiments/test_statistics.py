"""Friedman, Nemenyi and Wilcoxon against SciPy, and the numbers of the multi-label thesis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tequio.errors import DataError
from tequio.models.statistics import (
    Ranking,
    chi_squared_tail,
    critical_difference,
    friedman_statistic,
    rank_methods,
    row_ranks,
    wilcoxon_p,
)


@pytest.mark.parametrize(("ranks", "statistic", "p"), [
    ((1.8128, 2.1536, 2.0335), 10.6955, 0.004759), ((1.8156, 2.1285, 2.0559), 9.5978, 0.008239),
    ((1.8268, 1.1732), 76.4749, 2.23e-18), ((1.4134, 1.5866), 5.3687, 0.020501)])
def test_published_ranks_of_179_problems_give_the_recomputed_statistics(ranks, statistic, p):
    found = friedman_statistic(ranks, 179)
    assert found == pytest.approx(statistic, rel=2e-3)
    assert chi_squared_tail(found, len(ranks) - 1) == pytest.approx(p, rel=0.1)


def test_critical_differences_of_the_thesis():
    assert critical_difference(3, 179) == pytest.approx(0.2477, abs=5e-5)
    assert critical_difference(2, 179) == pytest.approx(0.1465, abs=5e-5)
    assert critical_difference(3, 178) == pytest.approx(0.2484, abs=5e-5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), problems=st.integers(5, 30), count=st.integers(3, 6))
def test_friedman_equals_scipy_where_there_are_no_ties(seed, problems, count):
    values = np.random.default_rng(seed).random((problems, count))
    expected = stats.friedmanchisquare(*values.T)
    found = rank_methods(values, [str(method) for method in range(count)])
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_ties_share_their_ranks(seed):
    values = np.random.default_rng(seed).integers(0, 4, (6, 5)).astype(float)
    np.testing.assert_allclose(row_ranks(values), stats.rankdata(values, axis=1))


def test_the_better_method_has_the_lower_rank():
    values = [[0.9, 0.5], [0.8, 0.7], [0.6, 0.1]]
    assert rank_methods(values, ["good", "bad"]).ranks == (1.0, 2.0)
    assert rank_methods(values, ["good", "bad"], higher_is_better=False).ranks == (2.0, 1.0)


def test_groups_join_what_does_not_differ():
    ranking = Ranking(("a", "b", "c", "d"), (3.5, 1.0, 1.8, 2.6), 50, 9.0, 0.01, 1.0, 0.05)
    assert ranking.differ
    assert ranking.groups() == [("b", "c"), ("c", "d"), ("d", "a")]
    alike = Ranking(("a", "b"), (1.4, 1.6), 10, 0.4, 0.5, 1.0, 0.05)
    assert alike.groups() == [("a", "b")]
    assert not alike.differ


def test_wilcoxon_equals_scipy_and_knows_methods_that_never_differ():
    rng = np.random.default_rng(0)
    first, second = rng.random(12), rng.random(12)
    assert wilcoxon_p(first, second) == pytest.approx(stats.wilcoxon(first, second).pvalue)
    assert wilcoxon_p(first, first) == 1.0


@pytest.mark.parametrize("values", [[[1.0]], [[1.0, float("nan")]], np.empty((0, 2))])
def test_what_cannot_be_compared_is_refused(values):
    with pytest.raises(DataError):
        rank_methods(values, ["a", "b"])
