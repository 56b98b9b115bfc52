"""What really happened is joined with what was answered: exactly once, by version, and everything odd is counted."""

from __future__ import annotations

import json
from math import log as ln

import pytest

from models.in_use import outcomes
from tequio.cli.main import call
from tequio.errors import ConfigError, DataError, RunError
from tequio.models.answers_log import Answered, AnswersLog
from tequio.models.outcomes import add_outcomes, counts_by_version, read_outcomes

EARLY, LATER = "2026-01-01T00:00:00+00:00", "2026-01-05T00:00:00Z"


@pytest.fixture
def log(in_trial):
    """Answers of both versions to some ids; ids are text, however much they look like numbers."""
    one, two = (in_trial.version(number).sha256 for number in (1, 2))
    sure, unsure = {"0": 0.9, "1": 0.1}, {"0": 0.4, "1": 0.6}
    with AnswersLog(in_trial.answers) as answers:
        answers.write([
            Answered("12345678901234567890", one, 0, sure, time=EARLY), Answered("007", one, 0, sure, time=EARLY),
            Answered("twice", one, 0, sure, time=EARLY), Answered("twice", one, 1, unsure, time=LATER),
            Answered("both", one, 0, sure, time=EARLY), Answered("both", two, 1, unsure, time=EARLY),
            Answered("elsewhere", "f" * 64, 0, sure, time=EARLY)])
    with in_trial.answers.open("a") as file:
        file.write('{"id": "broken"\n')
    return in_trial.answers


def table(folder, *lines, head="id,outcome"):
    path = folder / "happened.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def test_each_answer_is_scored_once(in_trial, log, tmp_path):
    found = add_outcomes(in_trial, table(tmp_path, "12345678901234567890,1", "007,0", "twice,1", "both,0", "nobody,1",
                                         "elsewhere,0", "both,0", "12345678901234567891,1", "007,"))
    assert (found.given, found.joined, found.versions) == (9, 5, {1: 4, 2: 1})
    assert (found.repeated, found.unknown, found.without_outcome, found.other_models) == (1, 2, 1, 1)
    assert (found.answered_twice, found.damaged, found.changed, found.late) == (1, 1, 0, 0)
    known = {(one.id, one.version[:4]): one.values for one in read_outcomes(in_trial)}
    first, second = (in_trial.version(number).sha256[:4] for number in (1, 2))
    assert known["12345678901234567890", first] == {"accuracy": 0.0, "brier": pytest.approx(2 * 0.81),
                                                    "log_loss": pytest.approx(-ln(0.1))}
    assert known["twice", first]["accuracy"] == 1.0  # the last answer
    assert (known["both", first]["accuracy"], known["both", second]["accuracy"]) == (1.0, 0.0)
    assert counts_by_version(in_trial) == {1: 4, 2: 1}


def test_what_is_added_again_counts_once_and_what_changed_counts_anew(in_trial, log, tmp_path):
    add_outcomes(in_trial, table(tmp_path, "007,0", "both,0"))
    again = add_outcomes(in_trial, table(tmp_path, "007,0", "both,1"))
    assert (again.joined, again.repeated, again.changed) == (2, 1, 2)  # of both versions
    assert {one.id: one.truth for one in read_outcomes(in_trial)} == {"007": "0", "both": "1"}
    assert [entry["facts"]["file"] for entry in in_trial.audit.entries() if entry["what"] == "outcomes"] == \
        ["0001.jsonl", "0002.jsonl"]


def test_times_decide_what_is_late_and_what_came_before_the_answer(in_trial, log, tmp_path):
    lines = ("007,0,2026-01-03", "twice,0,2026-01-02T00:00:00+00:00", "both,0,2025-12-31T00:00:00",
             "12345678901234567890,0,2026-02-01")
    found = add_outcomes(in_trial, table(tmp_path, *lines, head="id,outcome,time"), within_days=7)
    assert (found.joined, found.before_answer, found.late) == (2, 1, 1)
    assert {one.id: one.values["accuracy"] for one in read_outcomes(in_trial)} == {"007": 1.0, "twice": 1.0}


