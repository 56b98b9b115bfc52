"""A party that is killed at any point has paid for whatever left it, and loses nothing that it needs to go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tequio

TESTS = Path(__file__).parents[1]
POINTS = {"never": 1, "in the middle of a line of the ledger": 0, "once it was charged": 1,
          "once the reply was made": 1, "before the journal has its place": 1, "before the reply left": 1,
          "in the middle of a line of the audit log": 1}
"""How many releases are paid for when the next party starts. Only half a line says nothing: then nothing has left."""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    paths = [str(Path(tequio.__file__).parents[1]), str(TESTS)]
    done = subprocess.run([sys.executable, "-m", "adversaries.killed", str(tmp_path_factory.mktemp("killed"))],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {line["point"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(("point", "paid"), POINTS.items())
def test_nothing_is_released_unpaid_and_nothing_is_lost(found, point, paid):
    this = found[point]
    assert this["ended"] == (0 if point == "never" else -signal.SIGKILL)
    # The same request again is the same release: paid for once, and the same bytes. Another one is another release.
    assert this["paid"] == [paid, 1, 2]
    assert this["replies"] == found["never"]["replies"]
    assert len(set(this["replies"])) == 2
    assert this["records"] == found["never"]["records"]
    assert this["audited"] > 0  # the log is whole
    assert this["lost"] == (1 if point == "in the middle of a line of the audit log" else 0)
