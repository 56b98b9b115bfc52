"""Runs on the virtual clock: time in the metrics, a budget, resuming, workers, and what cannot be."""

from __future__ import annotations

import json

import pytest

import tequio
from tequio.errors import ConfigError
from tequio.experiments.api import resume_run
from tequio.experiments.config.complete import complete, config_hash
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.scenario import make_scenario

PHONES = {"name": "phones", "rounds": 6, "seed": 3, "engine": {"workers": 1},
          "data": {"name": "digits", "partition": {"name": "iid", "parties": 20}},
          "local": {"epochs": 2}, "devices": {"name": "mobile", "throughput": [0.05, 0.2], "price": 0.1}}
WITH_TIMES = ("seconds",)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def numbers(result):
    return [{name: value for name, value in row.items() if name not in WITH_TIMES} for row in result.metrics]


def phones(**keys):
    return complete({**PHONES, **keys})


def test_time_energy_and_money_are_metrics_like_any_other():
    result = run_config(phones(selector={"name": "fedcs", "fraction": 0.5, "deadline": 20.0}))
    seconds = result.metrics["clock.seconds"]
    assert seconds == sorted(seconds)
    assert result.metrics["clock.round_seconds"] == pytest.approx(
        [after - before for before, after in zip([0.0, *seconds], seconds, strict=False)])
    assert all(0 < value < 20.5 for value in result.metrics["clock.round_seconds"])
    assert set(result.metrics["clock.deadline"]) == {20.0}
    assert sum(result.metrics["clock.round_updates"]) == result.summary["metrics"]["clock.updates"]
    assert result.summary["metrics"]["clock.cost"] > 0
    json.dumps(result.to_dict())


def test_the_budget_ends_the_run_after_the_round_that_passes_it():
    result = run_config(phones(rounds=1000, stop={"virtual_seconds": 300.0}, algorithm="timing",
                               selector={"name": "random", "count": 5}))
    *before, last = result.metrics["clock.seconds"]
    assert max(before) < 300.0 <= last
    assert result.summary["stopped"] == "virtual_seconds"


@pytest.mark.parametrize("changes", [
    {"selector": {"name": "dyn-hybridfl", "fraction": 0.5, "deadline": 15.0}, "algorithm": "hybridfl",
     "devices": {**PHONES["devices"], "share_rows": 0.5}},
    {"algorithm": {"name": "fedbuff", "concurrency": 6, "buffer": 3}},
    {"selector": {"name": "oort", "count": 5}, "availability": {"name": "markov"},
     "rules": {"dropout": 0.2, "quorum": 0}, "devices": {**PHONES["devices"], "deadline": 15.0}},
], ids=["dyn-hybridfl", "fedbuff", "oort"])
def test_stopping_and_resuming_or_more_workers_change_nothing(changes):
    straight = run_config(phones(**changes))
    stopped = run_config(phones(**{**changes, "rounds": 3}))
    (stopped.folder / "summary.json").unlink()
    resumed = resume_run(stopped.folder, phones(**changes), {})
    assert numbers(resumed) == numbers(straight)
    assert resumed.summary["model_sha256"] == straight.summary["model_sha256"]
    two = run_config(phones(**changes, engine={"workers": 2}))
    assert numbers(two) == numbers(straight)


def test_half_of_the_chosen_parties_fail_and_the_run_ends_well():
    result = run_config(phones(rules={"dropout": 0.5, "quorum": 0.1}, selector={"name": "random", "count": 10},
                               devices={**PHONES["devices"], "deadline": 60.0}, rounds=10))
    final = result.summary["metrics"]
    assert result.summary["rounds"] == 10
    assert 30 <= final["clock.lost"] <= 70
    assert final["clock.updates"] + final["clock.lost"] + final["clock.late"] == 100
    assert final["test.accuracy"] > 0.6


def test_consent_comes_from_the_share_and_from_the_party():
    config = phones(devices={"name": "mobile", "share_rows": 0.3}, overrides={"4": {"share_rows": True},
                                                                            "5": {"share_rows": False}})
    settings = make_scenario(config).population.overrides
    drawn = {party for party, own in settings.items() if own["share_rows"]}
    assert 4 in drawn
    assert 5 not in drawn
    assert 2 <= len(drawn) <= 12


def test_a_trace_beside_the_config_is_found(tmp_path):
    (tmp_path / "village").mkdir()
    (tmp_path / "village" / "trace.csv").write_text("party,start,end\n3,0,1e9\n7,0,1e9\n")
    (tmp_path / "village" / "run.toml").write_text(
        'rounds = 2\ndevices = "mobile"\navailability = {name = "trace", path = "trace.csv"}\n'
        'engine = {workers = 1}\n[data]\nname = "digits"\npartition = {name = "iid", parties = 10}\n')
    result = tequio.run(tmp_path / "village" / "run.toml")
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    assert [event["parties"] for event in events if event["event"] == "selection"] == [[3, 7], [3, 7]]


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"devices": "instant", "stop": {"virtual_seconds": 10.0}}, "virtual_seconds looks at the virtual clock"),
    ({"devices": "instant", "availability": "diurnal"}, r"\[availability\] looks at the virtual clock"),
    ({"devices": {"name": "mobile", "speed": [1.0]}}, "speed"),
    ({"availability": {"name": "diurnal", "hours": 25}}, "hours"),
])
def test_what_cannot_be_is_said_before_work_starts(changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make_scenario(phones(**changes))


def test_runs_without_a_clock_keep_their_identity():
    plain = complete({"data": {"name": "digits"}})
    assert config_hash(plain) == config_hash(complete({"data": {"name": "digits"}, "devices": "instant",
                                                       "availability": "always", "stop": {"virtual_seconds": 0.0}}))
    assert config_hash(plain) != config_hash(complete({"data": {"name": "digits"}, "devices": "mobile"}))
    assert not any(name.startswith("clock.") for name in run_config(complete(
        {"data": {"name": "digits"}, "rounds": 1, "engine": {"workers": 1}})).metrics.columns)
