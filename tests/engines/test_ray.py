"""The ray engine on a real cluster of two nodes: the numbers of one process, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import tequio
from tequio import registry
from tequio.engines.ray_engine import Ray
from tequio.errors import EngineError, MissingExtra
from tequio.experiments.config.complete import load_config
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.scenario import make_engine
from tequio.federation.federation import Federation

PLUGIN = str(Path(__file__).with_name("parties.py"))
SMALL = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
DEALT = """
name = "{name}"
seed = 3
rounds = 2
[data]
name = "digits"
one_class = "allow"
partition = {{name = "dirichlet", parties = 10}}
"""
CONFIGS = {
    "fedavg": '[learner]\nname = "mlp"\nhidden = [16]\n',
    "scaffold": '[algorithm]\nname = "scaffold"\n',
    "icdta4fl": '[algorithm]\nname = "icdta4fl"\n[learner]\nname = "cart"\ndepth = 3\n',
    "kmeans": '[algorithm]\nname = "kmeans"\nclusters = 10\n',
}


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    made = started()
    yield made
    made.shutdown()


def started(tries=3):
    """A cluster of two nodes. Ray gives a node 30 seconds, which a machine with a cold disk may not keep."""
    from ray.cluster_utils import Cluster

    made = Cluster(shutdown_at_exit=True)
    try:
        for _ in range(2):
            made.add_node(**SMALL)
    except Exception:
        made.shutdown()
        if tries == 1:
            raise
        return started(tries - 1)
    return made


@pytest.fixture(scope="module")
def tasks():
    registry.load_plugins([PLUGIN])
    return sys.modules["tequio_plugin_parties"]


@pytest.fixture
def engine(cluster, tasks):
    with closing(Ray(cluster.address).create()) as made:
        made.open(tasks.population(10))
        yield made


def write(folder, name):
    file = folder / f"{name}.toml"
    file.write_text(DEALT.format(name=name) + CONFIGS[name])
    return file


def here(file, folder):
    return tequio.run(file, engine={"name": "local", "workers": 1}, output={"folder": str(folder)}).summary


@pytest.mark.network
@pytest.mark.parametrize("name", ["fedavg", "icdta4fl", "kmeans"])
def test_two_nodes_give_what_this_machine_gives(name, cluster, tmp_path):
    file = write(tmp_path, name)
    there = tequio.run(file, engine={"name": "ray", "address": cluster.address}, output={"folder": str(tmp_path)})
    assert there.summary["model_sha256"] == here(file, tmp_path)["model_sha256"]


@pytest.mark.network
def test_a_run_goes_on_to_the_same_numbers_when_workers_are_killed(cluster, tmp_path):
    file = write(tmp_path, "scaffold")
    config = load_config(file, ["engine.name=ray", f"engine.address={cluster.address}", f"output.folder={tmp_path}"])
    engine, killed = make_engine(config), []

    def kill(kind, facts):
        if kind == "round":
            alive = [worker.process for worker in engine._workers if worker.process]
            killed.append(alive[0])
            os.kill(alive[0], signal.SIGKILL)

    there = run_config(config, listen=kill, engine=engine)
    assert len(set(killed)) == 2
    assert there.summary["model_sha256"] == here(file, tmp_path)["model_sha256"]


@pytest.mark.network
def test_both_nodes_work_and_replies_come_in_party_order(engine, tasks):
    federation = Federation(tasks.population(10), engine, seed=3)
    while not all(worker.process for worker in engine._workers):
        engine._wait_for_a_worker()
    nodes = {reply.payload["node"] for reply in federation.ask(federation.everyone(), tasks.where)}
    assert len(nodes) == 2
    shift = {"shift": np.ones(3, np.float32), "ballast": np.zeros(100_000)}  # large enough for the object store
    replies = federation.ask([7, 0, 9], tasks.column_sum, shift, settings=tasks.Shift(add=1))
    # party p holds rows 4p..4p+3 of a table that counts up: column c sums to 4 * (12p + c) + 18
    expected = [[4 * (12 * party + column) + 18 + 2 for column in range(3)] for party in (0, 7, 9)]
    assert [reply.payload["sum"].tolist() for reply in replies] == expected


@pytest.mark.network
def test_orders_of_a_dead_worker_are_given_to_another_with_the_states_from_before(engine, tasks, tmp_path):
    engine.restore({4: {"touched": 6}})
    federation = Federation(tasks.population(10), engine, seed=3)
    replies = federation.ask(federation.everyone(), tasks.die_once, settings=tasks.Mark(mark=str(tmp_path / "mark")))
    assert replies.parties.tolist() == list(range(10))
    assert replies.values("touched").tolist() == [1, 1, 1, 1, 7, 1, 1, 1, 1, 1]
    assert engine.states()[4] == {"touched": 7}


@pytest.mark.network
def test_a_task_that_kills_every_worker_is_named_in_the_end(engine, tasks):
    with pytest.raises(EngineError, match=r"3 workers died while they ran task 'engine test.die' of round 0 for part"):
        Federation(tasks.population(10), engine).ask([1], tasks.die)


@pytest.mark.network
def test_a_full_cluster_is_told_apart_from_a_slow_one(cluster, engine, tasks):
    while not all(worker.process for worker in engine._workers):
        engine._wait_for_a_worker()
    second = Ray(cluster.address, wait=0.2).create()
    with pytest.raises(EngineError, match=r"had no core free for a worker within 0.2 s; start more nodes"):
        second.open(tasks.population(2))


@pytest.mark.network
def test_a_worker_that_lacks_a_plugin_says_so(cluster, tasks, monkeypatch):
    monkeypatch.setattr(registry, "_loaded_plugins", ["no/such/plugin.py"])
    with pytest.raises(EngineError, match=r"cannot be made ready: .*no/such/plugin.py.*; install the same tequio"):
        Ray(cluster.address).create().open(tasks.population(2))


@pytest.mark.network
def test_work_moves_to_the_nodes_that_are_left(cluster, tasks):
    # The last on this cluster, which takes a while to strike the node off its list.
    third = cluster.add_node(**SMALL)
    with closing(Ray(cluster.address, workers=3).create()) as engine:
        engine.open(tasks.population(30))
        federation = Federation(tasks.population(30), engine)
        federation.ask(federation.everyone(), tasks.count_calls)
        cluster.remove_node(third, allow_graceful=False)
        replies = federation.ask(federation.everyone(), tasks.count_calls)
        assert replies.values("calls").tolist() == [2] * 30


@pytest.mark.network
def test_one_command_starts_a_cluster_of_its_own_and_stops_it(tmp_path):
    pytest.importorskip("ray")
    file = write(tmp_path, "kmeans")
    command = [sys.executable, "-m", "tequio", "run", str(file), "--engine", "ray", "--workers", "1", "--json",
               "--quiet", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["model_sha256"] == here(file, tmp_path)["model_sha256"]
    assert done.stderr == ""


LISTENING = """
import json, psutil
from tequio.engines.ray_engine import connect, require_ray
connect("", 1)
found = [process for process in psutil.Process().children(recursive=True)] + [psutil.Process()]
print(json.dumps([connection.laddr.ip for process in found for connection in process.net_connections("tcp")
                  if connection.status == psutil.CONN_LISTEN]))
require_ray().shutdown()
"""


def test_only_this_machine_can_connect_to_a_cluster_that_is_started_for_a_run():
    environment = {**os.environ, "PYTHONPATH": str(Path(tequio.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", LISTENING], stdout=subprocess.PIPE, text=True, env=environment,
                          check=True)
    addresses = json.loads(done.stdout.splitlines()[-1])
    assert len(addresses) >= 4
    assert {address.removeprefix("::ffff:") for address in addresses} <= {"127.0.0.1", "::1"}


def test_ray_is_asked_for_by_name_when_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"ray"):
        Ray().create()
