import json
import os
import subprocess
import sys

import pytest

NEEDED = {"run", "rounds", "metrics", "seconds", "bytes_up", "bytes_down", "model_sha256"}


def flat(text):
    """What a panel says, without its frame."""
    return " ".join(text.replace("│", " ").split())


def test_json_is_one_document_and_nothing_else(toy, tequio):
    code, out, _ = tequio("run", toy, "--json", "--set", "algorithm.name=toy_talk")
    assert code == 0
    document = json.loads(out)
    assert document.keys() >= NEEDED
    assert document["rounds"] == 3
    assert document["metrics"]["test.rmse"] > 0
    assert len(document["model_sha256"]) == 64


def test_what_a_plugin_prints_goes_to_stderr_when_json_is_wanted(toy, tequio):
    _, out, err = tequio("run", toy, "--json", "--set", "algorithm.name=toy_talk")
    assert "talks on stdout" in err
    assert "on the descriptor too" in err
    assert "talks" not in out


def test_a_run_shows_a_table_the_folder_and_the_plot(toy, tequio):
    code, out, err = tequio("run", toy, "--set", "baselines=['alone','centralised']", "--out", "results")
    assert code == 0
    for word in ("fedavg", "alone", "centralised", "root of the mean squared error", "all rounds done"):
        assert word in out
    folder = next((toy.parent / "results").iterdir())
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert f"results/{folder.name}/plot.png" in out
    assert "toy: round 3 of 3  test rmse" in err


def test_quiet_says_nothing(toy, tequio):
    assert tequio("run", toy, "-q") == (0, "", "")


def test_options_are_short_for_settings(toy, tequio):
    _, out, _ = tequio("run", toy, "--json", "--seed", 5, "--workers", 1, "--engine", "local", "--out", "elsewhere",
                       "--set", "local.epochs=2")
    document = json.loads(out)
    config = (toy.parent / document["folder"] / "config.toml").read_text()
    assert document["folder"].startswith("elsewhere/")
    assert document["seed"] == 5
    assert "epochs = 2" in config


def test_a_run_is_resumed_with_and_without_its_config(toy, tequio, monkeypatch):
    whole = json.loads(tequio("run", toy, "--json", "--set", "algorithm={name='toy_stumble', killed_in=2}")[1])
    for words in (["run", "--resume", "last"], ["run", toy, "--resume", "last", "--set",
                                               "algorithm={name='toy_stumble', killed_in=2}"]):
        monkeypatch.setenv("TOY_INTERRUPT", "1")
        code, _, err = tequio("run", toy, "--set", "algorithm={name='toy_stumble', killed_in=2}")
        assert code == 130
        folder = err.strip().split("tequio run --resume ")[1]
        assert (toy.parent / folder / "checkpoint").exists()
        monkeypatch.delenv("TOY_INTERRUPT")
        code, out, _ = tequio(*words, "--json")
        assert code == 0
        assert json.loads(out)["model_sha256"] == whole["model_sha256"]
        assert json.loads(out)["folder"] == folder


def test_a_stopped_sweep_goes_on_with_the_same_command(toy, tequio, monkeypatch):
    toy.write_text(toy.read_text() + "\n[sweep]\nseeds = [0, 1]\n")
    monkeypatch.setenv("TOY_INTERRUPT", "1")
    words = ["run", toy, "--json", "--set", "algorithm={name='toy_stumble', killed_in=2}"]
    code, _, err = tequio(*words)
    assert code == 130
    assert "type the same command again" in err
    monkeypatch.delenv("TOY_INTERRUPT")
    assert len(json.loads(tequio(*words)[1])["runs"]) == 2


def test_a_sweep_shows_mean_and_deviation_and_keeps_finished_cells(toy, tequio):
    toy.write_text(toy.read_text() + "\n[sweep]\nseeds = [0, 1]\n\"local.learning_rate\" = [0.5, 1.0]\n")
    code, out, err = tequio("run", toy)
    assert code == 0
    assert "mean ± sd over seeds" in out
    assert "±" in out.split("seeds")[2]
    assert "cell 4 of 4: learning_rate=1.0-seed=1" in err
    code, out, err = tequio("run", toy, "--json")
    assert err.count("finished before") == 4
    assert len(json.loads(out)["runs"]) == 4
    assert json.loads(out)["table"][0]["seeds"] == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(toy, workers):
    # As from a terminal: the signal goes to the whole group, the workers included, at a known round.
    command = [sys.executable, "-m", "tequio", "run", "toy.toml", "--json", "--workers", str(workers), "--set",
               "algorithm={name='toy_stumble', killed_in=2}"]
    done = subprocess.run(command, env={**os.environ, "TOY_INTERRUPT": "group"}, capture_output=True, text=True,
                          cwd=toy.parent, start_new_session=True, check=False)
    assert done.returncode == 130
    assert done.stdout == ""
    assert "To go on, type: tequio run --resume runs/toy-" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("words", "message"), [
    (["run"], "there is nothing to run"),
    (["run", "nowhere.toml"], "there is no file 'nowhere.toml'"),
    (["run", "--resume", "nothing"], "'nothing' is not a run folder"),
    (["run", "toy.toml", "--set", "rounds"], "'rounds' is not a setting"),
    (["run", "toy.toml", "--engine", "teleport"], "there is no engine called 'teleport'"),
])
def test_wrong_requests_are_explained(toy, tequio, words, message):
    code, out, err = tequio(*words)
    assert code in (2, 8)
    assert out == ""
    assert message in flat(err)
