"""`tequio init`: what it writes, prints and refuses."""

from __future__ import annotations

import json
import tomllib

import pytest

from patients import LEAK, patients, write
from tequio import load, run


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A newcomer's table in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return write(tmp_path / "patients.csv", patients())


ASKED = ("init", "patients.csv", "--target", "readmitted", "--party", "Hospital")


def test_it_writes_a_config_and_a_picture_and_says_what_is_next(table, tequio):
    code, out, _ = tequio(*ASKED)
    assert code == 0
    assert tomllib.loads((table.parent / "patients.toml").read_text())["data"]["target"] == "readmitted"
    assert (table.parent / "patients.png").read_bytes()[:4] == b"\x89PNG"
    assert [line.rstrip() for line in out.splitlines()[-3:]] == [
        "config   patients.toml", "picture  patients.png", "next     tequio run patients.toml"]
    assert max(map(len, out.splitlines())) <= 80


def test_its_document_has_what_was_found_and_where_it_was_written(table, tequio):
    code, out, _ = tequio(*ASKED, "--json", "--out", "deep/mine.toml", "--picture", "mine.svg")
    found = json.loads(out)
    assert (code, found["config"], found["picture"]) == (0, "deep/mine.toml", "mine.svg")
    assert {column["name"]: column["role"] for column in found["columns"]}[LEAK] == "out"
    assert found["target"]["classes"] == {"no": 1116, "yes": 84}
    assert tomllib.loads((table.parent / "deep" / "mine.toml").read_text())["data"]["path"] == str(table)
    assert (table.parent / "mine.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("taken", ["patients.toml", "patients.png"])
def test_what_is_there_is_only_replaced_by_force(table, tequio, taken):
    path = table.parent / taken
    path.write_text("mine")
    code, _, err = tequio(*ASKED)
    assert (code, path.read_text()) == (2, "mine")
    assert "--force" in err
    assert len(list(table.parent.iterdir())) == 2  # nothing else was written
    assert tequio(*ASKED, "--force")[0] == 0
    assert path.read_bytes() != b"mine"


def test_without_a_target_it_shows_the_table_and_asks(table, tequio):
    code, out, err = tequio("init", "patients.csv")
    assert code == 3
    assert "type --target 'readmitted'" in err
    assert "target   not said; --target 'readmitted'?" in out
    assert "Arztbrief (frei)" in out
    assert list(table.parent.iterdir()) == [table]


def test_a_table_that_no_run_could_use_is_shown_and_refused(table, tequio):
    table.write_text("x,y\n" + "1.5,a\n" * 30)
    code, out, err = tequio("init", "patients.csv", "--target", "y")
    assert code == 3
    assert "'y' has one class only" in err
    assert "x" in out
    assert list(table.parent.iterdir()) == [table]


@pytest.mark.parametrize(("words", "said"), [
    (("init", "patient.csv"), "did you mean 'patients.csv'?"),
    (("init", "patients.csv", "--target", "readmited"), "did you mean 'readmitted'?"),
    ((*ASKED, "--picture", "p.gif"), ".png or .svg"),
    ((*ASKED, "--out", "patients.csv/x.toml", "--picture", "p.png"), "cannot be written"),
    ((*ASKED, "--picture", "patients.csv/p.png"), "cannot be saved")])
def test_mistakes_say_what_to_type_and_write_nothing(table, tequio, words, said):
    code, _, err = tequio(*words)
    assert code in (2, 3)
    assert said in " ".join(err.replace("│", "").split())
    assert not list(table.parent.glob("*.toml"))


def test_without_matplotlib_there_is_a_config_and_a_word_on_the_picture(table, tequio, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    code, out, _ = tequio(*ASKED)
    assert code == 0
    assert "not drawn; type: pip install 'tequio[report]'" in out
    assert (table.parent / "patients.toml").exists()


def test_the_config_runs_and_learns_from_the_right_columns(table, tequio):
    assert tequio(*ASKED)[0] == 0
    code, out, err = tequio("run", "patients.toml", "--set", "baselines=[]", "--set", "engine.workers=1")
    assert code == 0, err
    assert "balanced accuracy" in out
    model = load("last")
    kinds = {feature.column: feature.kind for feature in model.reading.schema.features}
    assert kinds == {"admitted on": "date", "Arztbrief (frei)": "text", "Größe [cm]": "number", 'CRP "mg/l"': "number",
                     "age": "number", "severity": "ordered", "smoker?": "category", "name": "category"}
    # what was made up depends on age and severity, which single columns show to 0.84 at most
    assert 0.86 < model.score("patients.csv")["auc"] < 0.98


@pytest.mark.parametrize(("target", "rows"), [("y", 60), ("number", 60), ("y", 20)])
def test_plain_small_tables_run_too(table, tequio, target, rows):
    table.write_text("a,y,number\n" + "".join(f"{row * 7 % 11}.5,{'ab'[row % 2]},{row * 13 % 29 / 4}\n"
                                              for row in range(rows)))
    assert tequio("init", "patients.csv", "--target", target)[0] == 0
    code, _, err = tequio("run", "patients.toml", "--set", "baselines=[]", "--set", "engine.workers=1")
    assert code == 0, err


@pytest.mark.parametrize(("algorithm", "learner"), [("icdta4fl", "cart"), ("fedrf", "random-forest")])
def test_trees_take_the_table_by_the_same_config(table, tequio, algorithm, learner):
    assert tequio(*ASKED)[0] == 0
    config = tomllib.loads((table.parent / "patients.toml").read_text())
    result = run({**{key: value for key, value in config.items() if key != "local"}, "algorithm": algorithm,
                  "learner": learner, "baselines": [], "engine": {"workers": 1}})
    assert result.summary["metrics"]["test.auc"] > 0.7
    assert "  test balanced accuracy 0." in repr(result)
