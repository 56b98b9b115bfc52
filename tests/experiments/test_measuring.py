import dataclasses

import numpy as np
import pytest

from tequio.engines.inline import InlineEngine
from tequio.experiments.config.complete import complete
from tequio.experiments.config.tables import Evaluation
from tequio.experiments.running.headline import main_metric
from tequio.experiments.running.measuring import evaluating_parties, measure
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.algorithm import State
from tequio.federation.federation import Federation


@pytest.fixture
def ready(given):
    """A federation of three parties whose rows are all test or validation rows of the same targets as at first."""
    data = {**given["data"], "copies": 4, "split": {"validation": 0.25, "test": 0.25}}
    scenario = make_scenario(complete({**given, "data": data}))
    engine = InlineEngine()
    engine.open(scenario.population)
    return scenario, Federation(scenario.population, engine, rules=scenario.rules)


def test_metrics_of_parties_and_their_spread(ready):
    scenario, federation = ready
    measured = measure(scenario, Evaluation(), federation, State({"mean": np.zeros(1)}))
    errors = [np.sqrt(np.mean(federation.population.view(party).test.target ** 2)) for party in range(3)]
    assert measured.parties["party"] == ["ana", "beto", "caro"]
    assert measured.parties["rmse"] == pytest.approx(errors)
    assert measured.metrics["parties.rmse.mean"] == pytest.approx(np.mean(errors))
    assert measured.metrics["parties.rmse.sd"] == pytest.approx(np.std(errors, ddof=1))
    assert measured.metrics["parties.rmse.max"] == pytest.approx(10.0)
    assert measured.metrics["parties.rmse.worst_decile"] == pytest.approx(10.0)  # high error is bad
    rows = np.concatenate([federation.population.view(party).validation.target for party in range(3)])
    assert measured.metrics["validation.rmse"] == pytest.approx(np.sqrt(np.mean(rows ** 2)))
    assert "test.rmse" not in measured.metrics  # the coordinator has no rows here


def test_nobody_drops_out_of_an_evaluation_and_its_bytes_are_counted_apart(ready):
    scenario, federation = ready
    federation.rules = dataclasses.replace(federation.rules, dropout=0.99)
    measured = measure(scenario, Evaluation(), federation, State({"mean": np.zeros(1)}))
    assert len(measured.parties) == 3
    assert federation.traffic.bytes_up == 0
    assert measured.traffic.messages == 2 * 3 * 2


def test_the_same_sample_of_parties_evaluates_in_every_round(ready):
    _, federation = ready
    federation.round = 1
    first = evaluating_parties(federation, 2)
    federation.round = 2
    assert list(first) == list(evaluating_parties(federation, 2))
    assert len(first) == 2
    assert list(evaluating_parties(federation, 0)) == [0, 1, 2]


def test_the_loss_stands_for_the_rest_only_where_it_is_alone():
    assert main_metric(["loss", "rmse", "mae"]) == "rmse"
    assert main_metric(["loss"]) == "loss"
