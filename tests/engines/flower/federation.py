"""A Flower federation on this machine: a SuperLink, SuperNodes, and parties that stay up beside them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
SOURCE, TESTS = Path(__file__).parents[3] / "src", Path(__file__).parents[2]
PATIENCE = 400.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition, what, seconds=PATIENCE):
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.1)
    return found


class Federation:
    """Processes, each with its log in the folder; `tls` names the certificates of a SuperLink that has some."""

    def __init__(self, folder, tls=None):
        self.folder, self.port, self.tls, self.processes = folder, free_port(), tls, {}
        self.environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                            "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS / "engines")]),
                            "FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0",
                            "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
        (folder / "flwr").mkdir(parents=True)
        trust = f'root-certificates = "{tls["ca"]}"' if tls else "insecure = true"
        (folder / "flwr/config.toml").write_text('[superlink]\ndefault = "here"\n[superlink.here]\n'
                                                 f'address = "127.0.0.1:{self.port}"\n{trust}\n')
        safety = ["--ssl-ca-certfile", tls["ca"], "--ssl-certfile", tls["certificate"], "--ssl-keyfile",
                  tls["key"]] if tls else ["--insecure"]
        self.start("link", BIN / "flower-superlink", "--port", self.port, "--disable-runtime-dependency-installation",
                   *safety)
        until(self._listens, "the start of the SuperLink")

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, cwd=self.folder,
                                                    env=self.environment, start_new_session=True)

    def node(self, name, home):
        """A SuperNode for a party's folder."""
        safety = ["--root-certificates", self.tls["ca"]] if self.tls else ["--insecure"]
        self.start(name, BIN / "flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--port", free_port(),
                   "--node-config", f'tequio-home="{home}"', *safety)

    def stay_up(self, homes):
        """Parties that keep their rows open, as `tequio flower serve` does."""
        self.start("parties", sys.executable, "-m", "flower.staying", *homes)
        for home in homes:
            until((home / "resident.json").exists, f"the party in {home}")

    def submit(self, file, name, **keys):
        """Write an app and hand it over; the number of Flower's run."""
        settings = [f"--set={key}={value}" for key, value in {"output.folder": self.folder / "runs", **keys}.items()]
        app = self.folder / "apps" / name
        if not app.exists():
            self._call(sys.executable, "-m", "tequio", "flower", "app", file, app, "--run", name, *settings)
        told = json.loads(self._call(BIN / "flwr", "run", app, "here", "--format", "json"))
        return str(told["run-id"])

    def end_of(self, number, name):
        """The status that a run of Flower ends with, once its coordinator has written its last file."""
        def ended():
            told = json.loads(self._call(BIN / "flwr", "ls", "here", "--run-id", number, "--format", "json"))
            status = told["runs"][0]["status"]
            return status if status.startswith("finished") else ""

        place = self.folder / "runs" / name
        until(lambda: (place / "summary.json").exists() or (place / "stopped.json").exists(), f"the end of {name}")
        return until(ended, f"the end of run {number}")

    def log_of(self, number):
        return self._call(BIN / "flwr", "log", number, "here", "--show")

    def kill(self, name):
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        for name in [*self.processes][::-1]:
            self.kill(name)

    def _call(self, *command):
        return subprocess.run(list(map(str, command)), env=self.environment, cwd=self.folder, check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
