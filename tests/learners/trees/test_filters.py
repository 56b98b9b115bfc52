"""Filters set the bar where they say, and never leave nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tequio.errors import ConfigError, DataError
from tequio.learners.trees.filters import CustomFilter, MeanFilter, ModeFilter, NoFilter, PercentileFilter, surviving
from tequio.registry import build

SCORES = np.array([[0.9, 0.8], [0.5, 0.4], [0.7, 0.9], [0.7, 0.6]])  # mean 0.7 and 0.675


@pytest.mark.parametrize(("name", "parameters", "bar"), [
    ("mean", {}, 0.7), ("median", {}, 0.7), ("percentile", {"percent": 100}, 0.9), ("percentile", {"percent": 0}, 0.5),
    ("percentile", {"percent": 75}, 0.75), ("mode", {}, 0.7), ("none", {}, -np.inf)])
def test_where_the_bar_is(name, parameters, bar):
    assert build("filter", name, parameters).bar(SCORES[:, 0]) == pytest.approx(bar)


def test_the_mode_rounds_takes_the_lowest_and_never_excludes_all():
    assert ModeFilter().bar(np.array([0.704, 0.696, 0.801, 0.799, 0.5])) == 0.7
    assert ModeFilter(digits=1).bar(np.array([0.56, 0.57])) == 0.57


def test_a_tree_must_reach_the_bar_in_every_metric_and_the_best_come_first():
    assert surviving(SCORES, MeanFilter()).tolist() == [0, 2]
    assert surviving(SCORES[[1, 2, 0]], MeanFilter()).tolist() == [2, 1]


def test_equal_trees_are_all_kept():
    assert len(surviving(np.full((7, 2), 0.1), MeanFilter())) == 7


def test_where_metrics_disagree_the_bar_is_lowered_once_and_then_the_best_is_taken():
    nearly = np.array([[0.700, 0.705], [0.705, 0.700]])
    assert len(surviving(nearly, MeanFilter())) == 2
    apart = np.array([[0.9, 0.1], [0.1, 0.8]])
    assert surviving(apart, MeanFilter()).tolist() == [0]


def test_a_least_number_of_trees_is_filled_up_with_the_best():
    assert surviving(SCORES, PercentileFilter(percent=100), least=3).tolist() == [0, 2, 3]
    assert len(surviving(SCORES, MeanFilter(), least=99)) == 4


def test_a_function_of_the_users_own():
    assert surviving(SCORES, CustomFilter(function=lambda scores: 0.65)).tolist() == [0, 2]
    with pytest.raises(ConfigError, match="cannot be imported"):
        CustomFilter(function="no_such_module:f").bar(SCORES[:, 0])
    with pytest.raises(DataError, match="not a number"):
        CustomFilter(function=lambda scores: float("nan")).bar(SCORES[:, 0])


@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.just(2)), elements=st.floats(0, 1)))
def test_something_always_survives_and_stricter_percentiles_keep_no_more(scores):
    kept = [len(surviving(scores, PercentileFilter(percent=percent))) for percent in (0, 50)]
    assert kept[0] == len(scores) >= kept[1] >= 1
    assert len(surviving(scores, NoFilter())) == len(scores)
    assert len(surviving(scores, MeanFilter())) >= 1
