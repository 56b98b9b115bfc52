"""The walk-through of three hospitals, command by command, with its processes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tequio

from .fleet import PATIENCE, free_port, until

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "tutorial" / "three-hospitals.md"
STAYING = ("tequio coordinator run", "tequio party run")


def blocks():
    """(file, commands) of each block of the page."""
    file, content, inside = "", [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("<!-- file: "):
            file = line.removeprefix("<!-- file: ").removesuffix(" -->")
        elif line.startswith("```"):
            if inside:
                yield file, content
                file, content = "", []
            inside = not inside
        elif inside:
            content.append(line)


@pytest.fixture
def terminal(tmp_path):
    """Runs commands in one folder; those that stay are ended at the end."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "tequio"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tequio "$@"\n')
    command.chmod(0o755)
    paths = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": str(Path(tequio.__file__).parents[1])}
    staying = []

    def run(line):
        if not line.startswith(STAYING):
            done = subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=environment, capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            return done.stdout
        staying.append(subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=tmp_path, env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return staying[-1]

    yield run
    for process in staying:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def test_the_walk_through_works_as_written(tmp_path, terminal):
    port, coordinator, audit = free_port(), None, ""
    for file, lines in blocks():
        if file:
            (tmp_path / file).write_text("\n".join(lines) + "\n")
            continue
        for line in (line.removeprefix("$ ") for line in lines if line.startswith("$ ")):
            if line.startswith("tequio party audit"):
                until(lambda run=coordinator: run.poll() is not None, "the end of the run")
            there = f"{line} --port {port} --enrolment-port {free_port()}" if "coordinator init" in line else line
            done = terminal(there)
            if line.startswith("tequio coordinator run"):
                coordinator = done
                until((tmp_path / "coordinator" / "control.json").exists, "the start of the coordinator")
            audit = done if line.startswith("tequio party audit") else audit
    assert coordinator.returncode == 0, coordinator.stdout.read()
    (summary,) = (tmp_path / "runs").glob("*/summary.json")
    found = json.loads(summary.read_text())
    assert found["rounds"] == 10
    assert found["parties"] == 3
    assert found["metrics"]["parties.accuracy.pooled"] > 0.85
    assert "task done" in audit
    assert "unchanged since they were written" in audit
    rows = {line.split(",")[0] for line in (summary.parent / "parties.csv").read_text().splitlines()[1:]}
    assert rows == {"north", "south", "east"}
