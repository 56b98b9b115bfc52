"""Tasks in a worker process with limits: the same numbers, one worker a run, and no more of them than allowed."""

from __future__ import annotations

import os
import select
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tequio
from tequio import registry
from tequio.engines.network.bounded import Bounded, InProcess
from tequio.engines.network.telemetry import Telemetry
from tequio.errors import ConfigError, EngineError
from tequio.federation.exchange import Order
from tequio.federation.payload import encode

PLUGIN = str(Path(__file__).parents[1] / "parties.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")


@pytest.fixture(scope="module")
def tasks():
    registry.load_plugins([PLUGIN])
    return sys.modules["tequio_plugin_parties"]


@pytest.fixture
def runner(tasks, tmp_path):
    runner = Bounded(tmp_path / "workers", Telemetry(), gigabytes=2, seconds=60, workers=2)
    yield runner
    runner.close()


CONFIGS = {
    "an mlp": {"learner": {"name": "mlp"}},
    "local-dp": {"learner": {"name": "logistic"}, "stages": [{"name": "local-dp", "noise": 1.0}]},
    "secure-sum": {"learner": {"name": "logistic"}, "stages": [{"name": "secure-sum"}]},
    "k-means": {"algorithm": {"name": "kmeans"}},
    "trees": {"algorithm": {"name": "icdta4fl"}, "learner": {"name": "cart"}},
}


@pytest.mark.parametrize("keys", CONFIGS.values(), ids=CONFIGS)
def test_a_run_gives_the_same_bits(keys, runner, tmp_path, monkeypatch):
    def run(name):
        return tequio.run({"data": {"name": "iris", "partition": {"name": "iid", "parties": 3}}, "rounds": 2,
                           "engine": {"name": "local", "workers": 1}, "baselines": [],
                           "output": {"folder": str(tmp_path / name)}, **keys}).summary

    def bounded(order, population, states):
        return runner.run("run", order, population, states)

    here = run("here")
    monkeypatch.setattr("tequio.engines.inline.execute", bounded)
    there = run("there")
    assert {key: there[key] for key in ("model_sha256", "metrics", "bytes_up", "bytes_down")} == {
        key: here[key] for key in ("model_sha256", "metrics", "bytes_up", "bytes_down")}


def test_replies_and_states_are_those_of_one_process_under_a_seed_of_the_task(runner, tasks):
    population, seed = tasks.population(3), 2**64 - 1
    order = Order(7, "engine test.count", (0, 2), 4, {})
    states = [{2: {"calls": 5, "kept": np.arange(3)}} for _ in range(2)]
    here, there = (each.run("run", order, population, own, seed)
                   for each, own in zip((InProcess(), runner), states, strict=True))
    assert [encode(reply.payload) for reply in there.replies] == [encode(reply.payload) for reply in here.replies]
    assert {party: encode(state) for party, state in states[1].items()} == {
        party: encode(state) for party, state in states[0].items()}
    assert states[1][2]["calls"] == 6
    plain = runner.run("run", order, population, {2: {"calls": 5}})
    assert encode(plain.replies[0].payload) != encode(there.replies[0].payload)


def test_rows_stay_split_as_they_are_at_the_party(runner, tasks):
    """A party splits its rows before it draws from a seed of its own: the worker must not split them anew."""
    population = tasks.population(1, rows=200)
    population = replace(population, split=replace(population.split, test=0.5))
    own = population.view(0).train.features.sum(axis=0)
    secret = replace(population, seed=99)
    assert not np.array_equal(replace(secret, _views=type(secret._views)()).view(0).train.features.sum(axis=0), own)
    [reply] = runner.run("run", Order(1, "engine test.sum", (0,), 1, {}), secret, {}).replies
    assert np.array_equal(reply.payload["sum"], own)


def test_large_models_come_and_go_whole(runner, tasks):
    model = np.random.default_rng(0).random((1000, 3), dtype=np.float32)
    population = tasks.population(1)
    for rows in (1000, 10, 1000):
        outcome = runner.run("run", Order(1, "engine test.sum", (0,), 1, {"shift": model[:rows]}), population, {})
        assert np.array_equal(outcome.replies[0].payload["sum"], model[:rows] + np.float32([18, 22, 26]))


def test_a_run_has_one_worker_and_too_many_make_room(runner, tasks):
    population, order = tasks.population(1), Order(1, "engine test.nothing", (0,), 1, {})

    def worker_of(run):
        assert runner.run(run, order, population, {}).failures == ()
        return next(worker._process.pid for worker in runner._workers if worker.run == run)

    first, second = worker_of("first"), worker_of("second")
    assert worker_of("first") == first
    assert worker_of("second") == second
    idle = os.pidfd_open(first)
    worker_of("third")  # the first was idle for longest
    assert {worker.run for worker in runner._workers} == {"second", "third"}
    assert select.select([idle], [], [], 30)[0]
    os.close(idle)
    assert worker_of("second") == second
    runner.close("second")
    assert {worker.run for worker in runner._workers} == {"third"}


def test_other_rows_of_a_run_get_another_worker(runner, tasks):
    """A link that broke brings the same announcement again, or one that prepares rows otherwise."""
    order = Order(1, "engine test.sum", (0,), 1, {})
    four, eight = (runner.run("run", order, tasks.population(1, rows=rows), {}) for rows in (4, 8))
    assert four.replies[0].payload["sum"].tolist() == [18, 22, 26]
    assert eight.replies[0].payload["sum"].tolist() == [84, 92, 100]


def test_no_handle_of_a_worker_is_left_open(runner, tasks):
    before = len(os.listdir("/proc/self/fd"))
    for task in ("engine test.nothing", "engine test.die"):
        runner.run("run", Order(1, task, (0,), 1, {}), tasks.population(1), {})
        runner.close()
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_worker_that_cannot_start_is_the_partys_own_trouble(tasks, tmp_path):
    blocked = tmp_path / "workers"
    blocked.write_text("not a folder")
    runner = Bounded(blocked, Telemetry(), gigabytes=1, seconds=1)
    with pytest.raises(EngineError, match=r"a worker process for tasks could not be started"):
        runner.run("run", Order(1, "engine test.nothing", (0,), 1, {}), tasks.population(1), {})
    assert runner._workers == []


def test_limits_are_refused_where_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match=r"Linux only; set maximum_task_gigabytes = 0 and maximum_task_seconds = 0"):
        Bounded(tmp_path, Telemetry(), gigabytes=1, seconds=1)
