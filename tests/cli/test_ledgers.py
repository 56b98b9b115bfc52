"""`tequio party ledger`, and what the terminal says of what runs on the same rows have spent together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tequio.engines.network.homes import PartyHome
from tequio.privacy.accounting import Release, epsilon_of

HOSTILE = "[red]run\x1b[2J"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TEQUIO_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "party"
    folder.mkdir()
    (folder / "party.json").write_text(json.dumps({"name": "north", "address": "localhost:1", "data": {}}))
    (folder / "policy.toml").write_text("[budget]\nepsilon = 2.0\ndelta = 1e-5\n")
    return PartyHome(folder)


def released(home, run, count, by="ab12" * 16):
    for number in range(count):
        home.ledger("f" * 64).charge({Release(30.0): 1}, run=run, by=by, task="train", round=number + 1,
                                     digest=f"{number}", mechanism="local-dp (noise 60)", epsilon=2.0, delta=1e-5,
                                     federation="north", unit="party")


def test_it_says_what_was_spent_on_what_and_what_is_left(home, tequio):
    released(home, "tumours", 3)
    released(home, "ages", 2)
    code, out, _ = tequio("party", "ledger", "--home", str(home.folder), "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert (found["epsilon"], found["left"]) == (pytest.approx(epsilon_of({Release(30.0): 5}, 1e-5)),
                                                 pytest.approx(2.0 - epsilon_of({Release(30.0): 5}, 1e-5)))
    assert [(line["run"], line["releases"], line["tasks"]) for line in found["runs"]] == [
        ("tumours", 3, ["train"]), ("ages", 2, ["train"])]
    assert found["runs"][0]["epsilon"] == pytest.approx(epsilon_of({Release(30.0): 3}, 1e-5))


def test_it_fits_a_terminal_and_shows_names_as_they_are(home, tequio):
    released(home, "tumours", 3)
    released(home, HOSTILE, 1)
    _, out, _ = tequio("party", "ledger", "--home", str(home.folder))
    assert max(map(len, out.splitlines())) <= 80
    assert "of a budget of 2" in out
    assert "\x1b" not in out
    assert "[red]run" in out


def test_without_a_budget_or_a_release_it_says_so(home, tequio):
    assert "Nothing was released under the budget so far." in tequio("party", "ledger", "--home", str(home.folder))[1]
    home.policy.unlink()
    assert "the party's policy has no budget" in tequio("party", "ledger", "--home", str(home.folder))[1]


PRIVATE = """
name = "private"
rounds = 2
engine = {workers = 1}
algorithm = {name = "fedavg", weights = "uniform"}
local = {learning_rate = 1e-4}
evaluation = {at = ["coordinator"]}
data = {name = "breast-cancer", partition = {name = "iid", parties = 5}, split = {validation = 0.0, test = 0.0}}
[[stages]]
name = "central-dp"
noise = 4.0
"""


@pytest.fixture
def private(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "private.toml").write_text(PRIVATE)
    return "private.toml"


def told(tequio, *words):
    """What a run says of all runs on its rows."""
    code, out, _ = tequio("run", *words)
    assert code == 0
    return out


def epsilon(releases):
    return f"epsilon {epsilon_of({Release(4.0): releases}, 1e-5):.3g}"


def test_every_run_says_what_all_runs_on_its_rows_have_spent(private, tequio):
    assert "The ledger of these rows knows of no other run." in told(tequio, private)
    out = told(tequio, private, "--seed", 1)
    assert f"Epsilon {epsilon(2)[8:]} at delta 1e-05, by 2 releases (PLD accountant), user-level" in out
    assert f"Over 2 runs on these rows: {epsilon(4)} at delta 1e-05 for any one party (odds change 7.3-fold)." in out
    assert f"Over 3 runs on these rows: {epsilon(6)}" in told(tequio, private, "--seed", 2)


def test_a_fresh_ledger_counts_anew_and_says_so(private, tequio):
    told(tequio, private)
    fresh = told(tequio, private, "--seed", 1, "--fresh-ledger")
    assert "The ledger of these rows knows of no other run. The ledger was started anew on " in fresh
    assert "the 1 run before that is not counted, although what it released is still known" in fresh
    assert "Over 2 runs on these rows" in told(tequio, private, "--seed", 2)
    code, _, err = tequio("run", "--resume", "last", "--fresh-ledger")
    assert code == 2
    assert "--resume goes on with one" in " ".join(err.split())


def test_a_fresh_ledger_of_a_sweep_is_fresh_once(private, tequio):
    told(tequio, private)
    tequio("run", private, "--set", "sweep.seeds=[1,2,3]", "--fresh-ledger", "--quiet")
    assert "Over 4 runs on these rows" in told(tequio, private, "--seed", 9)


def test_a_comparison_says_what_the_runs_cost_together(private, tequio):
    for noise in (4.0, 8.0):
        tequio("run", private, "--quiet", "--set", f"stages=[{{name='central-dp',noise={noise}}}]")
    _, out, _ = tequio("compare", "runs/private-*")
    assert "Each private run alone has epsilon" in out
    assert "Over 2 runs on these rows: epsilon" in out


def test_a_report_says_it_too(private, tequio):
    for seed in (0, 1):
        tequio("run", private, "--quiet", "--seed", seed)
    tequio("report", "last", "--out", "report.html")
    assert "Over 2 runs on these rows: epsilon" in Path("report.html").read_text()


def test_a_private_search_says_what_the_choice_has_cost(private, tequio):
    code, out, _ = tequio("search", private, "--set", "search.space={'local.learning_rate'=[1e-5,1e-4]}", "--set",
                          "data.validation=0.2")
    assert code == 0
    assert f"The best of 2 trials was chosen by looking at all 2 runs: {epsilon(4)} at delta 1e-05" in out
