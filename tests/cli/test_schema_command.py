"""`tequio data schema`: from a table, with units and kinds, and from a config."""

from __future__ import annotations

import json
import shlex

import pytest

ROWS = 40


@pytest.fixture
def table(tmp_path):
    lines = ["patient_id,weight,town,code,risk"]
    lines += [f"P{row:03d},{50 + row}.5,{'Ely' if row == 7 else 'Oslo'},{row % 2},{'yes' if row % 3 else 'no'}"
              for row in range(ROWS)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_schema_says_units_and_kinds_and_leaves_ids_and_rare_values_out(tequio, table):
    code, out, err = tequio("data", "schema", table, "--target", "risk", "--unit", "weight=kg",
                            "--kind", "code=category")
    assert code == 0
    assert json.loads(out) == {
        "format": "tequio schema", "version": 1,
        "columns": [{"name": "weight", "kind": "number", "unit": "kg", "range": [50, 90]},
                    {"name": "town", "kind": "category", "categories": ["Oslo", "(other)"]},
                    {"name": "code", "kind": "category", "categories": ["0", "1"]}],
        "target": {"name": "risk", "kind": "classes", "classes": ["no", "yes"]}}
    assert "'patient_id' looks like an id and is left out" in err


def test_a_config_says_how_its_table_is_read(tequio, table, tmp_path):
    config = tmp_path / "own.toml"
    config.write_text(f'[data]\nname = "csv"\npath = "{table}"\ntarget = "risk"\nignore = ["weight"]\n'
                      'minimum_count = 1\n[data.partition]\nparties = 2\n')
    said = json.loads(tequio("data", "schema", config)[1])
    assert [column["name"] for column in said["columns"]] == ["town", "code"]
    assert said["columns"][0]["categories"] == ["Ely", "Oslo"]
    strict = json.loads(tequio("data", "schema", config, "--minimum-count", 5)[1])
    assert strict["columns"][0]["categories"] == ["Oslo", "(other)"]


def test_classes_of_few_rows_and_pairs_without_a_column_are_refused(tequio, table):
    code, _, err = tequio("data", "schema", table, "--target", "risk", "--minimum-count", 15)
    assert code == 3
    assert "--minimum-count 14" in " ".join(err.split())
    code, _, err = tequio("data", "schema", table, "--unit", "kg")
    assert code == 2
    assert "type it as --unit COLUMN=kg" in " ".join(err.split())


def test_what_is_said_of_a_table_names_options_and_these_act(tequio, table):
    rows = "".join(f"P{row:03d},2024-01-{10 + row % 9},{'Ely' if row == 7 else 'Oslo'},{row % 2}\n"
                   for row in range(ROWS))
    table.write_text('"Patient ""ID""",seen at,a \'place\',risk\n' + rows)
    code, _, err = tequio("data", "schema", table, "--target", "risk")
    assert code == 0
    typed = [shlex.split(line.rpartition(": ")[2]) for line in err.splitlines()]
    assert typed == [["--kind", 'Patient "ID"=hashed'], ["--kind", "seen at=category"], ["--minimum-count", "1"]]
    code, out, err = tequio("data", "schema", table, "--target", "risk", *(word for words in typed for word in words))
    assert code == 0
    assert err == ""
    assert [column["kind"] for column in json.loads(out)["columns"]] == ["hashed", "category", "category"]


def test_a_party_that_joins_is_answered_with_options_too(tequio, table, tmp_path):
    (tmp_path / "token").write_text("none")
    table.write_text(table.read_text().replace("50.5,", ","))
    words = ("party", "join", tmp_path / "token", "--name", "north", "--data", table, "--target", "risk")
    code, _, err = tequio(*words)
    assert code == 3
    assert "--missing drop" in " ".join(err.split())
    assert "data.missing" not in err
    code, _, err = tequio(*words, "--missing", "drop", "--kind", "town=hashed")
    assert "note: column 'patient_id' looks like an id and is left out" in err
    assert "--kind patient_id=hashed" in err
    assert "'town'" not in err  # one rare category; and the token is what is wrong now