def test_groups_are_the_columns_with_few_values(in_trial, log, tmp_path):
    found = add_outcomes(in_trial, table(tmp_path, *(f"id{row},0,x,note {row}" for row in range(30)), "007,0,y,hello",
                                         head="id,outcome,sex,note"))
    assert (found.groups, found.ignored) == (("sex",), ("note",))
    assert [one.groups for one in read_outcomes(in_trial)] == [{"sex": "y"}]


def test_outcomes_of_versions_that_are_gone_are_kept_and_counted(in_trial, log, tmp_path):
    in_trial.promote()
    assert add_outcomes(in_trial, table(tmp_path, "007,0", "both,0")).retired == 2


@pytest.mark.parametrize(("lines", "head", "message"), [
    (["007,yes"], "id,outcome", r"row 0 of the outcomes has 'yes', which the model does not know"),
    (["007,0"], "key,outcome", "no column 'id'"), (["007,0"], "id,result", "no column that says what happened"),
    (["007,0,soon"], "id,outcome,time", "row 0 of the outcomes has 'soon' for a time"),
])
def test_tables_that_cannot_be_meant_are_refused(in_trial, log, tmp_path, lines, head, message):
    with pytest.raises(DataError, match=message):
        add_outcomes(in_trial, table(tmp_path, *lines, head=head))
    assert read_outcomes(in_trial) == []


def test_numbers_labels_and_clusters(in_trial, tmp_path):
    one = in_trial.version(1).sha256
    path = table(tmp_path, "a,3.5")
    with AnswersLog(in_trial.answers) as answers:
        answers.write([Answered("a", one, 2.0, value=2.0)])
    add_outcomes(in_trial, path)
    assert read_outcomes(in_trial)[0].values == {"absolute_error": 1.5, "squared_error": 2.25}
    for text in ("inf", "much"):
        with pytest.raises(DataError, match="which is no number"):
            add_outcomes(in_trial, table(tmp_path, f"a,{text}"))
    path = table(tmp_path, "a,3.5")
    with AnswersLog(tmp_path / "labels.jsonl") as answers:
        answers.write([Answered("a", one, ["x"], {"x": 0.9, "y": 0.4, "z": 0.0})])
    add_outcomes(in_trial, table(tmp_path, "a,x;y"), answers=tmp_path / "labels.jsonl")
    assert read_outcomes(in_trial)[0].values == {"label_accuracy": pytest.approx(2 / 3), "exact_match": 0.0,
                                                 "brier": pytest.approx((0.01 + 0.36) / 3)}
    with AnswersLog(tmp_path / "clusters.jsonl") as answers:
        answers.write([Answered("a", one, 3)])
    with pytest.raises(ConfigError, match="neither right nor wrong"):
        add_outcomes(in_trial, path, answers=tmp_path / "clusters.jsonl")


def test_outcomes_that_were_changed_are_refused(in_trial):
    outcomes(in_trial, 1, 20, 0.5)
    path = in_trial.folder / "outcomes" / "0001.jsonl"
    path.write_text(path.read_text().replace('"accuracy": 0.0', '"accuracy": 1.0'))
    with pytest.raises(RunError, match="is not what was written"):
        read_outcomes(in_trial)
    assert call(["models", "audit", "risk", "--folder", str(in_trial.parent)]) == 8


def test_a_crash_before_the_log_is_written_leaves_nothing_behind(in_trial, monkeypatch):
    from tequio.models.audit import Audit

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Audit, "add", crash)
        with pytest.raises(KeyboardInterrupt):
            outcomes(in_trial, 1, 20, 0.5)
    assert read_outcomes(in_trial) == []
    assert outcomes(in_trial, 1, 30, 0.5).joined == 30
    assert len(read_outcomes(in_trial)) == 30


def test_the_command_says_what_did_not_fit(in_trial, log, tmp_path, capsys):
    path = str(table(tmp_path, "007,0", "nobody,1"))
    assert call(["models", "outcomes", "risk", path, "--folder", str(in_trial.parent)]) == 0
    assert capsys.readouterr().out == ("1 of 2 outcomes joined (version 1: 1).\n"
                                       "  1 have an id that was never answered; left out.\n"
                                       "  1 lines of the answer log are damaged.\n")
    assert call(["models", "list", "--folder", str(in_trial.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["risk"]["outcomes"] == {"1": 1, "2": 0}
    assert call(["models", "outcomes", "risk", path, "--folder", str(in_trial.parent), "--answers", "none.jsonl"]) == 3
