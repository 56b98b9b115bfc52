"""`tequio policy`: policies to start from, and one tried on a config before it is signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tequio.errors import PermissionDenied
from tequio.gate.policy import policy_file, read_policy, shipped

EXAMPLES = Path(__file__).parents[2] / "examples"

STOPPED_BY_HOSPITAL = {
    "deadlines": {"(the run)", "train"}, "selection": {"(the run)"}, "private": {"(the run)", "train"},
    "resilience": {"(the run)", "fedprox.train"},
    "trees": {"icdta4fl: fit tree", "icdta4fl: cross-evaluate", "adopt if better"},
    "hospital-and-laboratory": {"(the run)", "secureboost: derive", "vertical trees: offer", "vertical trees: choose",
                                "vertical trees: divide", "vertical trees: route"}}
"""By example what a hospital would refuse of it: parties with few rows, columns of two parties, and what a run sets for
one party alone. All other examples do their work; a strict party with a budget stops each of them."""

WORK = """
rounds = 2
[data]
name = "breast-cancer"
prepare = ["standardise"]
split = {validation = 0.1, test = 0.1}
partition = {name = "iid", parties = 8}
[engine]
workers = 1
"""


@pytest.fixture(autouse=True)
def _small_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_list_names_three_from_the_most_open_to_the_strictest(tequio):
    code, out, _ = tequio("policy", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == ["open", "hospital", "strict"]
    assert max(map(len, out.splitlines())) <= 80
    assert "hospital  For a party that trains with others and answers for its patients.\n" in out


@pytest.mark.parametrize("name", shipped())
def test_show_prints_a_file_to_start_from(name, tequio, tmp_path):
    code, out, _ = tequio("policy", "show", name)
    (tmp_path / "policy.toml").write_text(out)
    assert code == 0
    assert read_policy(tmp_path / "policy.toml", required=True) == read_policy(policy_file(name))
    assert tequio("policy", "show", "policy.toml")[1] == out


def test_show_says_which_there_are(tequio):
    code, _, err = tequio("policy", "show", "hopsital")
    assert code != 0
    assert "open, hospital, strict" in " ".join(err.split())


@pytest.mark.parametrize("policy", shipped())
@pytest.mark.parametrize("example", sorted(path.stem for path in EXAMPLES.glob("*.toml")))
def test_every_example_can_be_tried(example, policy, tequio, tmp_path):
    code, out, err = tequio("policy", "try", policy, str(EXAMPLES / f"{example}.toml"))
    lines = out.splitlines()
    allowed = policy == "open" or (policy == "hospital" and example not in STOPPED_BY_HOSPITAL)
    assert code == (0 if allowed else PermissionDenied.exit_code), out + err
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert lines[0].startswith(f"{policy} on {example}.toml: ")
    assert lines[-1] == ("this policy lets the run do its work" if allowed else "this policy would stop the run")
    assert any(line.split() == ["task", "reveals", "verdict"] for line in lines[:4])
    assert ("refused" in out) == (not allowed)
    assert ("a person approves each run before it begins" in out) == (policy != "open")
    assert ("cost of what is allowed: epsilon " in out) == (policy == "strict")
    if policy == "hospital":
        reasons = " ".join(" ".join(lines).split())
        refused = STOPPED_BY_HOSPITAL.get(example, ())
        assert reasons.count("the party's policy refuses: ") == len(refused)
        assert [task for task in refused if f" {task}: the party's policy refuses: " not in reasons] == []
    assert not list(tmp_path.iterdir())  # nothing is left of it


def test_json_has_what_is_refused_and_why(tequio):
    code, out, _ = tequio("policy", "try", "hospital", str(EXAMPLES / "trees.toml"), "--json")
    found = json.loads(out)
    refused = {task["task"]: task for task in found["tasks"] if task["refused"]}
    assert (code, found["allowed"], found["approval"], found["epsilon"]) == (5, False, "run", None)
    assert set(refused) == STOPPED_BY_HOSPITAL["trees"]
    for task in refused.values():
        assert task["cause"].startswith("the party's policy refuses: ")
        assert task["remedy"].startswith("the party's owner decides: ")


@pytest.mark.parametrize(("work", "tasks"), [
    ('algorithm = "fedavg"\nlearner = "logistic"\nlocal = {epochs = 1, batch = 16}', {"train", "evaluate"}),
    ('algorithm = "fedavg"\nlearner = "logistic"\nlocal = {epochs = 1, batch = 16}\n[[stages]]\nname = "secure-sum"',
     {"train", "evaluate", "secure-sum.masked"}),
    ('algorithm = "icdta4fl"\nlearner = {name = "cart", min_leaf = 5}',
     {"icdta4fl: fit tree", "icdta4fl: cross-evaluate", "evaluate"}),
    ('algorithm = {name = "statistics", minimum_count = 5}', {"statistics: summary"})],
    ids=["fedavg", "secure-sum", "icdta4fl", "statistics"])
def test_a_hospital_lets_these_do_their_work(work, tasks, tequio, tmp_path):
    """Among eight parties with 56 rows each, of which some 45 are for training."""
    head, stages, rest = work.partition("[[stages]]")
    (tmp_path / "work.toml").write_text(head + WORK + stages + rest)
    code, out, err = tequio("policy", "try", "hospital", "work.toml", "--json")
    assert code == 0, out + err
    found = json.loads(out)
    assert (found["allowed"], found["problem"], found["parties"]) == (True, "", 8)
    assert tasks <= {task["task"] for task in found["tasks"]}
    assert not any(task["refused"] for task in found["tasks"])
    code, out, err = tequio("run", "work.toml", "--policy", "hospital", "--json")
    assert code == 0, out + err


@pytest.mark.parametrize("algorithm", ["icdta4fl-plus", "icdta4fl"])
@pytest.mark.parametrize("learner", ["cart", "id3"])
def test_the_remedy_for_leaves_lets_trees_do_their_work_at_all_but_too_small_a_clinic(algorithm, learner, tequio):
    common = ["policy", "try", "hospital", str(EXAMPLES / "trees.toml"), "--set", f"algorithm.name={algorithm}",
              "--set", f"learner.name={learner}"]
    assert "set learner.min_leaf = 5" in " ".join(tequio(*common)[1].split())
    code, out, _ = tequio(*common, "--set", "learner.min_leaf=5")
    assert code == 5
    assert "refused at 1 of 8" in out
    assert "refused by: party 2 (16 rows to train on)" in out
    assert "lower data.split.validation and data.split.test" in " ".join(out.split())
    code, out, _ = tequio(*common, "--set", "learner.min_leaf=5", "--set", "data.partition.minimum_rows=30")
    assert (code, out.splitlines()[-1]) == (0, "this policy lets the run do its work")


def test_a_setting_can_be_tried_with_it(tequio, tmp_path):
    (tmp_path / "work.toml").write_text('learner = "logistic"\nlocal = {epochs = 1, batch = 4}\n' + WORK)
    code, out, _ = tequio("policy", "try", "hospital", "work.toml", "--json")
    assert code == 5
    assert "set local.batch = 8 or more" in next(task for task in json.loads(out)["tasks"] if task["refused"])["remedy"]
    assert tequio("policy", "try", "hospital", "work.toml", "--set", "local.batch=8")[0] == 0


def test_a_run_under_a_policy_says_who_refused_what(tequio, tmp_path):
    (tmp_path / "work.toml").write_text('learner = "logistic"\nlocal = {epochs = 1, batch = 4}\n' + WORK)
    code, _, err = tequio("run", "work.toml", "--policy", "hospital")
    assert code != 0
    said = " ".join(err.replace("│", " ").split())
    assert "party '0' failed in round 1 at task 'train': the party's policy refuses: a step" in said


def test_a_config_for_real_parties_is_rehearsed_instead(tequio, tmp_path):
    (tmp_path / "real.toml").write_text('[data]\nname = "parties"\nparties = ["north", "south"]\n')
    code, _, err = tequio("policy", "try", "hospital", "real.toml")
    assert code != 0
    assert "tequio coordinator ready FILE.toml" in " ".join(err.split())
