"""A run that diverges says so on the screen, in its JSON document and by an exit code of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tequio.experiments.running.results import Result

CONFIG = """
rounds = 20
[data]
name = "csv"
path = "costs.csv"
target = "cost"
prepare = []
[data.partition]
name = "iid"
parties = 4
[learner]
name = "logistic"
[local]
learning_rate = 1.0
batch = 16
[engine]
workers = 1
"""
SAID = "the run has diverged: its loss is more than 1,000 times that of a model that knows nothing"
SLOWLY = "local.learning_rate=0.0003"  # too fast, and yet no overflow before it is noticed
REMEDY = 'set local.learning_rate = 3e-05 or local.clip_norm = 1.0 or data.prepare = ["standardise"]'


@pytest.fixture
def costs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2)) * [1, 100]
    cost = rows @ [1.0, 0.1] + rng.normal(size=400)
    lines = ["age,weight,cost", *(f"{a:.4f},{b:.4f},{c:.4f}" for (a, b), c in zip(rows, cost, strict=True))]
    (tmp_path / "costs.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "costs.toml").write_text(CONFIG)
    return tmp_path


def unfolded(text):
    return " ".join(text.replace("│", " ").split())


def test_on_the_screen(costs, tequio):
    code, out, err = tequio("run", "costs.toml", "--set", SLOWLY)
    assert code == 12
    assert "the run has diverged" in unfolded(out)
    assert unfolded(err).count(SAID) == 2  # when it happens, and in the error at the end
    assert f"What to do: {REMEDY}" in unfolded(err)
    assert "resume" not in err
    assert max(map(len, out.splitlines()[:-2])) <= 80
    assert len(list(costs.glob("runs/*/summary.json"))) == 1


def test_in_json_and_in_silence(costs, tequio):
    code, out, _ = tequio("run", "costs.toml", "--json", "--set", SLOWLY)
    document = json.loads(out)
    assert (code, document["stopped"], document["warnings"][-1]) == (12, "diverged", f"{SAID}; {REMEDY}")
    assert tequio("run", "costs.toml", "--quiet", "--set", SLOWLY)[:2] == (12, "")


def test_where_a_party_meets_numbers_that_are_none_the_round_before_is_kept(costs, tequio):
    code, out, _ = tequio("run", "costs.toml", "--json", "--set", "local.learning_rate=1.0")
    document = json.loads(out)
    assert (code, document["stopped"]) == (12, "diverged")
    said = document["warnings"][-1]
    failed = document["rounds"] + 1
    assert said.startswith(f"the run has diverged: party '0' failed in round {failed} at task 'train': ")
    assert "became not finite at step" in said
    assert "set local.learning_rate = 0.1" in said
    result = Result(Path(document["folder"]))
    assert len(result.metrics) == document["rounds"]
    assert all(np.isfinite(values).all() for values in result.model.values())
    again = json.loads(tequio("run", "--resume", document["folder"], "--json")[1])
    assert [again[key] for key in ("stopped", "rounds", "model_sha256")] == \
        [document[key] for key in ("stopped", "rounds", "model_sha256")]


def test_where_the_first_round_diverges_there_is_the_model_that_it_began_with(costs, tequio):
    code, out, _ = tequio("run", "costs.toml", "--json", "--set", "local.learning_rate=1e30")
    document = json.loads(out)
    assert (code, document["stopped"], document["rounds"]) == (12, "diverged", 0)
    assert document["metrics"]["test.rmse"] > 0
    for words in (["report", document["folder"], "--out", "report.html"], ["run", "costs.toml", "--set",
                                                                         "local.learning_rate=1e30"]):
        code, _, err = tequio(*words)
        assert "unexpected" not in err
    assert "the run has diverged" in (costs / "report.html").read_text()


def test_a_sweep_goes_on_with_its_other_cells(costs, tequio):
    code, out, _ = tequio("run", "costs.toml", "--json", "--set", "sweep.local.learning_rate=[1.0, 0.00001]")
    runs = json.loads(out)["runs"]
    assert (code, [run["stopped"] for run in runs]) == (0, ["diverged", "rounds"])


def test_what_it_advises_helps(costs, tequio):
    code, out, _ = tequio("run", "costs.toml", "--json", "--set", 'data.prepare=["standardise"]',
                          "--set", "local.learning_rate=0.1")
    assert (code, json.loads(out)["stopped"]) == (0, "rounds")
