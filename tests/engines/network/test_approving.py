"""What a person at the party sees of a run, and that they decide about exactly that."""

from __future__ import annotations

import copy
import json

import pytest

from tequio.engines.network import approving
from tequio.engines.network.approving import asked, decide, difference, history, in_words, visible
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.policy import Approvals
from tequio.errors import ConfigError, PermissionDenied, RunError

NOISE = {"$component": ["stage", "local-dp"], "parameters": {"noise": 2.5, "clip": 1.0}}
FACTS = {"algorithm": "fedavg", "learner": {"$component": ["learner", "mlp"], "parameters": {"hidden": [16, 8]}},
         "stages": [NOISE], "rounds": 10, "parties": 3, "name": "tumours"}


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "party")


def make_home(folder):
    """A party's folder in which one run waits that the gate says everything about, and one that it says little of."""
    (folder / "approvals").mkdir(parents=True)
    (folder / "party.json").write_text(json.dumps({"name": "north", "address": "localhost:1", "data": {}}))
    before = copy.deepcopy(FACTS) | {"rounds": 5, "stages": []}
    ask(folder, "whole", hash="a" * 64, before=before, epsilon=2.413,
        tasks=[{"task": "train", "reveals": "UPDATE", "covered_by": "local-dp", "cost": "epsilon 0.24 a round"},
               {"task": "hello", "reveals": "nothing"},
               {"task": "train again", "reveals": "UPDATE", "covered_by": "local-dp", "cost": "epsilon 0.24 a round"}])
    ask(folder, "bare")
    return PartyHome(folder)


def ask(folder, run, facts=FACTS, **more):
    (folder / "approvals" / f"{run}.json").write_text(json.dumps({"asked": facts, "decision": "", **more}))


def decision(home, run):
    return Approvals(home.folder / "approvals").all()[run]["decision"]


def test_a_difference_names_the_path_the_old_value_and_the_new_one():
    louder = copy.deepcopy(NOISE)
    louder["parameters"]["noise"] = 0.5
    after = {**FACTS, "rounds": 20, "stages": [louder, {"$component": ["stage", "secure-sum"], "parameters": {}}]}
    del after["name"]
    assert difference(FACTS, after) == [
        ("name", "tumours", None), ("rounds", 10, 20), ("stages[0].parameters.noise", 2.5, 0.5),
        ("stages[1]", None, {"$component": ["stage", "secure-sum"], "parameters": {}})]
    assert difference(FACTS, copy.deepcopy(FACTS)) == []


def test_a_value_of_another_type_is_a_difference():
    assert difference({"secret": 1}, {"secret": True}) == [("secret", 1, True)]


def test_components_read_as_names_with_parameters():
    assert in_words([NOISE]) == "local-dp (noise = 2.5, clip = 1.0)"
    assert in_words(FACTS["learner"]) == in_words({"name": "mlp", "hidden": [16, 8]}) == "mlp (hidden = [16, 8])"
    assert [in_words(value) for value in (None, [], {}, "")] == ["not stated", "none", "none", "none"]


def test_what_does_not_print_is_spelt_out():
    assert visible("a\x1b[2Jb\r\n\u202ec\x9b") == "a\\x1b[2Jb\\r\\n\\u202ec\\x9b"
    assert visible("Klinik Süd, 北, Αθήνα, Больница, 5 µg/l") == "Klinik Süd, 北, Αθήνα, Больница, 5 µg/l"


@pytest.mark.parametrize(("text", "shown"), [
    ("n\u043erth", "n\\u043erth"), ("\u0441\u043e\u0440\u0435", "\\u0441\\u043e\\u0440\\u0435"),
    ("\u0391\u0392", "\\u0391\\u0392"), ("nor\u200bth", "nor\\u200bth"), ("nor\u034fth", "nor\\u034fth"),
    ("north\u3164", "north\\u3164"), ("north\u115f", "north\\u115f"), ("north\u2800", "north\\u2800"),
    ("\uff4eorth", "\\uff4eorth"), ("\U0001d427orth", "\\U0001d427orth"), ("n\u0335orth", "n\\u0335orth"),
    ("north\xa01", "north\\xa01"), ("site\u0661", "site\\u0661"), ("a\u2044b", "a\\u2044b")])
