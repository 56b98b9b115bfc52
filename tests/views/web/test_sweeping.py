"""A sweep from the form: what was typed as a `[sweep]` table, mistakes at their field, and runs like any others."""

import subprocess
from contextlib import suppress

import pytest

from tequio.experiments.config.complete import config_hash, load_config
from tequio.experiments.config.toml import read_toml
from tequio.experiments.sweep import sweep_cells
from tequio.views.web.guard import Settings
from tequio.views.web.processes import SWEEP, SWEEP_LOG
from tequio.views.web.submission import MOST_RUNS, SEEDS_FIELD, VALUES_FIELD, read_submission

from .conftest import client_of, form_token

FORM = {"name": "toy", "rounds": "2", "data.name": "iris", "data.prepare": '["standardise"]',
        "data.partition.parties": "3", "learner.name": "sgd-classifier", "engine.workers": "1"}
VALUES = 'local.epochs = [1, 2]\n"algorithm.name" = ["fedavg", "fednova"]'


def test_lists_and_seeds_are_the_sweep_of_a_config_file():
    found = read_submission({**FORM, SEEDS_FIELD: "3", VALUES_FIELD: VALUES})
    assert found.errors == {}
    assert found.sweep["sweep"] == {"local.epochs": [1, 2], "algorithm.name": ["fedavg", "fednova"], "seeds": [0, 1, 2]}
    assert found.runs == 12
    assert read_submission({**FORM, SEEDS_FIELD: "[4, 9]"}).sweep["sweep"] == {"seeds": [4, 9]}


def test_nothing_typed_there_is_a_single_run():
    found = read_submission(FORM)
    assert (found.sweep, found.runs) == ({}, 1)
    assert found.config is not None


@pytest.mark.parametrize(("field", "text", "words"), [
    (SEEDS_FIELD, "0", "give how many, such as 5"),
    (SEEDS_FIELD, "some", "give how many, such as 5"),
    (SEEDS_FIELD, "[1, -1]", "give how many, such as 5"),
    (SEEDS_FIELD, "true", "give how many, such as 5"),
    (VALUES_FIELD, "local.epochs = 1, 2", "not valid TOML"),
    (VALUES_FIELD, "local.epochs = 5", "'local.epochs' is not a list of values"),
    (VALUES_FIELD, "local.learning_rate = [0.1, -1]", "greater than 0"),
    (VALUES_FIELD, "local.epoch = [1, 2]", "epoch"),
    (VALUES_FIELD, "output.folder = ['/etc']", "'output.folder' cannot be set here"),
    (VALUES_FIELD, "plugins = [['evil.py']]", "'plugins' cannot be set here"),
    (VALUES_FIELD, "seeds = [1]", "'seeds' cannot be set here"),
    (VALUES_FIELD, f"rounds = [{', '.join(map(str, range(1, MOST_RUNS + 2)))}]", "at most 500"),
])
def test_mistakes_are_told_at_their_field(field, text, words):
    found = read_submission({**FORM, field: text})
    assert found.config is None
    assert words in found.errors[field]


def test_data_of_a_sweep_that_would_have_to_be_downloaded_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TEQUIO_CACHE", str(tmp_path))
    monkeypatch.delenv("TEQUIO_DATA", raising=False)
    found = read_submission({"data.name": "iris", VALUES_FIELD: 'data.name = ["wine", "adult"]'})
    assert "tequio data fetch adult" in found.errors["data.name"]


@pytest.mark.network
def test_a_sweep_from_the_form_makes_the_runs_of_the_command_line(tmp_path):
    client = client_of(Settings(tmp_path / "runs"), follow_redirects=False)
    answer = client.post("/start", data={"form_token": form_token(client), **FORM, SEEDS_FIELD: "2",
                                         VALUES_FIELD: "local.epochs = [1, 2]"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?name=toy-sweep&started=4")
    assert "A sweep of 4 runs was started" in client.get(answer.headers["location"]).text
    folder = tmp_path / "runs" / "toy-sweep"
    child = client.app.state.dashboard.processes._started[folder]
    with suppress(subprocess.TimeoutExpired):
        child.wait(60)
    assert child.returncode == 0, (folder / SWEEP_LOG).read_text()
    wanted = {config_hash(cell.config) for cell in sweep_cells(read_toml(folder / SWEEP))}
    made = {config_hash(load_config(path)) for path in folder.glob("*/config.toml")}
    assert made == wanted
    entries = client.app.state.dashboard.index.entries()
    assert sorted((entry.status, entry.seed) for entry in entries) == [("finished", 0)] * 2 + [("finished", 1)] * 2
    again = client.post("/start", data={"form_token": form_token(client), **FORM, SEEDS_FIELD: "2",
                                        VALUES_FIELD: "local.epochs = [1, 2]"})
    assert again.status_code == 303  # nothing is left to do, and nothing is made anew
    client.app.state.dashboard.processes._started[folder].wait(60)
    assert len(client.app.state.dashboard.index.entries()) == 4
