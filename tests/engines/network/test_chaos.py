"""Things that go wrong between organisations: the run completes, or stops clearly and resumes to the same numbers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tequio
from tequio.engines.network.telemetry import AuditLog, Telemetry, verify
from tequio.errors import QuorumError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import serving
from tequio.experiments.deploying.remote import run_with_parties

from .fleet import Parties, enrol, make_coordinator, until
from .proxy import Proxy

pytestmark = pytest.mark.network

CONFIG = """
name = "chaos"
seed = 5
rounds = 3
plugins = ["{plugin}"]
[data]
name = "digits"
partition = {{name = "iid", parties = 5}}
[algorithm]
name = "scaffold"
[[stages]]
name = "test gate"
folder = "{gates}"
[output]
checkpoint_every = 1
"""


class Chaos:
    """Five parties behind a proxy each, a config whose rounds can be held up, and what a simulation makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gates = folder, folder / "gates"
        self.gates.mkdir()
        self.config = folder / "chaos.toml"
        self.config.write_text(CONFIG.format(plugin=Path(__file__).parent / "gates.py", gates=self.gates))
        self.home = make_coordinator(folder / "coordinator")
        self.proxies = [Proxy(self.home.facts["port"]) for _ in range(5)]
        self.homes = [enrol(self.home, folder / str(party), str(party), {"config": str(self.config)},
                            f"localhost:{proxy.port}").folder for party, proxy in enumerate(self.proxies)]
        result = tequio.run(self.config, engine={"name": "local", "workers": 1}, output={"folder": str(folder / "own")})
        self.expected = result.summary["model_sha256"]
        self.parties = Parties(self.homes)

    def fresh(self) -> Chaos:
        """No holds, healthy links, every party at work."""
        for path in self.gates.iterdir():
            path.unlink()
        for proxy in self.proxies:
            proxy.thaw()
            proxy.heal()
        return self

    def hold(self, *places: str) -> None:
        for place in places:
            (self.gates / f"hold-{place}").touch()

    def release(self, *places: str) -> None:
        for place in places:
            (self.gates / f"hold-{place}").unlink()

    def reached(self, place: str) -> None:
        until((self.gates / f"reached-{place}").exists, f"party and round {place}")

    def loaded(self, out: Path, *settings: str):
        return load_config(self.config, [f"output.folder={out}", "engine.name=network",
                                         f"engine.home={self.home.folder}", *settings])

    def revive(self) -> None:
        self.parties.close()
        self.parties = Parties(self.homes)

    def close(self) -> None:
        self.parties.close()
        for proxy in self.proxies:
            proxy.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    chaos = Chaos(tmp_path_factory.mktemp("chaos"))
    yield chaos
    chaos.close()


@pytest.fixture
def chaos(world):
    return world.fresh()


@pytest.fixture
def service(world):
    telemetry = Telemetry(AuditLog(world.home.folder / "audit.jsonl"))
    with serving(world.home.folder, telemetry) as running:
        yield running
    assert verify(world.home.folder / "audit.jsonl")


@pytest.fixture
def background():
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def test_a_cut_and_a_frozen_link_change_nothing(chaos, service, background, tmp_path):
    chaos.hold("1-2", "3-2")
    run = background(run_with_parties, chaos.loaded(tmp_path), service)
    chaos.reached("1-2")
    chaos.reached("3-2")
    chaos.proxies[1].cut()
    chaos.proxies[3].freeze()
    until(lambda: "1" not in service.hub.present(), "the loss of party 1")
    chaos.release("1-2", "3-2")
    chaos.proxies[1].heal()
    chaos.proxies[3].thaw()
    assert run.result().summary["model_sha256"] == chaos.expected


def test_two_of_five_parties_are_killed_and_come_back(chaos, service, background, tmp_path):
    chaos.hold("0-2", "4-2")
    run = background(run_with_parties, chaos.loaded(tmp_path), service)
    chaos.reached("0-2")
    chaos.reached("4-2")
    chaos.parties.kill("0")
    chaos.parties.kill("4")
    chaos.release("0-2", "4-2")
    chaos.revive()
    assert run.result().summary["model_sha256"] == chaos.expected


def test_a_slow_party_is_left_out_while_the_quorum_holds(chaos, service, tmp_path):
    chaos.hold("2-2")
    config = chaos.loaded(tmp_path, "engine.deadline=3", "rules.on_failure=continue", "rules.quorum=0.8")
    result = run_with_parties(config, service)
    failures = [event for event in result.events if event["event"] == "failure"]
    assert {(event["party"], event["round"]) for event in failures} >= {("2", 2)}
    assert "no answer came within 3 s" in failures[0]["cause"]
    assert result.summary["rounds"] == 3
    chaos.release("2-2")


def test_without_a_quorum_it_stops_and_goes_on_later_to_the_same_numbers(chaos, service, tmp_path):
    chaos.hold("1-3", "2-3", "3-3")
    settings = ("engine.deadline=3", "rules.on_failure=continue", "rules.quorum=0.6")
    with pytest.raises(QuorumError, match=r"only 2 of 5 parties answered task .* in round 3"):
        run_with_parties(chaos.loaded(tmp_path, *settings), service)
    chaos.release("1-3", "2-3", "3-3")
    folder = next(path for path in tmp_path.iterdir())
    resumed = run_with_parties(chaos.loaded(tmp_path, *settings[1:]), service, folder=folder)
    assert resumed.summary["model_sha256"] == chaos.expected


def test_the_coordinator_is_killed_in_a_round_and_resumes(chaos, tmp_path):
    chaos.hold("2-2")
    command = [sys.executable, "-m", "tequio", "coordinator", "run", "--home", str(chaos.home.folder), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(tequio.__file__).parents[1])}
    with subprocess.Popen([*command, str(chaos.config), "--out", str(tmp_path)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, env=environment) as first:
        chaos.reached("2-2")
        chaos.reached("4-2")
        first.send_signal(signal.SIGKILL)
    chaos.release("2-2")
    folder = next(path for path in tmp_path.iterdir())
    again = subprocess.run([*command, "--resume", str(folder)], capture_output=True, text=True, env=environment,
                           timeout=200, check=False)
    assert again.returncode == 0, again.stderr
    assert chaos.expected in again.stdout
