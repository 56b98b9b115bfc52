"""Runs that the dashboard starts are runs like any other: same numbers, stopped gracefully, resumed without a trace."""

import json
import subprocess
import time
from contextlib import suppress

import pytest

from tequio.errors import RunError
from tequio.experiments.config.complete import complete, load_config
from tequio.experiments.running.results import Result
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.store import EVENTS
from tequio.views.web.guard import Settings
from tequio.views.web.index import FAILED, FINISHED, RUNNING, STOPPED
from tequio.views.web.processes import Processes
from tequio.views.web.reading import read_batch

from .conftest import client_of, form_token

pytestmark = pytest.mark.network

GIVEN = {"name": "toy", "data": {"name": "iris", "prepare": ["standardise"],
                                 "partition": {"name": "iid", "parties": 3}},
         "learner": {"name": "sgd-classifier"}, "engine": {"workers": 1}}
FORM = {"name": "toy", "data.name": "iris", "data.prepare": '["standardise"]', "data.partition.parties": "3",
        "learner.name": "sgd-classifier", "engine.workers": "1"}


@pytest.fixture
def dashboard(tmp_path):
    return client_of(Settings(tmp_path / "runs"), follow_redirects=False)


def post(client, address, **fields):
    return client.post(address, data={"form_token": form_token(client), **fields})


def process_of(client, folder):
    return client.app.state.dashboard.processes._started[folder]


def status(client, id):
    dashboard = client.app.state.dashboard
    return dashboard.index.entry(id, dashboard.folder(id)).status


def wait_for_round(client, folder):
    """Until the run has written a round, or its process has ended."""
    deadline = time.monotonic() + 60
    while not read_batch(folder / EVENTS, 0).rounds and process_of(client, folder).poll() is None:
        assert time.monotonic() < deadline, "the run does not begin"
        with suppress(subprocess.TimeoutExpired):
            process_of(client, folder).wait(0.1)
    assert read_batch(folder / EVENTS, 0).rounds, (folder / "dashboard.log").read_text()


def test_a_run_from_the_form_gives_the_numbers_of_the_command_line(dashboard, tmp_path):
    answer = post(dashboard, "/start", **FORM, rounds="3")
    assert answer.status_code == 303
    id = answer.headers["location"].removeprefix("/run/")
    folder = tmp_path / "runs" / id
    assert process_of(dashboard, folder).wait(60) == 0
    assert status(dashboard, id) == FINISHED
    by_hand = run_config(complete({**GIVEN, "rounds": 3, "output": {"folder": str(tmp_path / "by hand")}}))
    assert Result(folder).summary["model_sha256"] == by_hand.summary["model_sha256"]
    assert Result(folder).summary["config_hash"] == by_hand.summary["config_hash"]


def test_stopping_keeps_what_was_done_and_going_on_gives_the_same_numbers(dashboard, tmp_path):
    id = post(dashboard, "/start", **FORM, rounds="100000").headers["location"].removeprefix("/run/")
    folder = tmp_path / "runs" / id
    wait_for_round(dashboard, folder)
    assert status(dashboard, id) == RUNNING
    assert "Stop" in dashboard.get(f"/run/{id}").text
    assert post(dashboard, f"/resume/{id}").status_code == 400
    assert post(dashboard, f"/stop/{id}").status_code == 303
    process_of(dashboard, folder).wait(60)
    assert status(dashboard, id) == STOPPED
    last = json.loads((folder / EVENTS).read_text().splitlines()[-1])
    assert last["kind"] == "KeyboardInterrupt"
    done = dashboard.app.state.dashboard.index.entry(id, folder).round
    assert post(dashboard, f"/resume/{id}", rounds=str(done + 2)).status_code == 303
    assert process_of(dashboard, folder).wait(60) == 0
    assert status(dashboard, id) == FINISHED
    at_once = run_config(complete({**GIVEN, "rounds": done + 2, "output": {"folder": str(tmp_path / "at once")}}))
    assert Result(folder).summary["model_sha256"] == at_once.summary["model_sha256"]


def test_a_run_that_another_dashboard_started_can_be_stopped_too(dashboard, tmp_path):
    id = post(dashboard, "/start", **FORM, rounds="100000").headers["location"].removeprefix("/run/")
    folder = tmp_path / "runs" / id
    wait_for_round(dashboard, folder)
    Processes().stop(folder)
    process_of(dashboard, folder).wait(60)
    assert status(dashboard, id) == STOPPED


def test_a_run_that_cannot_begin_says_why(dashboard, tmp_path):
    answer = post(dashboard, "/start", **{**FORM, "data.partition.parties": "3000"})
    id = answer.headers["location"].removeprefix("/run/")
    assert process_of(dashboard, tmp_path / "runs" / id).wait(60) != 0
    assert status(dashboard, id) == FAILED
    assert "What to do" in dashboard.get(f"/run/{id}").text


def test_a_process_that_is_no_run_is_left_alone(runs, client):
    with pytest.raises(RunError, match="not a process that can be stopped"):
        Processes().stop(runs / "trees")
    assert post(client, "/stop/trees").status_code == 400


@pytest.mark.parametrize("rounds", ["-1", "0", "many", "1e3", "9" * 30])
def test_going_on_needs_a_number_of_rounds(client, rounds):
    assert post(client, "/resume/trees", rounds=rounds).status_code == 400


def test_a_finished_run_goes_on_to_more_rounds(runs, made):
    processes = Processes()
    processes.resume(runs / "fedavg-0", 5)
    assert processes._started[runs / "fedavg-0"].wait(60) == 0
    assert Result(runs / "fedavg-0").summary["rounds"] == 5
    config = load_config(made["fedavg-0"] / "config.toml", ["rounds=5", f"output.folder={runs.parent}/whole"])
    assert run_config(config).summary["model_sha256"] == Result(runs / "fedavg-0").summary["model_sha256"]
