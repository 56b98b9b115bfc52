"""Multi-label runs from config to folder: stop round, baselines, labels and noise in the record, resuming, sweeps."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError, RunError
from tequio.experiments.api import baseline_config
from tequio.experiments.config.complete import complete, config_hash
from tequio.experiments.running.results import Result
from tequio.experiments.running.scenario import make_scenario
from tequio.experiments.sweep import run_sweep

CONFIG = {
    "name": "labels", "rounds": 6, "learner": {"name": "mlp", "hidden": [8, 4]},
    "local": {"batch": 32, "optimizer": "adam", "learning_rate": 0.01}, "algorithm": {"name": "mlfedavg"},
    "data": {"name": "digit-properties", "test": 0.1, "feature_noise": {"largest": 0.3},
             "partition": {"name": "label-sets", "sizes": [3, 2, 1]}, "split": {"validation": 0.2, "test": 0.2}},
    "evaluation": {"every": 6}, "engine": {"workers": 1}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def events(result, kind):
    lines = (json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    return tequio.run(CONFIG, baselines=["alone", "centralised"], output={"folder": str(folder)})


def test_the_record_says_who_knows_what_and_how_noisy_it_is(result):
    told, = events(result, "data")
    assert sorted(len(own) for own in told["labels"].values()) == [1, 2, 3]
    assert all(0 < sigma < 0.3 for sigma in told["noise"].values())


def test_metrics_are_those_of_all_labels_of_each_party_and_of_common_rows(result):
    metrics = result.summary["metrics"]
    parties = [float(value) for value in result.parties["f1_macro"]]
    assert metrics["parties.f1_macro.mean"] == pytest.approx(np.mean(parties))
    assert metrics["parties.argmax_agreement.mean"] == pytest.approx(
        np.mean([float(value) for value in result.parties["argmax_agreement"]]))
    by_label = [float(value) for value in result.labels["parties.f1"]]
    assert len(by_label) == 6
    assert metrics["parties.f1_macro.pooled"] == pytest.approx(np.mean(by_label))
    joint = [float(row["common_all.f1"]) for row in result.labels]
    assert metrics["test.f1_macro"] == pytest.approx(np.mean(joint))
    assert metrics["common.f1_macro.mean"] > metrics["common_all.f1_macro.mean"] - 1e-9


def test_a_party_alone_is_as_patient_as_the_federation_was_long(result):
    alone = result.baselines["alone"]
    assert alone.config.algorithm["name"] == "mlfedavg-alone"
    assert alone.config.algorithm["patience"] == result.summary["rounds"] == 6
    assert result.baselines["centralised"].config.data.partition["name"] == "pooled"
    assert "test.f1_macro" in result.baselines["centralised"].summary["metrics"]


def test_other_algorithms_keep_their_own_baseline():
    config = complete({"algorithm": {"name": "fedavg"}})
    assert baseline_config(config, "alone", 5).algorithm["name"] == "alone"


def test_the_algorithm_itself_can_end_a_run_and_its_round_is_kept(folder):
    ended = tequio.run(CONFIG, rounds=40, algorithm={"name": "mlfedavg-plus", "federated_rounds": 3,
                                                     "personal_rounds": 2, "second_rounds": 0})
    assert (ended.summary["rounds"], ended.summary["stopped"]) == (5, "personal phase done")
    assert "test.f1_macro" in ended.summary["metrics"]  # the last round is always evaluated


def test_a_resumed_run_gives_the_same_numbers(folder):
    whole = tequio.run(CONFIG, output={"folder": "whole"})
    part = tequio.run(CONFIG, rounds=3, output={"folder": "part", "checkpoint_every": 1})
    rest = tequio.run(resume=part.folder, rounds=6)
    assert rest.summary["model_sha256"] == whole.summary["model_sha256"]
    assert rest.labels.to_dict() == whole.labels.to_dict()


def test_noise_is_on_the_parties_rows_and_not_on_the_coordinators():
    tables = ({**CONFIG["data"], "feature_noise": {"largest": largest}} for largest in (0.0, 0.3))
    clean, noisy = (make_scenario(complete({**CONFIG, "data": table})) for table in tables)
    np.testing.assert_array_equal(clean.test.features, noisy.test.features)
    assert not np.array_equal(clean.population.view(0).train.features, noisy.population.view(0).train.features)
    np.testing.assert_array_equal(clean.population.view(0).train.target, noisy.population.view(0).train.target)


def test_a_config_without_noise_has_the_identity_it_had_before_there_was_any():
    silent = complete({"data": {"feature_noise": {"largest": 0.0}}})
    assert config_hash(silent) == config_hash(complete({}))
    assert config_hash(complete({"data": {"feature_noise": {"largest": 0.1}}})) != config_hash(silent)


def test_scaling_apart_keeps_the_label_sets():
    config = {**CONFIG, "data": {**CONFIG["data"], "prepare": ["standardise"], "prepare_scope": "local"}}
    apart = make_scenario(complete(config)).population
    together = make_scenario(complete(CONFIG)).population
    assert [apart.view(party).train.schema.target.names for party in range(3)] == [
        together.view(party).train.schema.target.names for party in range(3)]


def test_a_sweep_on_two_processes_gives_what_it_gives_on_one(folder):
    swept = {**CONFIG, "rounds": 2, "sweep": {"algorithm.aggregation": [0, 2], "seeds": [0, 1]}}
    one = run_sweep({**swept, "output": {"folder": "one"}})
    heard = []
    two = run_sweep({**swept, "output": {"folder": "two"}, "engine": {"workers": 2}},
                    listen=lambda kind, facts: heard.append((kind, facts["number"])))
    assert heard == [("cell", number) for number in (1, 2, 3, 4)]
    assert [run.summary["model_sha256"] for run in two.results] == [run.summary["model_sha256"] for run in one.results]
    assert two.table.to_dict() == one.table.to_dict()


def test_a_sweep_on_processes_takes_a_dataset_object_and_tells_of_a_failing_cell(folder):
    from tequio.registry import build

    data = build("dataset", "digit-properties").load().train
    table = {**CONFIG["data"], "name": data}
    swept = tequio.sweep({**CONFIG, "rounds": 1, "data": table}, engine={"workers": 2}, sweep={"seeds": [0, 1]})
    assert len(swept.results) == 2
    with pytest.raises(RunError, match=r"seed=.*fewer than 5000 rows"):
        tequio.sweep({**CONFIG, "rounds": 1}, engine={"workers": 2},
                     sweep={"data.partition.minimum_rows": [5000], "seeds": [0, 1]})


def test_mlfedavg_on_rows_dealt_without_label_sets_lets_every_party_know_all(folder):
    config = {**CONFIG, "rounds": 1, "data": {**CONFIG["data"], "partition": {"name": "iterative", "parties": 3}}}
    assert len(tequio.run(config).labels) == 18


def test_averaging_whole_models_of_different_labels_is_refused(folder):
    with pytest.raises(ConfigError, match="know different labels"):
        tequio.run({**CONFIG, "algorithm": {"name": "fedavg"}})


def test_a_run_without_labels_has_no_table_of_them(folder):
    assert len(tequio.run({"rounds": 1, "engine": {"workers": 1}}).labels) == 0
    assert isinstance(Result(folder), Result)
