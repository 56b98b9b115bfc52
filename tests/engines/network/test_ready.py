"""`tequio coordinator ready` over real links, beside a coordinator that serves and by itself."""

from __future__ import annotations

import io
import json
from contextlib import closing

import numpy as np
import pytest

from tequio.cli.main import call
from tequio.data.dataset import Feature, Schema, Target
from tequio.data.sharing import SharedSchema, save_schema
from tequio.engines.network.telemetry import Telemetry, entries
from tequio.experiments.deploying.deploying import serving

from .fleet import Parties, enrol, make_coordinator, until

pytestmark = pytest.mark.network

CONFIG = """
name = "tried"
rounds = 5
[data]
name = "parties"
parties = ["north", "south"]
prepare = ["standardise"]
[data.split]
test = 0.1
[engine]
workers = 2
"""


def test_a_rehearsal_over_real_links_predicts_the_bytes_of_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = Schema((Feature("a"), Feature("b")), Target("classes", ("no", "yes"), "ill"))
    save_schema(SharedSchema(schema, ranges={"a": (0.0, 3.0)}), tmp_path / "schema.json")
    (tmp_path / "tried.toml").write_text(CONFIG)
    home, homes = make_coordinator(tmp_path / "coordinator"), []
    for name, rows in (("north", 200), ("south", 150)):
        draw = np.random.default_rng(rows)
        lines = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in draw.normal(size=(rows, 2))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,ill", *lines]) + "\n")
        homes.append(enrol(home, tmp_path / name, name, {"path": str(tmp_path / f"{name}.csv"), "target": "ill",
                                                         "schema_path": str(tmp_path / "schema.json")}).folder)

    def ready(code=0):
        capsys.readouterr()
        assert call(["coordinator", "ready", "tried.toml", "--wait", "60", "--json"]) == code
        printed = capsys.readouterr()
        assert "set aside" in printed.err
        return json.loads(printed.out)

    with closing(Parties(homes)):
        with serving(home.folder, Telemetry()):
            found = ready()
            assert found["ready"]
            assert not list(home.folder.glob("ready-*"))
            assert not list(tmp_path.glob("runs/*"))
        assert ready()["bytes_up"] == found["bytes_up"]
        assert call(["coordinator", "run", "tried.toml", "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)
    fitted = next(task["bytes_up"] for task in found["tasks"] if task["task"] == "fit preparation")
    assert found["bytes_up"] - fitted == summary["bytes_up"] + summary["evaluation_bytes_up"]
    for place in homes:
        until(lambda place=place: not (place / "rehearsal").exists(), "the end of the rehearsal")
        events = [entry["event"] for entry in entries(place / "audit.jsonl")]
        assert events.count("rehearsal accepted") == 2
        assert events.count("run accepted") == 2  # once to prepare its rows, and once with what was fitted


def test_a_run_that_is_handed_over_says_whom_it_waits_for_and_keeps_no_note_of_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tried.toml").write_text(CONFIG + "wait = 1.5\n")
    home, log = make_coordinator(tmp_path / "coordinator"), io.StringIO()
    with serving(home.folder, Telemetry(stream=log)):
        assert call(["coordinator", "run", "tried.toml", "--debug"]) == 8
    printed = capsys.readouterr().err
    assert printed.count("tried: waiting for north, south (not connected); here: none") == 1
    assert "2 of 2 parties did not dial in within 1.5 s: north, south" in printed
    waiting = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "waiting"]
    assert [line["missing"] for line in waiting] == [{"north": "not connected", "south": "not connected"}]
    assert not list(tmp_path.rglob("awaited.json"))
