"""Fifteen mistakes as newcomers make them: each gives one sentence and the key to type, and leaves nothing behind."""

from __future__ import annotations

import os
import tomllib

import pytest

import tequio as package
from tequio.engines import local
from tequio.errors import TequioError
from tequio.experiments import sweep
from tequio.experiments.config.toml import write_toml

HEAD = "age,weight,day,hospital,sick,cost"
ROWS = [f"{20 + row},{60 + row % 7}.5,2024-01-{1 + row % 28:02d},{'abc'[row % 3]},{'yes' if row % 4 < 2 else 'no'},"
        f"{row / 7:.2f}" for row in range(60)]
DATA = {"name": "csv", "path": "patients.csv", "target": "sick", "group": "hospital", "partition": {"name": "natural"}}


def changed(row, column, value):
    """The table with one cell changed."""
    cells = [line.split(",") for line in ROWS]
    cells[row][HEAD.split(",").index(column)] = value
    return [HEAD, *map(",".join, cells)]


TABLES = {"empty cell": changed(4, "age", ""), "odd date": changed(6, "day", "31/31/2024"),
          "few rows": [HEAD, *ROWS[:4]], "no rows": [HEAD], "one row": [HEAD, ROWS[0]],
          "two of a name": [HEAD.replace("weight", "age"), *ROWS],
          "one class": [HEAD, *(row.replace("yes", "no") for row in ROWS)]}

