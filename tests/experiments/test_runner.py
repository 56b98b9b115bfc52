import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import tequio
from tequio.errors import ConfigError, PartyError
from tequio.experiments.api import resume_run
from tequio.experiments.config.complete import complete, with_key
from tequio.experiments.running.runner import run_config

NO_CLOCK = ("seconds",)


def settings(given, **keys):
    for key, value in keys.items():
        given = with_key(given, key.replace("__", "."), value)
    return complete(given)


def numbers(result):
    """All metrics except for times."""
    return [{name: value for name, value in row.items() if name not in NO_CLOCK} for row in result.metrics]


def test_rounds_give_the_numbers_worked_out_by_hand(given):
    # Half of the way to the weighted mean 26/6 in each round; the loss is that of the model a party received.
    result = run_config(settings(given))
    assert result.model["mean"] == pytest.approx([26 / 6 * 0.75], abs=1e-12)
    first, second = result.metrics["train.loss"]
    assert first == pytest.approx((1 + 4 + 9 + 16 + 36 + 100) / 6)
    half = 26 / 12
    assert second == pytest.approx(sum((value - half) ** 2 for value in (1, 2, 3, 4, 6, 10)) / 6)
    assert result.summary["rounds"] == 2
    assert result.summary["stopped"] == "rounds"
    assert result.summary["parties"] == 3
    assert result.summary["messages"] == 2 * 3 * 2


def test_a_party_may_train_in_its_own_way(given):
    result = run_config(settings(given, rounds=1, overrides={"caro": {"local": {"learning_rate": 0.1}}}))
    assert result.model["mean"] == pytest.approx([(3 * 1.0 + 2 * 2.5 + 1 * 1.0) / 6])


def test_the_run_folder_holds_everything(given):
    config = settings(given, data__copies=10, data__split={"validation": 0.2, "test": 0.2}, data__test=0.2)
    result = run_config(config)
    names = {path.name for path in result.folder.iterdir()}
    assert names == {"config.toml", "events.jsonl", "metrics.csv", "participation.csv", "parties.csv",
                     "model", "model.safetensors", "environment.json", "checkpoint", "summary.json"}
    assert result.folder.name.startswith("toy-2")
    assert result.folder.name.endswith(result.summary["config_hash"][:8])
    assert result.config == config
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] in ("start", "round", "stop")] == [
        "start", "round", "round", "stop"]
    assert result.parties["party"] == ["ana", "beto", "caro"]
    wanted = {"test.rmse", "validation.rmse", "parties.rmse.mean", "parties.rmse.sd", "parties.rmse.worst_decile",
              "parties.loss.pooled", "train.loss", "bytes_up", "bytes_down", "messages", "seconds"}
    assert wanted <= set(result.metrics.columns)
    assert result.summary["bytes_up"] == sum(result.metrics["bytes_up"])
    assert result.summary["evaluation_bytes_down"] > 0


def test_evaluation_leaves_the_bytes_of_training_alone(given):
    with_rows = {"data__copies": 10, "data__split": {"validation": 0.2, "test": 0.2}}
    often = run_config(settings(given, **with_rows))
    never = run_config(settings(given, **with_rows, evaluation__at=[]))
    assert often.summary["bytes_down"] == never.summary["bytes_down"]
    assert never.summary["evaluation_bytes_down"] == 0
    assert "validation.rmse" not in never.metrics.columns
    assert often.summary["model_sha256"] == never.summary["model_sha256"]


def test_the_last_round_is_always_evaluated(given):
    result = run_config(settings(given, rounds=5, evaluation__every=2, data__copies=10, data__test=0.2))
    assert [value is not None for value in result.metrics["test.rmse"]] == [False, True, False, True, True]


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(given):
    config = {"algorithm": {"name": "toy_stumble"}, "data__copies": 10, "data__test": 0.3}
    first, again = run_config(settings(given, **config)), run_config(settings(given, **config))
    other = run_config(settings(given, **config, seed=1))
    assert numbers(first) == numbers(again)
    assert first.summary["model_sha256"] == again.summary["model_sha256"] != other.summary["model_sha256"]


def test_one_worker_and_two_give_the_same_model(given):
    config = {"algorithm": {"name": "toy_stumble"}, "rounds": 3}
    alone, shared = (run_config(settings(given, **config, engine__workers=workers)) for workers in (1, 2))
    assert alone.summary["model_sha256"] == shared.summary["model_sha256"]
    assert numbers(alone) == numbers(shared)


