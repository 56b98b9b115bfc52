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
from tequio.experiments.config import load_config
from tequio.experiments.runner import run_config
from tequio.experiments.scenario import make_engine
from tequio.federation.federation import Federation

PLUGIN = str(Path(__file__).with_name("parties.py"))
SMALL = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
DEALT = """
name = "{name}"
seed = 3
rounds = 3
[data]
name = "digits"
one_class = "allow"
partition = {{name = "dirichlet", parties = 10}}
"""
CONFIGS = {
    "fedavg": '[learner]\nname = "mlp"\nhidden = [16]\n',
    "scaffold": '[algorithm]\nname = "scaffold"\n',
    "icdta4fl": '[algorithm]\nname = "icdta4fl"\n[learner]\nname = "cart"\ndepth = 3\n',
    "kmeans": '[algorithm]\nname = "kmeans"\n[learner]\nname = "kmeans"\nclusters = 10\n',
}


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=SMALL)
    made.add_node(**SMALL)
    yield made
    made.shutdown()


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
    return tequio.run(file, engine={"name": "local", "workers": 2}, output={"folder": str(folder)}).summary


@pytest.mark.network
@pytest.mark.parametrize("name", CONFIGS)
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
    assert len(set(killed)) == 3
    assert there.summary["model_sha256"] == here(file, tmp_path)["model_sha256"]
