"""`tequio reproduce`: the list, the table, JSON, pieces, Ctrl-C and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tequio.cli.main import call
from tequio.studies import missing

TOY = Path(__file__).parents[1] / "experiments" / "toy_studies" / "flowers" / "study.toml"


def write_study(folder, change=("", "")):
    (folder / "flowers").mkdir(parents=True, exist_ok=True)
    (folder / "flowers" / "study.toml").write_text(TOY.read_text().replace(*change))
    return folder


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEQUIO_STUDIES", str(write_study(tmp_path / "studies")))
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def tequio(capsys):
    """Run a command line; exit code, stdout, stderr."""
    def run(*words):
        code = call(["reproduce", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def rows_of(text):
    return {row["cell"]: row for row in json.loads(text)["rows"]}


def test_without_a_study_the_studies_are_listed_with_how_much_is_finished(tequio):
    assert json.loads(tequio("--json")[1]) == {"studies": [
        {"study": "flowers", "title": "Flowers", "source": "an invented table", "cells": 3, "finished": 0}]}
    tequio("flowers", "--workers", "1", "--seeds", "1")
    assert json.loads(tequio("--json")[1])["studies"][0]["finished"] == 0
    tequio("flowers", "--workers", "1", "--cells", "one party*")
    assert json.loads(tequio("--json")[1])["studies"][0]["finished"] == 1
    assert "1 of 3 cells" in tequio()[1]


def test_the_table_has_published_ours_and_verdict_and_a_line_on_what_disagrees(tequio):
    code, out, _ = tequio("flowers", "--workers", "1")
    assert code == 0
    header = next(line for line in out.splitlines() if "published" in line)
    assert header.split() == ["cell", "published", "ours", "90", "%", "interval", "verdict"]
    accuracy = next(line for line in out.splitlines() if "all parties: accuracy" in line)
    shown = r"0\.5 ± 0\.02 +0\.\d{4} ± 0\.\d{4} \(n = 2\) +-?\d\.\d{4} to \d\.\d{4} +(better|cannot tell)"
    assert re.search(shown, accuracy)
    [disagreement] = [line for line in out.splitlines() if line.startswith("Disagrees: all parties: loss: ")]
    assert disagreement.endswith(" over; too good to be true")
    assert "Three kinds of iris." in out


def test_json_is_one_document_with_the_rows(tequio):
    code, out, _ = tequio("flowers", "--json", "--workers", "1")
    rows = rows_of(out)
    assert (code, json.loads(out)["study"], list(rows)) == (0, "flowers", [
        "all parties: accuracy", "all parties: loss", "one party a round: accuracy"])
    accuracy = rows["all parties: accuracy"]
    assert (accuracy["published"], accuracy["margin"], accuracy["seeds"]) == (0.5, 0.02, 2)
    assert accuracy["low"] <= accuracy["ours"] <= accuracy["high"]
    assert list(accuracy["values"]) == ["0", "1"]
    assert rows["one party a round: accuracy"]["published"] is None


def test_one_seed_has_no_spread(tequio):
    row = rows_of(tequio("flowers", "--json", "--seeds", "1", "--workers", "1")[1])["all parties: accuracy"]
    assert (row["seeds"], row["sd"], row["low"], row["verdict"]) == (1, None, None, "cannot tell")


def test_a_table_is_completed_in_pieces_and_equals_one_made_at_once(tequio):
    first = rows_of(tequio("flowers", "--json", "--workers", "1", "--cells", "one*", "--out", "pieces")[1])
    assert first["all parties: accuracy"]["verdict"] == "not run"
    pieces = rows_of(tequio("flowers", "--json", "--workers", "1", "--out", "pieces")[1])
    at_once = rows_of(tequio("flowers", "--json", "--workers", "1", "--out", "at_once")[1])
    assert {cell: row["ours"] for cell, row in pieces.items()} == {cell: row["ours"] for cell, row in at_once.items()}


def test_stored_shows_and_runs_nothing(tequio, monkeypatch):
    tequio("flowers", "--workers", "1", "--seeds", "1")
    monkeypatch.setattr(missing, "run_with_baselines", lambda *_, **__: pytest.fail("something was run"))
    code, out, _ = tequio("flowers", "--stored", "--json")
    assert (code, [row["seeds"] for row in json.loads(out)["rows"]]) == (0, [1, 1, 1])


def test_ctrl_c_keeps_and_shows_what_is_finished(tequio, monkeypatch):
    made, run = [], missing.run_with_baselines

    def interrupted(config, **options):
        if made:
            raise KeyboardInterrupt
        made.append(config)
        return run(config, **options)

    monkeypatch.setattr(missing, "run_with_baselines", interrupted)
    code, out, err = tequio("flowers", "--workers", "1", "--json")
    assert code == 130
    assert [row["seeds"] for row in json.loads(out)["rows"]] == [1, 1, 0]
    assert "Type the same command to go on" in err


def test_quick_says_that_it_is_not_comparable(tequio):
    _, out, _ = tequio("flowers", "--quick", "--workers", "1")
    assert "Notes: Quick form: other flowers." in out
    assert "other data" in out
    assert "agrees" not in out


def test_a_failing_run_is_reported_and_the_exit_code_says_so(tequio, tmp_path):
    write_study(tmp_path / "studies", change=("count = 1", "count = 5"))
    code, out, _ = tequio("flowers", "--workers", "1", "--seeds", "1")
    assert code == 1
    assert "one party a round: accuracy: a run failed: " in out
    assert "only 3 are eligible" in out


@pytest.mark.parametrize(("words", "complaint"), [
    (("flower",), "did you mean 'flowers'"),
    (("flowers", "--cells", "*CNN*"), "no cell of 'flowers' fits '*CNN*'"),
    (("flowers", "--seeds", "0"), "--seeds"),
    (("flowers", "--budget", "2 hours"), "'2 hours' is no time; type, for instance, 90s, 30m or 2h"),
])
def test_what_is_asked_wrongly_is_refused(tequio, words, complaint):
    code, out, err = tequio(*words)
    assert (code, out) == (2, "")
    assert complaint in err


def test_all_studies_one_after_the_other_with_their_numbers_kept(tequio, tmp_path):
    code, out, _ = tequio("--all", "--stored", "--json")
    study, = json.loads(out)["studies"]
    assert (code, study["study"], [row["verdict"] for row in study["rows"]]) == (0, "flowers", ["not run"] * 3)
    code, out, err = tequio("--all", "--workers", "1", "--keep")
    assert code == 0
    assert "flowers" in out
    assert "kept 3 new numbers" in err
    kept = json.loads((tmp_path / "studies" / "flowers" / "results.json").read_text())
    assert {tuple(cell["by_seed"]) for cell in kept["cells"].values()} == {("0", "1")}
    assert "kept 0 new numbers" in tequio("flowers", "--stored", "--keep")[2]


def test_stored_shows_kept_numbers_where_no_runs_are(tequio):
    tequio("flowers", "--workers", "1", "--keep", "--out", "elsewhere")
    rows = rows_of(tequio("flowers", "--stored", "--json")[1])
    assert [row["seeds"] for row in rows.values()] == [2, 2, 2]
    assert {row["seeds"] for row in rows_of(tequio("flowers", "--workers", "1", "--cells", "one*", "--seeds", "1",
                                                   "--json")[1]).values()} == {0, 1}


def test_resume_runs_what_kept_numbers_lack_and_keeps_both(tequio, tmp_path, monkeypatch):
    tequio("flowers", "--workers", "1", "--seeds", "1", "--keep", "--out", "elsewhere")
    made, run = [], missing.run_with_baselines
    monkeypatch.setattr(missing, "run_with_baselines",
                        lambda config, **options: made.append(config.seed) or run(config, **options))
    code, out, _ = tequio("flowers", "--workers", "1", "--resume", "--keep", "--json")
    assert (code, made) == (0, [1, 1])
    assert [row["seeds"] for row in json.loads(out)["rows"]] == [2, 2, 2]
    kept = json.loads((tmp_path / "studies" / "flowers" / "results.json").read_text())
    assert {tuple(cell["by_seed"]) for cell in kept["cells"].values()} == {("0", "1")}
    assert tequio("flowers", "--workers", "1", "--resume", "--json", "--out", "third")[0] == 0
    assert made == [1, 1]


def test_a_budget_stops_cleanly_and_the_same_command_goes_on(tequio, monkeypatch):
    clock = iter(range(0, 10**6, 20))
    monkeypatch.setattr(missing.time, "monotonic", lambda: next(clock))
    words = ("--all", "--resume", "--workers", "1", "--json", "--budget")
    code, out, err = tequio(*words, "100s")
    assert (code, len(json.loads(out)["studies"])) == (0, 1)
    assert "The budget is spent; what is finished is kept. Type the same command to go on." in err
    assert sum(row["seeds"] for row in json.loads(out)["studies"][0]["rows"]) < 6
    code, out, err = tequio(*words, "2h")
    assert [row["seeds"] for row in json.loads(out)["studies"][0]["rows"]] == [2, 2, 2]
    assert "budget" not in err


def test_claims_are_shown_below_the_tables(tequio, tmp_path):
    place = tmp_path / "studies" / "flowers" / "study.toml"
    place.write_text(place.read_text() + """
[[claims]]
says = "Iris is easy"
where = "table 1"
holds = ["all parties: accuracy > 0.1"]
""")
    assert re.search(r"an invented table +Iris is easy +open \(not run\)", tequio("--all", "--stored")[1])
    tequio("flowers", "--workers", "1")
    assert re.search(r"an invented table +Iris is easy +(confirmed|open)", tequio("--all", "--stored")[1])
    claim, = json.loads(tequio("flowers", "--stored", "--json")[1])["claims"]
    assert claim["statements"][0]["difference"] > 0.1


def test_all_studies_can_be_stopped(tequio, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(missing, "run_with_baselines", interrupt)
    code, _, err = tequio("--all", "--workers", "1")
    assert code == 130
    assert "what is finished is kept" in err
