"""Searches: the best by validation rows, no peeking at test rows, and going on after a stop."""

from __future__ import annotations

import json
import sys

import pytest

import tequio
from tequio.errors import ConfigError, MissingExtra
from tequio.experiments import sweep
from tequio.experiments.config.complete import config_hash, load_config
from tequio.experiments.searching import read_search, run_search

RATES = {"local.learning_rate": [0.5, 0.1, 0.001]}


@pytest.fixture
def given(given):
    """The toy config with validation rows."""
    data = {**given["data"], "copies": 10, "test": 0.2, "split": {"validation": 0.2, "test": 0.1}}
    return {**given, "data": data}


def searched(given, **search):
    return run_search({**given, "search": search})


def test_a_grid_finds_what_is_best_on_validation_rows(given):
    found = searched(given, space=RATES, metric="validation.loss", seeds=[0, 1])
    means = {trial.settings["local.learning_rate"]: trial.value for trial in found.trials}
    assert found.best.settings["local.learning_rate"] == min(means, key=means.get)
    assert [row["validation.loss"] for row in found.table] == sorted(means.values())
    assert {len(trial.results) for trial in found.trials} == {2}
    for trial in found.trials:
        assert trial.values == [result.summary["metrics"]["validation.loss"] for result in trial.results]


def test_the_table_says_nothing_about_test_rows(given):
    found = searched(given, space=RATES)
    assert not [column for column in found.table.columns if column.startswith(("test", "parties"))]
    assert found.metric.startswith("validation.")
    assert (found.folder / "trials.csv").read_text() == found.table.to_csv()


def test_the_best_config_gives_the_numbers_of_the_best_trial(given):
    found = searched(given, space=RATES, metric="validation.loss")
    best = load_config(found.best_config)
    assert best.local["learning_rate"] == found.best.settings["local.learning_rate"]
    assert config_hash(best) == found.best.results[0].summary["config_hash"]
    again = tequio.run(found.best_config)
    assert again.summary["model_sha256"] == found.best.results[0].summary["model_sha256"]


@pytest.mark.parametrize("metric", ["test.loss", "parties.loss.mean", "train.loss", "seconds",
                                    "rounds_to(test.accuracy, 0.9)", "area(test.loss)"])
def test_choosing_by_other_rows_is_refused_before_anything_runs(given, metric, tmp_path):
    with pytest.raises(ConfigError, match="looks better than it is"):
        searched(given, space=RATES, metric=metric)
    assert not (tmp_path / "runs").exists()


def test_a_reading_of_a_validation_curve_may_choose(given):
    found = searched(given, space=RATES, metric="area(validation.loss)")
    assert found.best.value == min(trial.value for trial in found.trials)


def test_without_validation_rows_nothing_can_be_chosen(given):
    data = {**given["data"], "split": {"validation": 0.0, "test": 0.1}}
    with pytest.raises(ConfigError, match="nobody keeps validation rows"):
        searched({**given, "data": data}, space=RATES)


@pytest.mark.parametrize(("search", "message"), [
    ({}, "no .search. table"), ({"space": {}}, "is empty"), ({"space": {"rounds": []}}, "has no values"),
    ({"space": {"local.learning_rate": {"low": 0.1, "high": 0.5}}}, "a grid cannot try all"),
    ({"space": {"rounds": {"low": 5, "high": 1}}, "method": "tpe"}, "are no range"),
    ({"space": {"rounds": {"low": 0, "high": 1, "log": True}}, "method": "tpe"}, "over magnitudes"),
    ({"space": RATES, "methd": "tpe"}, "methd"), ({"space": RATES, "trials": 0}, "trials")])
def test_a_wrong_table_is_refused_with_its_key(search, message):
    with pytest.raises(ConfigError, match=message):
        read_search(search, "file.toml")


def test_nested_tables_are_dotted_keys():
    local = {"epochs": [1, 5], "learning_rate": {"low": 1, "high": 9}}
    found = read_search({"method": "tpe", "space": {"local": local}}, "file.toml")
    assert list(found.space) == ["local.epochs", "local.learning_rate"]
    assert found.space["local.learning_rate"].whole


def test_a_key_that_is_wrong_is_found_before_the_first_run(given, tmp_path):
    with pytest.raises(ConfigError, match="learnin_rate"):
        searched(given, space={"local.learning_rate": [0.5], "local.learnin_rate": [0.1]})
    assert not list(tmp_path.glob("runs/*/*"))


def test_finished_trials_are_not_run_again(given, monkeypatch):
    first = searched(given, space=RATES)

    def never(*_, **__):
        raise AssertionError("a finished run was run again")

    monkeypatch.setattr(sweep, "run_config", never)
    again = searched(given, space=RATES)
    assert again.table.rows == first.table.rows


class TestProposals:
    """Trials that Optuna proposes."""

    optuna = pytest.importorskip("optuna")
    SPACE = {"local.learning_rate": {"low": 0.001, "high": 1.0, "log": True}, "local.epochs": {"low": 1, "high": 3},
             "aggregator": ["mean", {"name": "trimmed-mean", "trim": 0.1}]}

    def test_proposals_lie_in_the_space_and_come_again(self, given):
        how = {"method": "tpe", "trials": 6, "space": self.SPACE, "metric": "validation.loss"}
        first = searched(given, **how)
        for trial in first.trials:
            assert 0.001 <= trial.settings["local.learning_rate"] <= 1.0
            assert trial.settings["local.epochs"] in (1, 2, 3)
        again = searched(given, **how)
        assert [trial.settings for trial in again.trials] == [trial.settings for trial in first.trials]
        assert again.best.value == min(trial.value for trial in first.trials)

    def test_a_search_that_is_stopped_goes_on_to_the_same_end(self, given, monkeypatch):
        whole = searched({**given, "name": "whole"}, method="tpe", trials=6, space=self.SPACE)
        real, calls = sweep.run_config, []

        def stop(config, **options):
            calls.append(config)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return real(config, **options)

        monkeypatch.setattr(sweep, "run_config", stop)
        with pytest.raises(KeyboardInterrupt):
            searched(given, method="tpe", trials=6, space=self.SPACE)
        found = searched(given, method="tpe", trials=6, space=self.SPACE)
        assert found.table.rows == whole.table.rows
        assert len(calls) == 7

    def test_more_trials_keep_those_that_are_done(self, given, monkeypatch):
        searched(given, method="tpe", trials=12, space=self.SPACE)
        real, calls = sweep.run_config, []
        monkeypatch.setattr(sweep, "run_config", lambda config, **options: calls.append(1) or real(config, **options))
        searched(given, method="tpe", trials=12, space=self.SPACE)
        assert not calls

    def test_without_optuna_the_extra_is_named(self, given, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(MissingExtra, match="search"):
            searched(given, method="tpe", space=self.SPACE)


def test_runs_that_diverge_cannot_win(given):
    first = searched(given, space=RATES, metric="validation.loss")
    path = first.best.results[0].folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["metrics"]["validation.loss"] = None
    path.write_text(json.dumps(summary))
    again = searched(given, space=RATES, metric="validation.loss")
    assert again.best.number + 1 == first.table.rows[1]["trial"]
    assert again.table.rows[-1]["validation.loss"] is None
    assert again.table.rows[-1]["trial"] == first.best.number + 1


def test_a_run_with_a_search_table_is_sent_to_the_search(given):
    with pytest.raises(ConfigError, match=r"tequio\.search"):
        tequio.run({**given, "search": {"space": RATES}})
    assert tequio.search({**given, "search": {"space": RATES}}).best.value is not None
