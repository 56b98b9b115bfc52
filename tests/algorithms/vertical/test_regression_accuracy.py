"""Encrypted logistic regression is as right as scikit-learn's on pooled rows, on real data and through the runner."""

from __future__ import annotations

import numpy as np
import pytest
from encrypted import rows_in_clear
from sklearn.linear_model import LogisticRegression

import tequio
from parts import Parts
from tequio.data.partition import Split
from tequio.engines.inline import InlineEngine
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.rng import stream
from tequio.learners.learner import LocalTraining
from tequio.registry import build


def accuracies(dataset, counts, encryption, rounds, seed, batch, **how):
    """Test accuracy of the federation, and of scikit-learn on the same training and test rows."""
    partition = build("partition", "columns", {"counts": counts, "key_holder": True}).deal(dataset, stream(0, "p"))
    population = Population(dataset, partition, Split(validation=0.0, test=0.2), seed=seed)
    engine = InlineEngine()
    engine.open(population)
    federation = Federation(population, engine, seed=seed)
    local = LocalTraining(batch=batch, learning_rate=0.3, decay=0.9, weight_decay=0.001)
    algorithm = build("algorithm", "vertical-logistic", {
        "encryption": encryption, "patience": 0, "alignment": "agreed", **how}, parts=Parts(local=local))
    state = algorithm.start(federation)
    for _ in range(rounds):
        federation.round += 1
        state = algorithm.round(federation, state)
    tally = algorithm.evaluate(federation, state, "test", federation.everyone())[0]
    (rows, targets), (asked, wanted) = rows_in_clear(federation), rows_in_clear(federation, part=2)
    central = LogisticRegression(max_iter=2000).fit(rows[:, 1:], targets)
    return float(np.trace(np.asarray(tally["confusion"])) / tally["rows"]), central.score(asked[:, 1:], wanted)


def test_breast_cancer_is_told_as_well_as_by_scikit_learn():
    dataset = build("dataset", "breast-cancer").load().train
    pairs = [accuracies(dataset, [15, 15], "plain", 20, seed, 64, recentre=5) for seed in range(8)]
    ours, central = np.mean(pairs, axis=0)
    assert ours > central - 0.005


def test_encrypted_it_is_told_the_same():
    pytest.importorskip("tenseal")
    dataset = build("dataset", "breast-cancer").load().train
    clear, _ = accuracies(dataset, [15, 15], "plain", 3, 1, 200)
    encrypted, _ = accuracies(dataset, [15, 15], "ckks", 3, 1, 200)
    assert encrypted == pytest.approx(clear, abs=0.01)


@pytest.mark.data
def test_credit_is_told_as_well_as_by_scikit_learn():
    dataset = build("dataset", "credit2").load().train
    pairs = [accuracies(dataset, [13, 10], "plain", 20, seed, 2000) for seed in range(3)]
    ours, central = np.mean(pairs, axis=0)
    assert ours > central - 0.005


def run(folder, **more):
    return tequio.run(seed=3, rounds=2, data={"name": "breast-cancer", "partition": {
        "name": "columns", "counts": [15, 15], "overlap": 0.9, "key_holder": True}},
        algorithm={"name": "vertical-logistic", "encryption": {"name": "paillier", "bits": 1024}},
        local={"batch": 128}, evaluation={"every": 2}, output={"folder": str(folder)}, **more)


def test_it_runs_like_any_other_algorithm_and_makes_the_same_model_with_any_number_of_workers(tmp_path):
    pytest.importorskip("gmpy2")
    results = [run(tmp_path, engine={"name": "local", "workers": workers}) for workers in (1, 2)]
    assert results[0].model == results[1].model
    assert results[0].model["weights"].keys() == {"0", "1"}
    assert results[0].summary["model_sha256"] == results[1].summary["model_sha256"]