def test_letters_that_look_like_others_are_spelt_out(text, shown):
    """Mixed scripts, words of look-alikes only, marks of no width, blanks, wide and bold letters, other digits."""
    assert visible(text) == shown


def test_a_run_reads_completely_at_eighty_columns(home):
    text = "\n".join(approving.as_text(asked(home)["whole"]))
    assert max(map(len, text.splitlines())) <= 80
    assert "costs      epsilon 2.413" in text
    assert "reveals    how training on the rows changed a model: train, train again" in text
    assert "rounds: 5 -> 10" in text
    assert "stages[0]: not stated -> local-dp (noise = 2.5, clip = 1.0)" in " ".join(text.split())


def test_what_the_gate_left_out_reads_not_stated(home):
    lines = list(approving.as_text(asked(home)["bare"]))
    assert lines[0] == "bare: waits for approval"
    assert {"  costs      not stated", "  tasks      not stated"} <= set(lines)


def test_a_decision_is_kept_with_who_when_and_what_was_seen(home):
    run = asked(home)["whole"]
    decide(home, "whole", approved=True, shown=run.hash, by="maria", note="as agreed")
    decide(home, "bare", approved=False, shown=asked(home)["bare"].hash, by="jo")
    assert [(entry["event"], entry["run"], entry["by"], entry["note"]) for entry in history(home)] == [
        ("approved", "whole", "maria", "as agreed"), ("denied", "bare", "jo", "")]
    assert history(home)[0]["announcement"] == "a" * 64
    assert (decision(home, "whole"), decision(home, "bare")) == ("approved", "denied")
    kept = asked(home)["whole"]
    assert (kept.by, kept.note, kept.at) == ("maria", "as agreed", history(home)[0]["time"])


def test_what_changed_since_it_was_shown_is_not_decided(home):
    shown = asked(home)["bare"].hash
    ask(home.folder, "bare", {**FACTS, "rounds": 1000})
    with pytest.raises(PermissionDenied, match="it changed; look again"):
        decide(home, "bare", approved=True, shown=shown, by="maria")
    assert (decision(home, "bare"), history(home)) == ("", [])


def test_what_changes_while_it_is_decided_ends_up_denied(home, monkeypatch):
    """The coordinator announces anew between the check and the decision."""
    shown, noted = asked(home)["bare"].hash, Approvals.decide

    def late(approvals, run, *, approved):
        ask(home.folder, "bare", {**FACTS, "rounds": 1000})
        noted(approvals, run, approved=approved)

    monkeypatch.setattr(Approvals, "decide", late)
    with pytest.raises(PermissionDenied, match="it changed"):
        decide(home, "bare", approved=True, shown=shown, by="maria")
    assert (decision(home, "bare"), history(home)) == ("denied", [])


def test_a_run_that_does_not_wait_cannot_be_decided(home):
    with pytest.raises(ConfigError, match=r"no run '\.\./\.\./etc' waits"):
        decide(home, "../../etc", approved=True, shown="", by="maria")


def test_a_history_that_was_rewritten_is_refused(home):
    decide(home, "bare", approved=False, shown=asked(home)["bare"].hash, by="maria")
    path = home.folder / "decisions.jsonl"
    path.write_text(path.read_text().replace("denied", "approved"))
    with pytest.raises(RunError, match="was changed"):
        history(home)


def test_the_person_is_who_the_system_says_and_not_the_environment(monkeypatch):
    real = approving.this_user()
    monkeypatch.setenv("LOGNAME", "the-chief")
    monkeypatch.setenv("USER", "the-chief")
    assert approving.this_user() == real != "the-chief"
