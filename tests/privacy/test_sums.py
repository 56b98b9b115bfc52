"""Noise on sums over rows: as much as each algorithm says that a row can change, and paid for reply by reply."""

from __future__ import annotations

import numpy as np
import pytest

import tequio
from tequio.algorithms.clustering import kmeans
from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario
from tequio.privacy.accounting import Release, epsilon_of


def given(algorithm, learner, tmp_path, noise=5.0, rounds=2, data=None, **more):
    return {"data": {"name": "breast-cancer", "partition": {"name": "iid", "parties": 4},
                     "prepare": ["minmax"], "prepare_scope": "local", "split": {"validation": 0.0, "test": 0.0},
                     **(data or {})},
            "rounds": rounds, "algorithm": algorithm, **({"learner": learner} if learner else {}),
            "evaluation": {"at": ["coordinator"]},
            "stages": [{"name": "dp-sums", "noise": noise}], "output": {"folder": str(tmp_path)},
            "engine": {"workers": 1}, **more}


KMEANS = {"name": "kmeans", "clusters": 2, "radius": 2.0, "centroids": [[0.2] * 30, [0.6] * 30]}
BOOSTED = {"name": "histogram-gbdt", "low": 0.0, "high": 1.0}
TREES = {"name": "boosted-trees", "depth": 2, "bins": 8}


def test_private_k_means_pays_once_a_round(tmp_path):
    result = tequio.run(given(KMEANS, "", tmp_path))
    assert result.privacy["epsilon"] == pytest.approx(epsilon_of({Release(5.0): 2}, 1e-5))
    assert result.privacy["unit"] == "row"


def test_noise_on_sums_and_counts_is_in_proportion_to_what_a_row_moves(tmp_path, monkeypatch):
    heard, add_up = [], kmeans._along_topology

    def listen(federation, replies):
        heard.extend(replies.payloads)
        return add_up(federation, replies)

    monkeypatch.setattr(kmeans, "_along_topology", listen)
    for noise in (0.0, 5.0):
        tequio.run(given(KMEANS, "", tmp_path, noise=noise, rounds=1))
    exact, noised = heard[:4], heard[4:]
    difference = np.array([payload["sums"]["sums"] - true["sums"]["sums"]
                           for payload, true in zip(noised, exact, strict=True)])
    # 240 draws with a radius of 2 and two arrays
    assert difference.std() == pytest.approx(5.0 * 2.0 * np.sqrt(2), rel=0.15)


def test_private_trees_pay_for_every_level(tmp_path):
    result = tequio.run(given(BOOSTED, TREES, tmp_path, noise=1.0, rounds=3))
    assert result.privacy["releases"] <= 3 * 2
    assert result.privacy["epsilon"] == pytest.approx(epsilon_of({Release(1.0): result.privacy["releases"]}, 1e-5))


def test_private_trees_still_learn(tmp_path):
    result = tequio.run(given(BOOSTED, TREES, tmp_path, noise=0.05, rounds=10))
    assert result.summary["metrics"]["test.accuracy"] > 0.85


def test_a_row_counts_once_in_every_column_of_a_histogram(tmp_path):
    made = make_scenario(complete(given(BOOSTED, TREES, tmp_path)))
    assert made.algorithm.stages[0].moves == pytest.approx({"gradient": 30**0.5, "curvature": 30**0.5 / 4})
    assert made.ledger.context.releases == 2


@pytest.mark.parametrize(("reason", "changes"), [
    ("lets more cross", {"algorithm": {"name": "kmeans", "clusters": 2}}),
    ("lets more cross", {"algorithm": {**KMEANS, "minimum_count": 3}}),
    ("lets more cross", {"algorithm": {"name": "histogram-gbdt"}, "learner": "boosted-trees"}),
    ("which are updates: set .*'central-dp'", {"algorithm": {"name": "fedavg"}, "learner": "logistic"}),
    ("which are sums over rows: set .*'dp-sums'", {"stages": [{"name": "central-dp", "noise": 1.0}]}),
])
def test_what_is_not_bounded_is_refused(reason, changes, tmp_path):
    with pytest.raises(ConfigError, match=reason):
        make_scenario(complete(given(KMEANS, "", tmp_path) | changes))


@pytest.mark.parametrize(("stages", "why"), [
    (["dp-sums", "verified"], "proves weighted sums, and the algorithm 'kmeans'"),
    (["group-sum"], "asks for whole sums over rows, and groups make means"),
    ([{"name": "random-k"}, "secure-sum"], "the stage 'random-k' does not go with .* are hidden as they are")])
def test_sums_over_rows_are_hidden_as_they_are_or_not_at_all(stages, why):
    with pytest.raises(ConfigError, match=why):
        make_scenario(complete({"data": {"name": "iris"}, "algorithm": {"name": "kmeans"}, "stages": stages}))
