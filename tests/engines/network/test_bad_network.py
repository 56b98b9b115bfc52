"""Packets that are lost, a link that is cut and healed, a full disk: in namespaces that the test makes itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tequio

pytestmark = pytest.mark.network

PROGRAM = Path(__file__).parent / "bad_network.py"
UNSHARE = ("unshare", "--net", "--mount")
TRIAL = ("ip link set lo up && iptables -w -A INPUT -i lo -m statistic --mode random --probability 0.3 -j DROP "
         "&& ip6tables -w -L INPUT && mount -t tmpfs -o size=1m tmpfs /mnt")


def why_not() -> str:
    """Why this machine does not let us make such namespaces; empty where it does."""
    try:
        tried = subprocess.run([*UNSHARE, "sh", "-c", TRIAL], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as cause:
        return str(cause)
    return "" if tried.returncode == 0 else tried.stderr.strip() or "not permitted"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    reason = why_not()
    if reason:
        pytest.skip(f"no namespaces with packet filters here (root, iproute2 and iptables are needed): {reason}")
    paths = os.pathsep.join([str(Path(tequio.__file__).parents[1]), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("bad-network")
    done = subprocess.run([*UNSHARE, sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True,
                          env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_loss_of_three_packets_in_ten_changes_nothing(found):
    assert found["lossy"]["same"]
    assert found["lossy"]["dropped"] > 20


def test_a_link_that_is_cut_and_healed_changes_nothing(found):
    assert found["cut"]["same"]
    assert found["cut"]["dropped"] > 0


def test_a_full_disk_stops_the_run_with_the_reason_and_it_goes_on_when_there_is_room(found):
    assert "No space left on device" in found["full_disk"]["told"]
    assert found["full_disk"]["same"]


def test_the_audit_log_is_whole_after_all_of_it(found):
    assert found["audited"] >= 3
