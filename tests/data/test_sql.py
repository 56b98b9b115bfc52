"""Rows of a database: sorted, read only, with no password kept or quoted anywhere."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tequio
from tequio.cli.main import make_app
from tequio.data.catalogue.sql import columns_from_query
from tequio.data.inputs import read
from tequio.errors import ConfigError, DataError
from tequio.experiments.config.complete import load_config, read_given
from tequio.experiments.deploying.holdings import open_holding
from tequio.registry import build

SECRET = "s3cr3t-Xy"
FRAME = pd.DataFrame({"age": [61, 39, 50, 38], "ward": ["b", "a", None, "a"], "cost": [2.5, 0.25, 1.0, 7.0],
                      "risk": ["low", "high", "low", "high"]})
QUERY = "SELECT age, ward, cost, risk FROM patients"
SORTED = FRAME.sort_values("age")


@pytest.fixture
def sqlite(tmp_path):
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        FRAME.to_sql("patients", database, index=False)
    return f"sqlite:///{tmp_path / 'rows.db'}"


@pytest.fixture
def duck(tmp_path):
    import duckdb

    with closing(duckdb.connect(str(tmp_path / "rows.duckdb"))) as database:
        database.execute("CREATE TABLE patients (age INT, ward TEXT, cost DECIMAL(8, 2), risk TEXT)")
        database.executemany("INSERT INTO patients VALUES (?, ?, ?, ?)", FRAME.astype(object).where(
            FRAME.notna(), None).values.tolist())
    return f"duckdb:///{tmp_path / 'rows.duckdb'}"


@pytest.fixture(params=["sqlite", "duck"])
def connection(request):
    return request.getfixturevalue(request.param)


def load(connection, query=QUERY, **own):
    return build("dataset", "sql", {"connection": connection, "query": query, "target": "risk", **own}).load()


def test_a_query_finds_what_a_table_holds_sorted_by_all_columns(connection):
    found = load(connection, missing="category", minimum_count=1).train
    expected = read(SORTED, target="risk", missing="category")
    assert found.schema == expected.schema
    np.testing.assert_array_equal(found.features, expected.features)
    np.testing.assert_array_equal(found.target, expected.target)


def test_the_order_of_the_database_changes_nothing(connection):
    orders = [columns_from_query(connection, f"{QUERY} ORDER BY {order}") for order in ("cost", "cost DESC", "ward")]
    for columns in orders:
        assert columns["age"].values.tolist() == [38, 39, 50, 61]
        assert columns["cost"].values.tolist() == [7.0, 0.25, 1.0, 2.5]


def test_rows_that_begin_alike_are_ordered_by_their_later_columns(connection):
    query = "SELECT risk, ward, age FROM patients"
    columns = columns_from_query(connection, query)
    assert columns["age"].values.tolist() == [38, 39, 50, 61]
    assert columns["risk"].values.tolist() == ["high", "high", "low", "low"]


def test_test_rows_come_from_a_query_of_their_own(connection):
    loaded = load(connection, f"{QUERY} WHERE age < 60", test_query=f"{QUERY} WHERE age > 60", missing="category",
                  ignore=["ward"])
    assert (len(loaded.train), len(loaded.test)) == (3, 1)


def test_a_query_that_finds_other_rows_by_chance_is_noted(connection):
    assert "LIMIT and no ORDER BY" in load(connection, f"{QUERY} LIMIT 2", ignore=["ward"]).train.source.notes[-1]
    for query in (f"{QUERY} ORDER BY age LIMIT 2", QUERY, f"{QUERY} -- no LIMIT"):
        assert not any("LIMIT" in note for note in load(connection, query, ignore=["ward"]).train.source.notes)


@pytest.mark.parametrize(("query", "message"), [
    ("DELETE FROM patients", "has to read rows, and nothing else"),
    ("-- SELECT\nDROP TABLE patients", "has to read rows, and nothing else"),
    ("", "has to read rows, and nothing else"),
    ("SELECT 1; DELETE FROM patients", "one statement"),
    ("WITH gone AS (SELECT 1) DELETE FROM patients", "the database refuses|one statement"),
    ("SELECT nothing FROM patients", "the database refuses: .*nothing"),
    ("SELECT age, cost AS age FROM patients", "2 columns called 'age'|age"),
    ("SELECT * FROM patients WHERE age > 99", "the query finds no rows"),
])
def test_nothing_but_one_query_that_reads_is_run(connection, query, message):
    with pytest.raises((ConfigError, DataError), match=message):
        load(connection, query)
    assert len(columns_from_query(connection, QUERY)["age"].values) == 4


def test_the_files_are_opened_for_reading_only(sqlite, duck, tmp_path):
    before = [(tmp_path / name).read_bytes() for name in ("rows.db", "rows.duckdb")]
    for connection in (sqlite, duck):
        load(connection, ignore=["ward"])
    assert [(tmp_path / name).read_bytes() for name in ("rows.db", "rows.duckdb")] == before
    for path in ("missing.db", "missing.duckdb"):
        with pytest.raises(DataError, match="there is no database"):
            load(f"{'duckdb' if 'duck' in path else 'sqlite'}:///{tmp_path / path}")
        assert not (tmp_path / path).exists()


def test_duckdb_queries_files_without_a_database(tmp_path):
    FRAME.to_parquet(tmp_path / "rows.parquet")
    columns = columns_from_query("duckdb:", f"FROM '{tmp_path / 'rows.parquet'}'")
    assert columns["age"].values.tolist() == [38, 39, 50, 61]


def test_a_path_is_looked_for_beside_the_config(sqlite, tmp_path, monkeypatch):
    config = tmp_path / "run.toml"
    config.write_text(f'[data]\nname = "sql"\nconnection = "sqlite:///rows.db"\nquery = "{QUERY}"\ntarget = "risk"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_given(config)["data"]["connection"] == f"sqlite:///{tmp_path / 'rows.db'}"
    assert load_config(config).data.parameters["query"] == QUERY


PASSWORDS = [f"postgresql://owner:{SECRET}@db/rows", f"postgresql://db/rows?user=owner&password={SECRET}",
             f"postgresql://db/rows?sslpassword={SECRET}", f"postgresql://owner:{SECRET}/x@db/rows",
             f"postgresql://owner:{SECRET}#x@db/rows", f"postgresql://[owner:{SECRET}@db", f"mysql://o:{SECRET}@db/rows",
             f"host=db user=owner password={SECRET}", f"postgres://owner:{SECRET}@db/rows"]


@pytest.mark.parametrize("connection", PASSWORDS)
def test_a_password_is_refused_before_anything_is_written_and_never_quoted(connection, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = {"name": "sql", "connection": connection, "query": QUERY, "target": "risk"}
    for call in (lambda: tequio.run(data=data), lambda: tequio.sweep(data=data, sweep={"seeds": [0, 1]}),
                 lambda: tequio.search(data=data, search={"space": {"local.epochs": [1, 2]}, "method": "grid"}),
                 lambda: columns_from_query(connection, QUERY)):
        with pytest.raises(ConfigError) as caught:
            call()
        assert SECRET not in f"{caught.value}{caught.value.remedy}"
        assert "PGPASSWORD" in caught.value.remedy or "postgresql://" in caught.value.remedy
    assert not list(tmp_path.iterdir())
    said = CliRunner().invoke(make_app(), ["party", "join", "token", "--data", connection, "--query", QUERY, "--name",
                                           "north", "--home", str(tmp_path / "home")])
    assert said.exit_code != 0
    assert SECRET not in said.output + str(said.exception)
    assert not (tmp_path / "home").exists()


def test_a_party_brings_the_rows_that_its_query_finds(sqlite, tmp_path, monkeypatch):
    from tequio.cli.party import data_facts

    monkeypatch.chdir(tmp_path)
    query = " UNION ALL ".join([QUERY] * 10)
    facts = data_facts("sqlite:///rows.db", "risk", "", None, "category", ["one-hot"], None, query)
    assert facts["connection"] == sqlite
    monkeypatch.chdir(Path("/"))
    holding = open_holding("north", json.loads(json.dumps(facts)))
    assert holding.rows == 40
    with pytest.raises(ConfigError, match="add --query"):
        data_facts(sqlite, "risk", "", None, "error", None, None)
    with pytest.raises(ConfigError, match="a query is for a database"):
        data_facts("rows.csv", "risk", "", None, "error", None, None, QUERY)
