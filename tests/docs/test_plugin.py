"""Components outside of the package are found through their entry point, listed, and run: examples/plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .blocks import ROOT, blocks_of

PLUGIN = ROOT / "examples" / "plugin"
CONFIG = """
name = "village"
rounds = 3
algorithm = {name = "majority_vote", step = 0.05}
selector = {name = "in_turns", count = 2}
learner = "logistic"

[data]
name = "wine"
prepare = ["standardise"]
partition = {name = "sorted_by", column = "alcohol", parties = 5}
"""


@pytest.fixture(scope="module")
def tequio(tmp_path_factory):
    """Runs `tequio` where the plugin is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    subprocess.run(["cp", "-r", str(PLUGIN), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--target", str(folder / "site"), str(source)], check=True)
    (folder / "village.toml").write_text(CONFIG)
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}

    def run(*arguments: str) -> dict:
        done = subprocess.run([sys.executable, "-m", "tequio", *arguments, "--json"], cwd=folder, env=environment,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_its_components_are_in_the_list(tequio):
    listed = {(one["kind"], one["name"]): one for one in tequio("list")["components"]}
    assert listed["algorithm", "majority_vote"]["paper"] == "Bernstein et al., 2018"
    assert listed["selector", "in_turns"]["summary"] == "Parties take part in turns, so that all work equally often."
    assert listed["partition", "sorted_by"]["summary"].startswith("Feature skew: sort the rows by one column")


def test_it_runs_in_worker_processes(tequio):
    summary = tequio("run", "village.toml", "--workers", "2")
    assert (summary["algorithm"], summary["rounds"], summary["parties"]) == ("majority_vote", 3, 5)


def test_the_tutorial_shows_the_plugin_as_it_is():
    shown = {block.file: block.content for block in blocks_of(ROOT / "docs" / "tutorial" / "your-components.md")}
    files = [path for path in PLUGIN.rglob("*") if path.suffix in (".py", ".toml") and "build" not in path.parts]
    assert len(files) == 5
    for path in files:
        assert shown[str(path.relative_to(PLUGIN))] == path.read_text(encoding="utf-8"), path


def test_the_selector_takes_everyone_in_turns():
    code = """
import numpy as np
from tequio.federation.selection import Turn
from village.in_turns import InTurns

memory = {}
for _ in range(5):
    choice = InTurns(count=2).choose(Turn(None, np.arange(10, 15), memory, None))
    memory = choice.memory
    print(*choice.parties)
"""
    # In a process of its own, because importing the plugin registers its components.
    done = subprocess.run([sys.executable, "-c", code], cwd=PLUGIN, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:5] == ["10 11", "12 13", "10 14", "11 12", "13 14"]
