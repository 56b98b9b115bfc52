"""Simulated federations, few of them: estimates lie around the truth, and tests of nothing find nothing much.

benchmarks/statistics_coverage.py draws many of the same, and counts how often intervals hold the truth.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "statistics_coverage.py"
DRAWS = 20


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("benchmark_of_coverage", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", ["glm", "cox", "aipw"])
def test_estimates_lie_around_the_truth_as_far_as_their_intervals_say(simulation, part):
    drawn = [simulation.drawn(part, seed) for seed in range(DRAWS)]
    for name in drawn[0]:
        standardised = 1.96 * np.array([one[name] for one in drawn])  # in standard errors
        assert abs(standardised.mean()) < 4 / DRAWS ** 0.5, name
        assert 0.5 < standardised.std(ddof=1) < 1.6, name


def test_p_values_are_spread_evenly_where_there_is_nothing_to_find(simulation):
    drawn = [simulation.drawn("tests", seed) for seed in range(DRAWS)]
    for name in drawn[0]:
        values = np.array([one[name] for one in drawn])
        assert ((values >= 0) & (values <= 1)).all(), name
        assert abs(values.mean() - 0.5) < 4 * (1 / 12 / DRAWS) ** 0.5, name


def test_the_page_says_what_was_counted_and_what_chance_alone_would_do(simulation):
    half = [{"glm, a": 0.5}, {"glm, a": -1.5}]
    page = simulation.page({"glm": half, "cox": [], "aipw": [], "tests": [{"t": 0.04}, {"t": 0.5}, {"t": 0.6}]})
    assert "| glm, a | 2 | 50.0 % | 64.8 to 100.0 % |" in page
    assert "| t | 3 | 33.3 % |" in page
