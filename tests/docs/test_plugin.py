"""Components outside of the package are found through their entry point, listed, and run: examples/plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from . import warm
from .blocks import ROOT, blocks_of

PLUGIN = ROOT / "examples" / "plugin"
CONFIG = """
name = "village"
rounds = 3
algorithm = {name = "majority-vote", length = 0.05}
selector = {name = "in-turns", count = 2}
learner = "logistic"
stages = ["sign-bits"]

[data]
name = "wine"
prepare = ["standardise"]
partition = {name = "sorted-by", column = "alcohol", parties = 5}
"""


@pytest.fixture(scope="module")
def tequio(tmp_path_factory, socket):
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
        start = warm.command(socket) if socket else [sys.executable, "-m", "tequio"]
        done = subprocess.run([*start, *arguments, "--json"], cwd=folder, env=environment, capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_its_components_are_in_the_list(tequio):
    listed = {(one["kind"], one["name"]): one for one in tequio("list")["components"]}
    assert listed["algorithm", "majority-vote"]["paper"] == "Bernstein et al., 2018"
    assert listed["selector", "in-turns"]["summary"] == "Parties take part in turns, so that all work equally often."
    assert listed["stage", "sign-bits"]["paper"] == "Karimireddy et al., 2019"
    assert listed["partition", "sorted-by"]["summary"].startswith("Feature skew: sort the rows by one column")


def test_it_runs_in_worker_processes(tequio):
    summary = tequio("run", "village.toml", "--workers", "2")
    assert (summary["algorithm"], summary["rounds"], summary["parties"]) == ("majority-vote", 3, 5)


def test_the_tutorial_shows_the_plugin_as_it_is():
    shown = {block.file: block.content for block in blocks_of(ROOT / "docs" / "tutorial" / "your-components.md")}
    files = [path for path in PLUGIN.rglob("*") if path.suffix in (".py", ".toml") and "build" not in path.parts]
    assert len(files) == 7
    for path in files:
        assert shown[str(path.relative_to(PLUGIN))] == path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize(("file", "most"), [("majority_vote.py", 40), ("best_tree.py", 60), ("sign_bits.py", 60)])
def test_it_takes_no_more_lines_than_the_idea(file, most):
    assert len((PLUGIN / "village" / file).read_text(encoding="utf-8").splitlines()) <= most


@pytest.fixture
def in_a_process_of_its_own(socket):
    """Gives what code prints; importing the plugin registers its components, which other tests must not see."""

    def run(code: str, *arguments: object) -> list[str]:
        start = warm.command(socket) if socket else [sys.executable]
        done = subprocess.run([*start, "-c", code, *map(str, arguments)], cwd=PLUGIN, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_the_selector_takes_everyone_in_turns(in_a_process_of_its_own):
    code = """
import numpy as np
from tequio import SelectionContext
from village.in_turns import InTurns

memory = {}
for _ in range(5):
    choice = InTurns(count=2).choose(SelectionContext(None, np.arange(10, 15), memory, None))
    memory = choice.memory
    print(*choice.parties)
"""
    assert in_a_process_of_its_own(code) == ["10 11", "12 13", "10 14", "11 12", "13 14"]


RUN = """
import sys, tequio
from village import best_tree, majority_vote, sign_bits, sorted_by

rows = {"x": [float(x) for x in range(-30, 30)], "y": ["yes" if x >= 0 else "no" for x in range(-30, 30)]}

def run(**config):
    data = {"name": rows, "target": "y", "partition": {"name": "sorted-by", "column": "x", "parties": 3},
            "split": {"validation": 0.2, "test": 0.0}, "one_class": "allow", "prepare": []}
    return tequio.run(data=data, rounds=1, engine={"workers": 1}, output={"folder": sys.argv[1]}, **config).model
"""


def test_every_weight_moves_by_the_length_whether_votes_cross_as_numbers_or_as_bits(in_a_process_of_its_own, tmp_path):
    code = RUN + """
for stages in ([], ["sign-bits"]):
    once, twice = (run(learner="logistic", algorithm={"name": "majority-vote", "length": length}, stages=stages)
                   for length in (0.5, 1.0))
    print(*[round(float(value), 4) for name in sorted(once) for value in (twice[name] - once[name]).ravel()])
"""
    numbers, bits = in_a_process_of_its_own(code, tmp_path)
    assert numbers == bits == "0.5 0.5"  # weight and bias


def test_the_best_tree_is_that_of_the_party_that_knows_both_classes(in_a_process_of_its_own, tmp_path):
    """The others know one class each, and their trees have no split."""
    code = RUN + """
model = run(learner="cart", algorithm="best-tree")
print(list(model["feature"]), abs(model["threshold"][0]) < 2)
"""
    assert in_a_process_of_its_own(code, tmp_path) == ["[0, -1, -1] True"]


def test_signs_stand_for_the_mean_size_and_the_rest_is_sent_later(in_a_process_of_its_own):
    """|3| + |-1| + |0.5| + |-0.5| is 5, so 1.25 stands for each entry; the second update is what the first left out."""
    code = """
import numpy as np
from tequio import Party, Replies
from tequio.federation.exchange import Reply
from village.sign_bits import SignBits

stage, party = SignBits(), Party(0, 1, {}, None, streams=object())
for update in ([3.0, -1.0, 0.5, -0.5], [0.0, 0.0, 0.0, 0.0]):
    sent = stage.send(party, {"update": {"w": np.array(update, dtype=np.float32)}, "rows": 2})
    print(sent["update"]["bits"].tolist())
    print(stage.receive(Replies((Reply(0, sent),)), 1, 0)[0].payload["update"]["w"].tolist())
sent["update"]["bits"] = sent["update"]["bits"][:0]
print(stage.receive(Replies((Reply(0, sent),)), 1, 0).failures[0].cause)
"""
    assert in_a_process_of_its_own(code) == [
        "[160]", "[1.25, -1.25, 1.25, -1.25]",     # 1010 0000
        "[208]", "[0.875, 0.875, -0.875, 0.875]",  # 1.75, 0.25, -0.75, 0.75: 1101 0000
        "its update cannot be decompressed: ValueError('0 bytes for the signs of 4 entries')"]
