"""`tequio party check`: what differs, a mapping to start from, and whether the table can be read then."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest


@pytest.fixture
def hospital(tmp_path, monkeypatch, tequio):
    """A schema of one hospital, and the table of another with pounds, points and codes of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(4)
    rows = [(f"{rng.normal(80, 10):.1f}", rng.choice(["yes", "no"]), rng.choice(["low", "high"])) for _ in range(60)]
    (tmp_path / "north.csv").write_text("weight,smokes,risk\n" + "".join(f"{w},{s},{r}\n" for w, s, r in rows))
    tequio("data", "schema", "north.csv", "--target", "risk", "--unit", "weight=kg", "--out", "schema.json")
    codes = {"low": "A", "high": "B"}
    theirs = "".join(f"p{row};{float(w) / 0.45359237:.1f};{s[0].upper()};{codes[r]}\n".replace(".", ",")
                     for row, (w, s, r) in enumerate(rows))
    (tmp_path / "south.csv").write_text("Patient;WT_LB;SMK;Risk\n" + theirs)
    return tmp_path


def flat(text):
    return " ".join(text.split())


def test_differences_stand_side_by_side_and_a_completed_proposal_fits(hospital, tequio):
    code, out, _ = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json", "--id", "Patient",
                          "--propose", "map.toml")
    assert code == 3
    assert max(map(len, out.splitlines())) <= 80
    first = out.splitlines()[1]
    assert first.startswith("WT_LB")
    assert "weight: number, kg, 60 to 90" in first
    assert "lb->kg" in out
    text = (hospital / "map.toml").read_text()
    assert tomllib.loads(text) == {
        "decimal": ",", "rename": {"WT_LB": "weight", "SMK": "smokes", "Risk": "risk"}, "units": {"weight": "lb->kg"},
        "codes": {"smokes": {"N": "no", "Y": "yes"}, "risk": {}}}
    (hospital / "map.toml").write_text(text.replace('# A = "high"  or  "low"', 'A = "low"')
                                       .replace('# B = "high"  or  "low"', 'B = "high"'))
    code, out, _ = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json", "--id", "Patient",
                          "--mapping", "map.toml")
    assert (code, out.strip()) == (0, "south.csv follows the schema: 60 rows.")


def test_missing_values_are_counted_with_what_to_type(hospital, tequio):
    with (hospital / "north.csv").open("a") as file:
        file.write(",yes,low\n")
    code, out, _ = tequio("party", "check", "--data", "north.csv", "--schema", "schema.json")
    assert code == 0
    assert "1 row misses a value: join with --missing drop, keep or median." in flat(out)


def test_as_json_it_says_the_same(hospital, tequio):
    code, out, _ = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json", "--json")
    said = json.loads(out)
    assert code == 3
    assert (said["fits"], said["rows"]) == (False, None)
    assert said["proposal"]["ignore"] == ["Patient"]
    assert {"here": "Patient", "schema": "", "what": "not in the schema"} in said["differences"]


def test_units_are_compared_with_quantiles_of_a_run(hospital, tequio):
    (hospital / "look.toml").write_text(
        'name = "look"\nrounds = 1\nalgorithm = {name = "statistics", quantiles = [0.25, 0.5, 0.75], columns = '
        '["weight"]}\n[data]\nname = "csv"\npath = "north.csv"\ntarget = "risk"\ncolumns = ["weight"]\n'
        'split = {validation = 0.0, test = 0.0}\npartition = {name = "iid", parties = 2}\nprepare = []\n'
        '[engine]\nworkers = 1\n')
    assert tequio("run", "look.toml")[0] == 0
    run = next((hospital / "runs").iterdir())
    schema = (hospital / "schema.json").read_text()
    (hospital / "schema.json").write_text(schema.replace(', "range": [60, 90]', ""))
    (hospital / "pounds.csv").write_text(
        "weight,smokes,risk\n" + "".join(f"{150 + row},yes,low\n" for row in range(50)))
    asked = ("party", "check", "--data", "pounds.csv", "--schema", "schema.json", "--json")
    assert json.loads(tequio(*asked)[1])["proposal"] == {}
    assert json.loads(tequio(*asked, "--quantiles", run)[1])["proposal"] == {"units": {"weight": "lb->kg"}}


def test_wrong_files_are_refused_with_what_to_type(hospital, tequio):
    code, _, err = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json", "--quantiles",
                          "schema.json")
    assert code == 2
    assert "quantiles = [0.25, 0.5, 0.75]" in flat(err.replace("│", ""))
    code, _, err = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json", "--propose", "a.toml",
                          "--mapping", "b.toml")
    assert code == 2
    assert "leave out --mapping or --propose" in flat(err.replace("│", ""))
    code, _, err = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json", "--id", "patient")
    assert code == 3
    assert "no column 'patient'" in flat(err)


def test_names_in_a_schema_of_others_move_no_cursor_and_are_no_markup(hospital, tequio):
    schema = json.loads((hospital / "schema.json").read_text())
    schema["columns"].append({"name": "[bold]x[/bold]\x1b[31m", "kind": "number", "unit": "\x1b[2J"})
    (hospital / "schema.json").write_text(json.dumps(schema))
    _, out, _ = tequio("party", "check", "--data", "south.csv", "--schema", "schema.json")
    assert "[bold]x[/bold]" in out
    assert "\x1b[31m" not in out
    assert "\x1b[2J" not in out
