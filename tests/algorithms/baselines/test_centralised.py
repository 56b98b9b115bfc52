"""The centralised baseline: federated averaging with one party, or one model of all parties' training rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import toy

from tequio.algorithms.baselines.unfederated import Centralised, training_rows
from tequio.algorithms.horizontal.fedavg import FedAvg
from tequio.data.partition import Split
from tequio.errors import ConfigError, PermissionDenied
from tequio.federation.federation import Rules
from tequio.federation.population import elsewhere
from tequio.learners.learner import LocalTraining


def test_it_equals_federated_averaging_with_one_party() -> None:
    rows = toy.random_parties([23])
    local = LocalTraining(epochs=2, batch=4, learning_rate=0.05, momentum=0.9, decay=0.9)
    baseline = toy.run(Centralised(**toy.parts(local)), toy.federation(rows), rounds=4)
    federated = toy.run(FedAvg(**toy.parts(local)), toy.federation(rows), rounds=4)
    assert toy.weights(baseline).tobytes() == toy.weights(federated).tobytes()


def test_rows_of_several_parties_train_as_if_one_party_held_them() -> None:
    features, target = toy.random_parties([24])[0]
    apart = [(features[:7], target[:7]), (features[7:], target[7:])]
    local = LocalTraining(epochs=3, batch=0, learning_rate=0.05)
    together = toy.run(Centralised(**toy.parts(local)), toy.federation([(features, target)]), rounds=4)
    gathered = toy.run(Centralised(**toy.parts(local)), toy.federation(apart), rounds=4)
    np.testing.assert_allclose(toy.weights(gathered), toy.weights(together), rtol=1e-12)


def test_only_training_rows_are_gathered_and_every_party_judges_the_model_by_its_own() -> None:
    federation = toy.federation(toy.random_parties([20, 30]), split=Split(validation=0.1, test=0.2))
    assert len(training_rows(federation)) == 14 + 21
    algorithm = Centralised(**toy.parts())
    state = toy.run(algorithm, federation)
    tallies = algorithm.evaluate(federation, state, "test", federation.everyone())
    assert {party: tally["rows"] for party, tally in tallies.items()} == {0: 4, 1: 6}


def test_rows_that_are_with_real_parties_cannot_be_gathered() -> None:
    simulated = toy.federation(toy.random_parties([20, 30]))
    simulated.population = elsewhere(simulated.schema, ["ana", "beto"], [20, 30], Split(0, 0), 0, {})
    algorithm = Centralised(**toy.parts())
    with pytest.raises(PermissionDenied, match="with their parties"):
        algorithm.round(simulated, algorithm.start(simulated))


def test_parties_with_different_columns_are_refused_with_what_to_do() -> None:
    split = toy.federation(toy.random_parties([20, 30]))
    columns = (np.array([0]), np.array([1, 2]))
    split.population = replace(split.population, partition=replace(split.population.partition, columns=columns))
    with pytest.raises(ConfigError, match=r"different columns or labels; set data\.partition\.name = 'pooled'"):
        Centralised(**toy.parts()).start(split)


def test_a_round_without_an_answer_keeps_the_model() -> None:
    algorithm, federation = Centralised(**toy.parts()), toy.federation(toy.targets(8.0))
    state = toy.run(algorithm, federation)
    federation.rules = Rules(dropout=1.0, quorum=0.0)
    assert toy.one_more(algorithm, federation, state) is state