MISTAKES = {
    "typo in a key": ("", {"ruonds": 3}, 2, "patients.toml has no key 'ruonds'", "did you mean 'rounds'?"),
    "wrong type": ("", {"rounds": "many"}, 2, "'rounds': input should be a valid integer", "set rounds = 10"),
    "wrong type in a component": ("", {"local": {"learning_rate": "high"}}, 2,
                                  "'learning_rate': input should be a valid number", "set local.learning_rate = 0.1"),
    "neither list nor table": ("", {"data": {"columns": 5}}, 2, "'columns': input should be a valid list",
                               "write data.columns as a list or a table"),
    "wrong column in a list": ("", {"data": {"columns": ["age", "wieght"]}}, 3, "'patients' has no column 'wieght'",
                               "correct data.columns: did you mean 'weight'?"),
    "folder for a file": ("", {"data": {"path": "../"}}, 3, "is a folder",
                          "give the path of a file in it in data.path"),
    "no target": ("", {"data": {"target": None}}, 3, "there is nothing to predict", 'set data.target = "COLUMN"'),
    "no rows": ("no rows", {}, 3, "'patients' has no rows", "one below the names"),
    "one row": ("one row", {}, 3, "less than one row", "set data.test = 0.0"),
    "missing file": ("", {"data": {"path": "patient.csv"}}, 3, "there is no file 'patient.csv'",
                     'did you mean \'patients.csv\'? Then set data.path = "patients.csv"'),
    "wrong target": ("", {"data": {"target": "sik"}}, 3, "'patients' has no column 'sik'",
                     'did you mean \'sick\'? Then set data.target = "sick"'),
    "missing value": ("empty cell", {}, 3, "column 'age' has 1 missing value (row 4", "data.missing = "),
    "too few rows": ("few rows", {"data": {"partition": {"name": "iid"}}}, 3, "rows, but 10 parties",
                     "set data.partition.parties = "),
    "learner against algorithm": ("", {"learner": {"name": "cart"}}, 2, "for 'cart' use",
                                  "set algorithm.name = 'icdta4fl', or learner.name = 'logistic'"),
    "text as a number": ("", {"data": {"target_kind": "number"}}, 3, "column 'sick' has to hold numbers",
                         'data.target_kind = "classes"'),
    "regression of classes": ("", {"learner": {"name": "sgd-regressor"}}, 3, "'sick' is of kind 'classes'",
                              'set learner.name = "logistic"'),
    "unwritable folder": ("", {"output": {"folder": "patients.csv/runs"}}, 8, "'patients.csv/runs' cannot be written",
                          "set output.folder to another one (--out FOLDER)"),
    "duplicate column": ("two of a name", {}, 3, "2 columns called 'age'", "rename all but one"),
    "wrong party column": ("", {"data": {"group": "hopsital"}}, 3, "'patients' has no column 'hopsital'",
                           'did you mean \'hospital\'? Then set data.group = "hospital"'),
    "no party column": ("", {"data": {"group": None}}, 3, "does not say whose row is whose",
                        'data.group = "COLUMN"; or set data.partition = "iid"'),
    "one class": ("one class", {}, 3, "nothing to learn: 'sick' is 'no' in every row", 'data.target = "COLUMN"'),
    "odd date": ("odd date", {"data": {"columns": {"day": "date"}}}, 3, "column 'day' has dates that cannot be read",
                 "data.columns.day = "),
    "typo in an engine key": ("", {"engine": {"worker": 1}}, 2, "'local' has no parameter 'worker'",
                              "did you mean 'workers'?"),
    "key of another engine": ("", {"engine": {"address": "auto"}}, 2,
                              "'local' has no parameter 'address'; it is one of 'ray'", 'set engine.name = "ray"'),
    "too many workers": ("", {"engine": {"workers": 99999}}, 2, "engine.workers = 99999 is more than this machine can "
                         f"do: it has {os.cpu_count()} cores", f"set engine.workers = {os.cpu_count()}"),
}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Writes a table and a config, both with one mistake in them; the names of the files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    for module in (local, sweep):  # a hundred thousand processes are no way for a test to fail
        monkeypatch.setattr(module, "_start", lambda *given: pytest.fail("workers were started"))

    def write(table, keys):
        (tmp_path / "patients.csv").write_text("\n".join(TABLES.get(table, [HEAD, *ROWS])) + "\n")
        data = {key: value for key, value in {**DATA, **keys.get("data", {})}.items() if value is not None}
        config = {"rounds": 1, "engine": {"workers": 1}, **keys, "data": data}
        (tmp_path / "patients.toml").write_text(write_toml(config))
        return {"patients.csv", "patients.toml"}

    return write


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gives_one_sentence_and_the_key_to_type(mistake, make, tmp_path, tequio):
    table, keys, exit_code, sentence, remedy = MISTAKES[mistake]
    files = make(table, keys)
    code, out, err = tequio("run", "patients.toml")
    assert (code, out) == (exit_code, "")
    assert sentence in err
    assert remedy in err.partition("What to do: ")[2]
    assert "Traceback" not in err
    assert "resume" not in err
    assert {path.name for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("mistake", MISTAKES)
def test_in_python_it_is_the_same_sentence(mistake, make):
    table, keys, exit_code, sentence, remedy = MISTAKES[mistake]
    make(table, keys)
    with pytest.raises(TequioError) as caught:
        package.run("patients.toml")
    assert sentence in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize(("file", "sentence", "remedy"), [
    ("patients.csv", "'patients.csv' is a table, not a config", "tequio init patients.csv"),
    ("patient.toml", "there is no file 'patient.toml'", "did you mean 'patients.toml'?"),
])
def test_what_is_no_config_is_answered_with_what_to_type(file, sentence, remedy, make, tequio):
    make("", {})
    code, out, err = tequio("run", file)
    assert (code, out) == (2, "")
    assert sentence in err
    assert remedy in err.partition("What to do: ")[2]


@pytest.mark.parametrize("rows", [[{"age": 3, "sick": "yes"}] * 9, iter([1]), 7])
def test_what_is_neither_config_nor_table_is_refused(rows):
    with pytest.raises(TequioError, match=r"pandas\.DataFrame\(rows\)"):
        package.run(rows, target="sick")


def test_without_a_mistake_it_runs(make, tmp_path, tequio):
    make("", {"data": {"columns": {"day": "date"}}})
    code, _, err = tequio("run", "patients.toml", "--quiet")
    assert (code, err) == (0, "")
    assert tomllib.loads(next(tmp_path.glob("runs/*/config.toml")).read_text())["rounds"] == 1


def test_workers_are_refused_on_the_command_line_and_for_sweeps_too(make, tmp_path, tequio):
    files = make("", {})
    for words in (["--workers", "99999"], ["--set", "sweep.seeds=[0,1]", "--workers", "99999"]):
        code, _, err = tequio("run", "patients.toml", *words)
        assert code == 2
        assert "engine.workers = 99999" in err
        assert {path.name for path in tmp_path.iterdir()} == files