@pytest.mark.parametrize("checkpoint_every", [0, 1, 2])
def test_a_run_that_was_interrupted_goes_on_to_the_same_numbers(given, monkeypatch, checkpoint_every):
    config = settings(given, rounds=6, data__copies=10, data__test=0.2, data__split={"validation": 0.2, "test": 0.2},
                      algorithm={"name": "toy_stumble", "killed_in": 4}, output__checkpoint_every=checkpoint_every)
    whole = run_config(config)
    monkeypatch.setenv("TOY_INTERRUPT", "1")
    seen = []
    with pytest.raises(KeyboardInterrupt):
        run_config(config, listen=lambda kind, facts: seen.append((kind, facts)))
    monkeypatch.delenv("TOY_INTERRUPT")
    folder = dict(seen)["start"]["folder"]
    resumed = resume_run(folder, None, {})
    assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]
    assert numbers(resumed) == numbers(whole)
    assert [row["round"] for row in resumed.metrics] == [1, 2, 3, 4, 5, 6]
    events = [json.loads(line) for line in (resumed.folder / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events if event["event"] == "round"] == [1, 2, 3, 4, 5, 6]
    for key in ("bytes_up", "bytes_down", "messages", "evaluation_bytes_up", "best_round", "metrics"):
        assert resumed.summary[key] == whole.summary[key]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on_to_the_same_model(given, toy, workers):
    algorithm = {"name": "toy_stumble", "killed_in": 3}
    whole = run_config(settings(given, rounds=5, algorithm=algorithm))
    command = [sys.executable, "-m", "tequio", "run", str(toy), "--json", "--out", "killed", "--workers", str(workers),
               "--set", "rounds=5", "--set", "algorithm={name='toy_stumble', killed_in=3}"]
    killed = subprocess.run(command, env={**os.environ, "TOY_KILL": "1"}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == b""
    resumed = subprocess.run([*command, "--resume", "last"], capture_output=True, check=True)
    document = json.loads(resumed.stdout)
    assert document["model_sha256"] == whole.summary["model_sha256"]
    assert document["rounds"] == 5


def test_a_run_stops_when_the_model_no_longer_moves(given):
    # The model moves 26/6 * 0.5^r in round r, which is below 0.01 from the ninth round on.
    result = run_config(settings(given, rounds=100, stop__tolerance=0.01))
    assert (result.summary["rounds"], result.summary["stopped"]) == (9, "convergence")
    assert result.metrics["update_norm"][-1] == pytest.approx(26 / 6 * 0.5 ** 9)


def test_an_interrupted_run_stops_in_the_same_round_as_a_whole_one(given, monkeypatch):
    # Half of the way in each round: after some fifty rounds a double cannot come any nearer.
    config = settings(given, rounds=200, data__copies=10, data__split={"validation": 0.3, "test": 0}, stop__patience=4,
                      algorithm={"name": "toy_stumble", "killed_in": 3})
    whole = run_config(config)
    assert whole.summary["stopped"] == "patience"
    assert 3 < whole.summary["rounds"] == whole.summary["best_round"] + 4
    monkeypatch.setenv("TOY_INTERRUPT", "1")
    seen = []
    with pytest.raises(KeyboardInterrupt):
        run_config(config, listen=lambda kind, facts: seen.append((kind, facts)))
    monkeypatch.delenv("TOY_INTERRUPT")
    resumed = resume_run(dict(seen)["start"]["folder"], None, {})
    for key in ("rounds", "stopped", "best_round", "model_sha256"):
        assert resumed.summary[key] == whole.summary[key]


def test_a_finished_run_may_be_given_more_rounds(given):
    short, long = run_config(settings(given)), run_config(settings(given, rounds=5))
    extended = resume_run(short.folder, None, {"rounds": 5})
    assert extended.summary["model_sha256"] == long.summary["model_sha256"]
    assert numbers(extended) == numbers(long)
    assert extended.config.rounds == 5


def test_resuming_a_finished_run_changes_nothing(given):
    result = run_config(settings(given))
    before = {path: path.read_bytes() for path in result.folder.rglob("*") if path.is_file()}
    assert resume_run(result.folder, None, {}).summary == result.summary
    assert {path: path.read_bytes() for path in result.folder.rglob("*") if path.is_file()} == before


def test_a_resumed_run_keeps_its_settings(given):
    result = run_config(settings(given))
    with pytest.raises(ConfigError, match="a resumed run keeps its settings, but 'local' is changed"):
        resume_run(result.folder, None, {"local.epochs": 2})


def test_a_task_that_fails_names_party_round_task_and_cause(given):
    config = settings(given, rounds=3, algorithm={"name": "toy_stumble", "party": "caro", "fails_in": 2})
    seen = []
    with pytest.raises(PartyError) as caught:
        run_config(config, listen=lambda kind, facts: seen.append((kind, facts)))
    error = caught.value
    assert (error.party, error.round, error.task) == ("caro", 2, "stumble")
    assert error.cause == "ValueError: the disk of this party is on fire"
    assert "stumble" in error.__notes__[0]
    assert [kind for kind, _ in seen][-2:] == ["failure", "error"]


def test_a_run_goes_on_without_a_failing_party_where_the_rules_say_so(given):
    config = settings(given, rounds=3, algorithm={"name": "toy_stumble", "party": "caro", "fails_in": 2},
                      rules__on_failure="continue")
    # Visits of the last round: three each by ana and beto, two by caro.
    assert int(run_config(config).model["visits"]) == 3 + 3 + 2


def test_the_api_takes_keywords_and_objects(given, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(40.0)[:, None]
    result = tequio.run(data=(rows, rows[:, 0] > 20), learner="sgd-classifier", rounds=1, seed=3,
                        engine={"workers": 1}, **{"data.partition.parties": 2})
    assert result.summary["parties"] == 2
    assert result.config.data.name == "given"
    assert result.config.seed == 3
