"""`tequio party ledger`: what was released about a party's rows, for whom, and what is left."""

from __future__ import annotations

import json

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
