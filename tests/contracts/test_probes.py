"""Every probe says from where it looks, what it assumes, and which runs have something of its kind."""

from __future__ import annotations

import typing

import pytest

from tequio import registry
from tequio.experiments.config.complete import complete
from tequio.probing.probe import SEEN_BY, View, assumption, interval

from .subjects import every, make


@every("probe")
def test_it_says_what_the_attacker_knows_and_from_where_it_looks(name):
    component = registry.find("probe", name).component
    assert set(component.views) <= set(typing.get_args(View)) == set(SEEN_BY)
    assert component.views
    assert len(component.assumes) > 10
    assert assumption(name).endswith(f"{component.assumes}.")


@every("probe")
def test_it_suits_the_runs_of_some_algorithm_and_no_clustering(name):
    configs = [complete({"algorithm": algorithm, "data": data} | ({"learner": learner} if learner else {}))
               for algorithm, learner, data in SUBJECTS]
    suited = [config.algorithm["name"] for config in configs if make("probe", name).suits(config)]
    assert suited
    assert "kmeans" not in suited


BY_COLUMNS = {"name": "breast-cancer", "test": 0.0, "partition": {"name": "columns"}}
SUBJECTS = [("fedavg", "", {"name": "digits"}), ("kmeans", "", {"name": "iris"}), ("split-nn", "", BY_COLUMNS),
            ("vertical-logistic", "", BY_COLUMNS | {"partition": {"name": "columns", "key_holder": True}}),
            ("secureboost", "boosted-trees", BY_COLUMNS)]


def test_intervals_by_hand():
    """Of 5 hits in 5 attempts the lower end is 0.025 ** (1 / 5)."""
    assert interval(5, 5) == pytest.approx({"success": 1.0, "low": 0.025 ** 0.2, "high": 1.0, "attempts": 5.0})
    assert interval(0, 5)["high"] == pytest.approx(1 - 0.025 ** 0.2)
