"""Every algorithm ends with a model that answers new rows as the run did, from a folder, without the training rows."""

from __future__ import annotations

import csv
from contextlib import closing

import numpy as np
import pytest

import tequio
from contracts import runs
from contracts.test_algorithms import ALGORITHMS
from tequio.engines.inline import InlineEngine
from tequio.errors import ConfigError
from tequio.experiments.api import gather
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario
from tequio.federation.evaluation import KeptAnswer
from tequio.federation.federation import Federation
from tequio.federation.population import Party, state_name
from tequio.learners.answers import unpack_answer

NO_MODEL = ["cox", "effect", "kaplan-meier", "log-rank", "glm", "penalised-glm", "ask", "test", "meta", "statistics",
            "timing"]


def write(path, columns):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(name, **changes):
        """The result, the coordinator's test rows as a table, and the numbers of these rows."""
        monkeypatch.chdir(tmp_path)
        config = runs.config_of(name)
        data = dict(config["data"])
        table = data.pop("name")
        write(tmp_path / "all.csv", table)
        numbers = name not in runs.ON_COLUMNS and name != "federated-id3"
        config["data"] = {"name": "csv", "path": "all.csv", "target_kind": "multilabel" if name in runs.ON_LABELS
                          else "auto", **data, **({"prepare": ["standardise"]} if numbers else {})}
        result = tequio.run(**{**config, **changes})
        places = make_scenario(result.config).test.ids
        if name in runs.ON_COLUMNS:
            places = np.flatnonzero(np.isin(table["id"], places.astype(np.int64)))
        return result, {column: np.asarray(values)[places] for column, values in reversed(table.items())}

    return run


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in NO_MODEL])
def test_the_model_scores_the_test_rows_as_the_run_did(run, name, tmp_path):
    result, rows = run(name)
    new = write(tmp_path / "new.csv", {"note": ["hello"] * len(rows["a"]), **rows})
    model = tequio.load(result.folder)
    told = {metric.removeprefix("test."): value for metric, value in result.summary["metrics"].items()
            if metric.startswith("test.")}
    assert told
    assert model.score(new) == told


@pytest.mark.parametrize("name", NO_MODEL)
def test_a_run_without_a_model_says_so(run, name):
    result, rows = run(name)
    with pytest.raises(ConfigError, match="makes no model that answers rows"):
        result.predict(rows)


PERSONAL = ["alone", "apfl", "ditto", "fedavg-mix", "fedbn", "fedper", "fedrep", "fine-tuning", "flprotector", "gossip",
            "icdta4fl-own", "ifca", "mlfedavg", "per-fedavg", "pfedme"]


@pytest.mark.parametrize("name", PERSONAL)
def test_a_real_party_keeps_the_answer_that_a_simulated_one_gives(name):
    given, dataset = gather(None, runs.config_of(name))
    config = complete(given)
    scenario = make_scenario(config, dataset)
    with closing(InlineEngine()) as engine:
        engine.open(scenario.population)
        federation = Federation(scenario.population, engine, config.seed, scenario.rules, scenario.topology, round=1)
        algorithm = scenario.algorithm
        state = algorithm.round(federation, algorithm.start(federation))
        parties = algorithm.answering(federation, state).parties[:3]
        algorithm.keep_answers(federation, state, np.array(parties))
        for party in parties:
            kept = engine.states()[party]
            own = algorithm.own_answer(Party(party, 1, dict(kept), scenario.population), federation, state)
            found = unpack_answer(kept[state_name(KeptAnswer)]["answer"], scenario.population.schema)
            assert (found.scores(scenario.test) == own.scores(scenario.test)).all()
