"""A program for a network and a mount namespace of its own: a federation on bad links and a full disk.

    unshare --net --mount python bad_network.py FOLDER

Makes its faults with packet filters on its own loopback and with a small disk, and prints one JSON document: for each
fault what came of a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import tequio
from engines.network.fleet import Parties, enrol, make_coordinator, until
from tequio.engines.network.telemetry import AuditLog, Telemetry, verify
from tequio.errors import PartyError
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import serving
from tequio.experiments.deploying.remote import run_with_parties

CONFIG = """
name = "bad network"
seed = 5
rounds = 2
plugins = ["{plugin}"]
[data]
name = "iris"
partition = {{name = "iid", parties = 3}}
[algorithm]
name = "scaffold"
[[stages]]
name = "test gate"
folder = "{gates}"
[output]
checkpoint_every = 1
"""


FILTERS = ("iptables", "ip6tables")  # localhost is either, as gRPC likes


def shell(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.gates = folder, folder / "gates"
        self.gates.mkdir()
        self.config = folder / "config.toml"
        self.config.write_text(CONFIG.format(plugin=Path(__file__).parent / "gates.py", gates=self.gates))
        self.home = make_coordinator(folder / "coordinator")
        homes = [enrol(self.home, folder / str(party), str(party), {"config": str(self.config)}).folder
                 for party in range(3)]
        self.runs = homes[1] / "runs"
        self.runs.mkdir()
        shell("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(self.runs))
        result = tequio.run(self.config, engine={"name": "local", "workers": 1}, output={"folder": str(folder / "own")})
        self.expected = result.summary["model_sha256"]
        self.parties = Parties(homes)

    def loaded(self, out: str):
        return load_config(self.config, [f"output.folder={self.folder / out}", "engine.name=network",
                                         f"engine.home={self.home.folder}"])

    @contextmanager
    def dropping(self, *match: str):
        """Drop packets of the parties' links, in both directions."""
        port = str(self.home.facts["port"])
        rules = [["INPUT", "-i", "lo", "-p", "tcp", side, port, *match, "-j", "DROP"]
                 for side in ("--dport", "--sport")]
        for filter in FILTERS:
            for rule in rules:
                shell(filter, "-w", "-A", *rule)
        yield self.dropped
        for filter in FILTERS:
            for rule in rules:
                shell(filter, "-w", "-D", *rule)

    @staticmethod
    def dropped() -> int:
        return sum(int(line.split()[0]) for filter in FILTERS
                   for line in shell(filter, "-w", "-L", "INPUT", "-v", "-x", "-n").splitlines()[2:])


def lossy(world, service):
    with world.dropping("-m", "statistic", "--mode", "random", "--probability", "0.3") as dropped:
        result = run_with_parties(world.loaded("lossy"), service)
        return {"same": result.summary["model_sha256"] == world.expected, "dropped": dropped()}


def cut(world, service):
    """Nothing passes from when a party is at work until its reply has been lost, and then everything again."""
    hold, reached = world.gates / "hold-0-2", world.gates / "reached-0-2"
    hold.touch()
    reached.unlink(missing_ok=True)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_with_parties, world.loaded("cut"), service)
        until(reached.exists, "round 2 at party 0")
        with world.dropping() as dropped:
            hold.unlink()
            lost = until(dropped, "the loss of a reply")
        return {"same": run.result().summary["model_sha256"] == world.expected, "dropped": lost}


def full_disk(world, service):
    """The disk of party 1 is full in round 2; with room on it again the run goes on."""
    hold, reached, ballast = world.gates / "hold-1-2", world.gates / "reached-1-2", world.runs / "ballast"
    hold.touch()
    reached.unlink(missing_ok=True)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_with_parties, world.loaded("full"), service)
        until(reached.exists, "round 2 at party 1")
        fill(ballast)
        hold.unlink()
        try:
            told = run.result().summary["model_sha256"]
        except PartyError as cause:
            told = str(cause)
    ballast.unlink()
    folder = next((world.folder / "full").iterdir())
    again = run_with_parties(world.loaded("full"), service, folder=folder)
    return {"told": told, "same": again.summary["model_sha256"] == world.expected}


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def main(folder: Path) -> None:
    os.environ["no_proxy"] = "*"
    shell("ip", "link", "set", "lo", "up")
    world = World(folder)
    try:
        with serving(world.home.folder, Telemetry(AuditLog(world.home.folder / "audit.jsonl"))) as service:
            found = {fault.__name__: fault(world, service) for fault in (lossy, cut, full_disk)}
    finally:
        world.parties.close()
    print(json.dumps({**found, "audited": verify(world.home.folder / "audit.jsonl")}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
