"""The tutorial's hospital `south`, with its policy as written, and a coordinator that lies to it over a real link.

The attacks are those of spec 005, section 2, that a party without a budget can meet; the others are made on a site
(tests/adversaries/test_lying_coordinator.py). At the end the same parties do an honest run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest

from adversaries.hostile import LOGISTIC, Coordinator, Refused, component, linear, refuses, stage, training, zeros
from tequio.engines.network.hub import PendingTask, RunMailbox
from tequio.engines.network.telemetry import Telemetry, entries
from tequio.engines.network.wire import Declined, Part, Ready, TaskFailed, TaskRequest
from tequio.experiments.config.complete import load_config
from tequio.experiments.deploying.deploying import serving
from tequio.experiments.deploying.remote import run_with_parties
from tequio.federation import payload as payloads
from tequio.gate.policy import read_policy

from .fleet import PATIENCE, Parties, enrol, make_coordinator
from .test_tutorial import blocks

if TYPE_CHECKING:
    from tequio.engines.network.service import Service

pytestmark = pytest.mark.network

NAMES = ("north", "south", "east")


@dataclass
class OverALink(Coordinator):
    """The same lies, over the link that `south` has dialled."""

    service: Service | None = None
    mailbox: RunMailbox | None = None

    def __post_init__(self) -> None:
        self._greeting = self.service.hub.expect(NAMES, PATIENCE)["south"]

    @property
    def schema(self) -> str:
        return self._greeting.schema

    def announce(self, run: str = "", **changes: Any) -> Ready | Refused:
        if self.mailbox is not None:
            self.service.hub.close(self.mailbox, finished=True)
        run = run or f"run-{next(self.numbers)}"
        self.mailbox = RunMailbox(run, ["south"], [Part(payloads.encode(self.facts(**changes)))])
        self.service.hub.open(self.mailbox)
        self.service.hub.wait_for_verdicts(self.mailbox, PATIENCE)
        said = self.mailbox.verdicts[0]
        return Refused(said.cause, said.remedy) if isinstance(said, Declined) else said

    def ask(self, task, payload=None, *, run="", round=1, stages=(), digest="", base=0, **settings) -> Any:
        number = next(self.numbers)
        about, common, own = (Part(payloads.encode({"settings": settings, "stages": list(stages)})),
                              Part(payloads.encode(payload or {})), Part(b""))
        request = TaskRequest(self.mailbox.run, number, base, 0, digest or f"digest {number}", task, round,
                              (about.ref, common.ref, own.ref))
        self.service.hub.submit(self.mailbox, PendingTask(0, request, (about, common, own), number, inf, 0))
        _, result, content = self.mailbox.answers.get(timeout=PATIENCE)
        return Refused(result.cause, result.remedy) if isinstance(result, TaskFailed) else payloads.decode(content)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """The three hospitals of the tutorial, each in a process of its own, and the coordinator that they dial."""
    folder = tmp_path_factory.mktemp("hospitals")
    for file, lines in blocks():
        if file:
            (folder / file).write_text("\n".join(lines) + "\n")
    subprocess.run([sys.executable, "make_tables.py"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "tequio", "data", "schema", "north.csv", "--target", "diagnosis", "--out",
                    "schema.json"], cwd=folder, check=True, capture_output=True)
    home = make_coordinator(folder / "coordinator")
    homes = {name: enrol(home, folder / name, name, {"path": str(folder / f"{name}.csv"), "target": "diagnosis",
                                                     "schema_path": str(folder / "schema.json")}) for name in NAMES}
    (folder / "south" / "policy.toml").write_bytes((folder / "south.policy").read_bytes())
    with serving(home.folder, Telemetry()) as service, closing(Parties([one.folder for one in homes.values()])):
        yield folder, home, service


@pytest.fixture(scope="module")
def liar(hospitals):
    folder, _, service = hospitals
    return OverALink(folder / "south", read_policy(folder / "south" / "policy.toml"), service=service)


SPLIT = {"validation": 0.0, "test": 0.999, "stratify": False}


@pytest.mark.parametrize(("lie", "why"), [
    ({"split": SPLIT}, "wants at least 100 rows behind each reply"),                                     # attack 1
    ({"split": SPLIT, "columns": ["radius", "texture", "smoothness", "concavity"]}, "at least 100 rows"),
    ({"parties": 2, "roster": ["south", "mallory"]}, "the run has 2 parties, the policy wants at least 3"),
    ({"overrides": {"local": {"clip_norm": 9.0}}}, "sets local.clip_norm for this party alone"),         # attack 2
    ({"overrides": {"share_rows": True}}, "sets share_rows for this party"),
    ({"work": {"algorithm": {"name": "statistics"}}}, "names another algorithm than 'fedavg'"),          # attack 5
    ({"work": {"algorithm": {"name": "fedavg"}, "rounds": 1}}, "says 'rounds' again"),
    ({"components": [component("learner", "text-classifier", vectors="/etc/passwd")]}, "could name a file"),  # attack 8
    ({"learner": {"name": "text-classifier", "vectors": "/etc/passwd"}}, "could name a file"),
    ({"components": [component("learner", "torch", module="antigravity:fly")]}, "importing it would run code"),  # 9
    ({"components": [component("engine", "network")]}, "a component of the kind 'engine'"),
    ({"parties": inf}, "announced badly"), ({"index": 2**40}, "announced badly"), ({"parties": nan}, "announced badly"),
    ({"preparation": [1]}, "announced badly"),                                                               # attack 10
    ({"algorithm": "icdta4fl"}, "'icdta4fl' is not among the policy's 'algorithms'")])                   # attack 12
def test_south_declines(liar, lie, why):
    said = liar.announce(**lie)
    assert isinstance(said, Refused)
    assert why in said.cause
    refused = [entry for entry in entries(liar.folder / "audit.jsonl") if entry["event"] == "run declined"]
    assert why in refused[-1]["cause"]


@pytest.mark.parametrize(("told", "asked", "why"), [
    ([LOGISTIC, training(batch=1)], {"local": training(batch=1)}, "rests on 1 rows"),
    ([LOGISTIC, training(batch=101, steps=1, shuffle=False)], {"local": training(batch=101, steps=1, shuffle=False)},
     "in the order in which they are stored"),
    ([LOGISTIC, training()], {"local": training(epochs=2)}, "comes with epochs = 2"),
    ([], {}, "which was not announced"),
    ([LOGISTIC, training(), stage("secure-sum")], {}, "comes without the stage 'secure-sum'")])
def test_south_trains_on_no_other_terms(liar, told, asked, why):
    assert isinstance(liar.announce(components=told), Ready)
    refuses(liar.train(**asked), why, liar)


@pytest.mark.parametrize("task", ["trees: fit", "hand over rows", "statistics: summary", "group-sum.hand-over",
                                  "icdta4fl: fit tree", "kmeans: move centroids", "no such task"])
def test_south_does_the_tasks_of_its_algorithm_only(liar, task):
    liar.announce()
    refuses(liar.ask(task), "is no part of the algorithm 'fedavg'", liar)


def test_south_lets_no_training_row_be_judged_and_no_count_be_followed(liar):
    """Attacks 6 and 12: 17 binary searches see multiples of five only, and no reply has the number of rows."""
    liar.announce(preparation={"steps": ["standardise"], "statistics": []})
    refuses(liar.evaluate(zeros(), part="train"), "judges a model by the rows that this party trains on", liar)
    low, high = 0.0, 60.0
    for _ in range(17):
        middle = (low + high) / 2
        counts = liar.evaluate(linear([1e4, 0, 0, 0], -1e4 * middle))["confusion"]
        assert not (counts % 5).any()
        low, high = (middle, high) if counts[:, 1].any() else (low, middle)
    assert liar.train()["rows"] == 100
    found = liar.ask("fit preparation", {"statistics": []}, steps=["standardise"])["statistics"]
    assert found["count"].tolist() == [100]
    refuses(liar.ask("fit preparation", {"statistics": []}, steps=["minmax"]), "other steps than were announced", liar)
    liar.announce("minmax", preparation={"steps": ["minmax"], "statistics": []})
    said = liar.ask("fit preparation", {"statistics": []}, run="minmax", steps=["minmax"])
    refuses(said, "values of single rows", liar)


def test_south_takes_part_in_an_honest_run(hospitals, liar, tmp_path):
    """After all of that: the run of the tutorial, as written."""
    folder, home, service = hospitals
    service.hub.close(liar.mailbox, finished=True)
    config = load_config(folder / "tumours.toml", [f"output.folder={tmp_path}", "engine.name=network",
                                                   f"engine.home={home.folder}"])
    summary = run_with_parties(config, service).summary
    assert summary["rounds"] == 10
    assert summary["metrics"]["parties.accuracy.pooled"] > 0.85
    kept = json.loads((folder / "south" / "split.json").read_bytes())
    assert [one["split"] for one in kept.values()] == [{"validation": 0.1, "test": 0.1, "stratify": True}]
