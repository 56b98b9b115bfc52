"""Aggregators between parties and coordinator, as processes: the simulation's numbers, also when one is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tequio
from tequio.cli.main import make_app
from tequio.engines.network.telemetry import AuditLog, Telemetry
from tequio.errors import QuorumError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import serving
from tequio.experiments.deploying.remote import run_with_parties

from .fleet import Parties, enrol, free_port, make_coordinator, until

pytestmark = pytest.mark.network

CONFIG = """
name = "tree"
seed = 5
rounds = 2
topology = {{name = "hierarchical", aggregators = 2}}
plugins = ["{plugin}"]
[data]
name = "digits"
partition = {{name = "dirichlet", parties = 5}}
one_class = "allow"
[learner]
name = "mlp"
hidden = [1200]  # long enough to go in pieces
[[stages]]
name = "test gate"
folder = "{gates}"
[[stages]]
name = "group-sum"
"""


class Tree:
    """Five parties, of which those of even number dial one aggregator and the others another."""

    def __init__(self, folder: Path) -> None:
        self.gates, self.config = folder / "gates", folder / "tree.toml"
        self.gates.mkdir()
        self.config.write_text(CONFIG.format(plugin=Path(__file__).parent / "gates.py", gates=self.gates))
        self.home = make_coordinator(folder / "coordinator")
        names = ("even", "odd")
        self.folders = {name: enrol(self.home, folder / name, name, {}, aggregator=f"localhost:{free_port()}").folder
                        for name in names}
        homes = [enrol(self.home, folder / str(party), str(party), {"config": str(self.config)},
                       via=names[party % 2]).folder for party in range(5)]
        result = tequio.run(self.config, engine={"name": "local", "workers": 1}, output={"folder": str(folder / "own")})
        self.expected = result.summary["model_sha256"]
        self.aggregators = {name: self.start(name) for name in names}
        self.parties = Parties(homes)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(tequio.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tequio", "aggregator", "run", "--home", str(self.folders[name])]
        with (self.folders[name] / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self, name: str) -> None:
        self.aggregators[name].send_signal(signal.SIGKILL)
        self.aggregators[name].wait()

    def loaded(self, out: Path, *settings: str):
        return load_config(self.config, [f"output.folder={out}", "engine.name=network",
                                         f"engine.home={self.home.folder}", *settings])

    def close(self) -> None:
        self.parties.close()
        for name in self.aggregators:
            self.kill(name)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    made = Tree(tmp_path_factory.mktemp("tree"))
    telemetry = Telemetry(AuditLog(made.home.folder / "audit.jsonl"))
    with serving(made.home.folder, telemetry) as service:
        made.service = service
        yield made
        made.close()


def test_aggregators_pass_on_one_mean_each_and_the_numbers_are_those_of_a_simulation(tree, tmp_path):
    result = run_with_parties(tree.loaded(tmp_path), tree.service)
    assert result.summary["model_sha256"] == tree.expected
    facts = [event["group_sum"] for event in result.events if event["event"] == "aggregation"]
    assert [(fact["groups"], fact["summed"], fact["arrived"]) for fact in facts] == [(2, 5, 2)] * 2
    said = CliRunner().invoke(make_app(), ["coordinator", "status", "--home", str(tree.home.folder)]).stdout
    assert re.search(r"^even +aggregator at localhost:\d+, connected with 3 parties$", said, re.MULTILINE)
    assert re.search(r"^3 +connected through odd for \d+ s, ", said, re.MULTILINE)


def test_an_aggregator_that_is_killed_in_a_round_comes_back_and_nothing_is_lost(tree, tmp_path):
    hold = tree.gates / "hold-3-2"
    hold.touch()
    (tree.gates / "reached-3-2").unlink(missing_ok=True)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_with_parties, tree.loaded(tmp_path), tree.service)
        until((tree.gates / "reached-3-2").exists, "round 2 at party 3")
        tree.kill("odd")
        until(lambda: "3" not in tree.service.hub.present(), "the loss of the odd parties")
        hold.unlink()
        tree.aggregators["odd"] = tree.start("odd")
        assert run.result().summary["model_sha256"] == tree.expected


def test_without_its_aggregator_a_group_is_away_and_the_quorum_decides(tree, tmp_path):
    until(lambda: len(tree.service.hub.present()) == 5, "everybody's return")
    hold = tree.gates / "hold-1-2"
    hold.touch()
    (tree.gates / "reached-1-2").unlink(missing_ok=True)
    settings = ("engine.absence=1", "rules.on_failure=continue", "rules.quorum=0.8")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_with_parties, tree.loaded(tmp_path, *settings), tree.service)
        until((tree.gates / "reached-1-2").exists, "round 2 at party 1")
        tree.kill("odd")
        hold.unlink()
        with pytest.raises(QuorumError, match="only 3 of 5 parties answered"):
            run.result()
    tree.aggregators["odd"] = tree.start("odd")
    folder = next(path for path in tmp_path.iterdir())
    resumed = run_with_parties(tree.loaded(tmp_path, *settings[1:]), tree.service, folder=folder)
    assert resumed.summary["model_sha256"] == tree.expected
