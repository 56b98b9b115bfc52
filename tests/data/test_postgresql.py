"""Rows of a PostgreSQL server, which each test run starts on a socket of its own and ends again."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tequio
from tequio.data.catalogue.sql import columns_from_query
from tequio.data.inputs import read
from tequio.errors import DataError
from tequio.registry import build

pytestmark = pytest.mark.postgresql

PASSWORD = "s3cr3t-Xy"
TABLE = """
CREATE TABLE visits (age int, cost numeric(8, 2), day date, ok boolean, ward text, id uuid, risk text);
INSERT INTO visits SELECT 20 + (i * 37) % 60, (i * 7) % 50 + 0.25, date '2024-01-01' + i % 30, i % 3 = 0,
  (ARRAY['icu', 'er'])[1 + i % 2], gen_random_uuid(), (ARRAY['low', 'high'])[1 + (i / 3) % 2]
  FROM generate_series(1, 120) AS i;
"""
QUERY = "SELECT age, cost, day, ok, ward, risk FROM visits"


def programs():
    """Where initdb and pg_ctl are, if PostgreSQL is installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return places[-1] if places else None


@pytest.fixture(scope="module")
def server():
    """The address of a server that has the table, with a password that is in the environment and nowhere else."""
    place = programs()
    if place is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    someone = {}
    if os.getuid() == 0:  # the server refuses to run as root
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        someone = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def call(program, *arguments):
        subprocess.run([place / program, "-D", home / "data", *arguments], check=True, cwd=home,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **someone)

    (home / "password").write_text(PASSWORD)
    (home / "password").chmod(0o644)
    try:
        call("initdb", "-U", "owner", "--auth=scram-sha-256", "--pwfile", home / "password", "-N", "--no-locale", "-E",
             "UTF8")
        call("pg_ctl", "-w", "-l", home / "log", "-o", f"-k {home} -c listen_addresses='' -c fsync=off", "start")
        try:
            environment = {**os.environ, "PGPASSWORD": PASSWORD}
            subprocess.run([place / "psql", "-h", home, "-U", "owner", "-q", "-d", "postgres", "-c", TABLE], check=True,
                           env=environment)
            yield f"postgresql://owner@/postgres?host={home}"
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def password(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def load(server, query=QUERY, **own):
    return build("dataset", "sql", {"connection": server, "query": query, "target": "risk", **own}).load()


def test_all_usual_types_are_read_and_rows_are_sorted(server, tmp_path):
    import pandas as pd

    found = load(server).train
    assert [(feature.name, feature.kind) for feature in found.schema.features] == [
        ("age", "number"), ("cost", "number"), ("day", "date"), ("ok", "category"), ("ward", "category")]
    numbers = np.arange(1, 121)
    frame = pd.DataFrame({
        "age": 20 + (numbers * 37) % 60, "cost": (numbers * 7) % 50 + 0.25,
        "day": np.datetime64("2024-01-01") + numbers % 30, "ok": numbers % 3 == 0,
        "ward": np.array(["icu", "er"])[numbers % 2], "risk": np.array(["low", "high"])[(numbers // 3) % 2]})
    expected = read(frame.sort_values(list(frame.columns)), target="risk")
    assert found.schema == expected.schema
    np.testing.assert_array_equal(found.features, expected.features)
    np.testing.assert_array_equal(found.target, expected.target)
    path = tmp_path / "visits.csv"
    frame.sort_values(list(frame.columns)).to_csv(path, index=False)
    keys = {"rounds": 2, "engine": {"workers": 1}, "output": {"folder": str(tmp_path / "runs")}}
    more = {"target": "risk", "prepare": ["one-hot"], "partition": {"name": "iid", "parties": 3}}
    hashes = {tequio.run(data={**data, **more}, **keys).summary["model_sha256"] for data in (
        {"name": "sql", "connection": server, "query": QUERY}, {"name": "csv", "path": str(path)})}
    assert len(hashes) == 1
    kept = b"".join(file.read_bytes() for file in (tmp_path / "runs").rglob("*") if file.is_file())
    assert b"postgresql://owner@/postgres" in kept
    assert PASSWORD.encode() not in kept


def test_ids_of_the_database_are_texts(server):
    columns = columns_from_query(server, "SELECT id, age FROM visits")
    assert columns["id"].is_text
    assert all(len(text) == 36 for text in columns["id"].values)


@pytest.mark.parametrize("query", [
    "WITH gone AS (DELETE FROM visits RETURNING *) SELECT * FROM gone",
    "SELECT 1; DELETE FROM visits",
    "SELECT 1) TO STDOUT; DELETE FROM visits; COPY (SELECT 2",
    "SELECT setval('nothing', 1)",
    "SELECT * INTO other FROM visits",
])
def test_nothing_is_written(server, query):
    with pytest.raises(DataError, match="the database refuses"):
        columns_from_query(server, query)
    assert columns_from_query(server, "SELECT count(*) AS rows FROM visits")["rows"].values.tolist() == [120]


def test_options_of_the_address_do_not_replace_reading_only(server):
    for options in ("-c%20default_transaction_read_only%3Doff", "-c%20statement_timeout%3D5000"):
        with pytest.raises(DataError, match="read-only"):
            columns_from_query(f"{server}&options={options}", "WITH x AS (DELETE FROM visits RETURNING *) TABLE x")


@pytest.mark.parametrize("word", ["wrong-s3cr3t", None])
def test_a_password_that_is_refused_says_where_it_is_read_from_and_not_what_it_was(server, word, monkeypatch):
    monkeypatch.delenv("PGPASSWORD")
    if word:
        monkeypatch.setenv("PGPASSWORD", word)
    with pytest.raises(DataError, match="password") as caught:
        load(server)
    assert "PGPASSWORD" in caught.value.remedy
    assert not word or word not in str(caught.value)


def test_a_password_may_be_in_a_file_of_its_own(server, tmp_path, monkeypatch):
    monkeypatch.delenv("PGPASSWORD")
    (tmp_path / "pgpass").write_text(f"*:*:*:owner:{PASSWORD}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    assert len(load(server).train) == 120
