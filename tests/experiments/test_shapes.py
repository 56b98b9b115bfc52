"""Every shape that rows come in gives the same run, and what is no such shape says in one sentence what to type."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import tequio
from tequio.data.catalogue.entry import Loaded
from tequio.data.dataset import Dataset
from tequio.data.inputs import read
from tequio.errors import ConfigError, DataError
from tequio.experiments.api import gather
from tequio.experiments.config.complete import build_named, complete

ROWS = 96
PARTS = {"north": slice(0, 40), "south": slice(40, 70), "west": slice(70, ROWS)}


def made_up():
    """Numbers only, so that arrays can hold them, in the order in which a query gives them."""
    rng = np.random.default_rng(5)
    features = np.round(rng.standard_normal((ROWS, 3)), 3)
    features = features[np.argsort(features[:, 0])]
    return features, (features @ [1.0, -1.0, 0.5] > 0).astype(int)


X, Y = made_up()
FRAME = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2], "y": Y})
FEATURES = FRAME[["x0", "x1", "x2"]]


def file_of(folder, name, frame=FRAME):
    path = folder / name
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
    return str(path)


def torch_rows(*arrays):
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(*map(torch.from_numpy, arrays))


def hugging_face(frame=FRAME):
    from datasets import Dataset as HuggingFace

    return HuggingFace.from_pandas(frame, preserve_index=False)


def database(folder, frame=FRAME):
    path = folder / "rows.db"
    with closing(sqlite3.connect(path)) as connection:
        frame.sample(frac=1, random_state=1).to_sql("visits", connection, index=False)
    return {"name": "sql", "connection": f"sqlite:///{path}", "query": "SELECT x0, x1, x2, y FROM visits",
            "target": "y"}


ONE_TABLE = {
    "pair": lambda _: (X, Y),
    "list of two arrays": lambda _: [X, Y],
    "frame and series": lambda _: (FEATURES, FRAME["y"]),
    "frame and array": lambda _: (FEATURES, Y),
    "polars frame and series": lambda _: (pl.DataFrame(FEATURES.to_dict("list")), pl.Series("y", Y)),
    "dataset": lambda _: {"name": read((X, Y)), "prepare": ["auto"]},
    "torch": lambda _: torch_rows(X, Y),
    "pandas": lambda _: {"name": FRAME, "target": "y"},
    "polars": lambda _: {"name": pl.DataFrame(FRAME.to_dict("list")), "target": "y"},
    "arrow": lambda _: {"name": pa.table(FRAME.to_dict("list")), "target": "y"},
    "hugging face": lambda _: {"name": hugging_face(), "target": "y"},
    "columns": lambda _: {"name": FRAME.to_dict("list"), "target": "y"},
    "columns without a name": lambda _: {**FRAME.drop(columns="y").to_dict("series"), "risk": Y, "target": "risk"},
    "structured": lambda _: {"name": FRAME.to_records(index=False), "target": "y"},
    "csv": lambda folder: {"name": file_of(folder, "a.csv"), "target": "y"},
    "csv by its component": lambda folder: {"name": "csv", "path": file_of(folder, "a.csv"), "target": "y"},
    "tsv": lambda folder: {"name": file_of(folder, "a.tsv.gz"), "target": "y"},
    "parquet": lambda folder: {"name": file_of(folder, "a.parquet"), "target": "y"},
    "sqlite": database,
}
BY_PARTY = {
    "frames": lambda _: {**{party: FRAME[rows] for party, rows in PARTS.items()}, "target": "y"},
    "frames under a name": lambda _: {"name": {party: FRAME[rows] for party, rows in PARTS.items()}, "target": "y"},
    "list": lambda _: {"name": [FRAME[rows] for rows in PARTS.values()], "target": "y"},
    "pairs": lambda _: {party: (X[rows], Y[rows]) for party, rows in PARTS.items()},
    "list of pairs": lambda _: [(X[rows], Y[rows]) for rows in PARTS.values()],
    "frames and series": lambda _: {party: (FEATURES[rows], FRAME["y"][rows]) for party, rows in PARTS.items()},
    "files": lambda folder: {**{party: file_of(folder, f"{party}.csv", FRAME[rows]) for party, rows in PARTS.items()},
                             "target": "y"},
    "files of several kinds": lambda folder: {"name": [file_of(folder, f"{party}{ending}", FRAME[rows]) for (
        party, rows), ending in zip(PARTS.items(), (".csv", ".parquet", ".tsv"), strict=True)], "target": "y"},
    "columns": lambda _: {**{party: FRAME[rows].to_dict("list") for party, rows in PARTS.items()}, "target": "y"},
    "hugging face": lambda _: {"name": [hugging_face(FRAME[rows]) for rows in PARTS.values()], "target": "y"},
    "torch": lambda _: {party: torch_rows(X[rows], Y[rows]) for party, rows in PARTS.items()},
    "datasets": lambda _: {**{party: read((X[rows], Y[rows])) for party, rows in PARTS.items()}, "prepare": ["auto"]},
    "a column": lambda _: {"name": FRAME.assign(who=np.repeat(list(PARTS), [40, 30, 26])), "target": "y",
                           "group": "who", "partition": "natural"},
}


def hash_of(data, folder, **keys):
    """The model of one short run."""
    result = tequio.run(data=data, rounds=2, engine={"workers": 1}, output={"folder": str(folder / "runs")}, **keys)
    return result.summary["model_sha256"]


@pytest.fixture(scope="module")
def of_one_table(tmp_path_factory):
    return hash_of((X, Y), tmp_path_factory.mktemp("one"), **{"data.partition.parties": 3})


@pytest.fixture(scope="module")
def of_parties(tmp_path_factory):
    return hash_of(BY_PARTY["a column"](None), tmp_path_factory.mktemp("parties"))


@pytest.mark.parametrize("shape", ONE_TABLE)
def test_the_same_rows_give_the_same_model(shape, of_one_table, tmp_path):
    assert hash_of(ONE_TABLE[shape](tmp_path), tmp_path, **{"data.partition.parties": 3}) == of_one_table


def mixed():
    """A table of all kinds of columns: an id, dates, categories of which some are rare, and missing values."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({
        "age": rng.integers(20, 90, ROWS), "cost": np.where(rng.random(ROWS) < 0.2, np.nan, rng.random(ROWS).round(2)),
        "ward": np.where(rng.random(ROWS) < 0.9, "icu", rng.choice(["er", "day"], ROWS)),
        "seen": [f"2024-{month:02}-11" for month in rng.integers(1, 13, ROWS)],
        "patient": [f"p{number:04}" for number in range(ROWS)], "risk": rng.choice(["low", "high"], ROWS)})
    return frame.sort_values(list(frame.columns)).reset_index(drop=True)


MIXED = mixed()
OF_ALL_KINDS = {
    "polars": lambda _: {"name": pl.from_dicts(MIXED.astype(object).where(MIXED.notna(), None).to_dict("records"))},
    "arrow": lambda _: {"name": pa.Table.from_pandas(MIXED, preserve_index=False)},
    "hugging face": lambda _: {"name": hugging_face(MIXED)},
    "columns": lambda _: {"name": MIXED.to_dict("list")},
    "csv": lambda folder: {"name": file_of(folder, "a.csv", MIXED)},
    "parquet": lambda folder: {"name": file_of(folder, "a.parquet", MIXED)},
    "sqlite": lambda folder: {**database(folder, MIXED), "query": "SELECT * FROM visits"},
}


@pytest.mark.parametrize("shape", OF_ALL_KINDS)
def test_columns_of_all_kinds_mean_the_same_in_every_shape(shape, tmp_path):
    how = {"target": "risk", "missing": "keep", "prepare": ["impute", "one-hot"], "partition": {"name": "iid",
           "parties": 2}}
    expected = gather(None, {"data": {"name": MIXED, **how}})[1]
    assert expected.schema.names == ("age", "cost", "ward", "seen")
    assert expected.schema.features[2].domain == ("icu", "(other)")
    given, rows = gather(None, {"data": {**OF_ALL_KINDS[shape](tmp_path), **how}})
    found = rows or build_named("dataset", {key: value for key, value in given["data"].items() if key not in (
        "prepare", "partition")}).load().train
    assert found.schema == expected.schema
    np.testing.assert_array_equal(found.features, expected.features)
    np.testing.assert_array_equal(found.target, expected.target)
    assert found.source.notes == expected.source.notes


@pytest.mark.parametrize("shape", BY_PARTY)
def test_one_table_per_party_is_a_partition_by_its_names(shape, of_parties, tmp_path):
    data = BY_PARTY[shape](tmp_path)
    result = tequio.run(data=data, rounds=2, engine={"workers": 1}, output={"folder": str(tmp_path / "runs")})
    assert result.summary["model_sha256"] == of_parties
    assert result.config.data.partition["name"] == "natural"
    assert list(map(str, result.parties["party"])) == (["0", "1", "2"] if "list" in shape or shape in (
        "hugging face", "files of several kinds") else list(PARTS))


def test_sparse_rows_give_what_dense_ones_do(tmp_path):
    keys = {"data.partition.parties": 3, "learner": "sgd-classifier"}
    whole = read((sparse.csr_matrix(X), Y))
    assert whole.is_sparse
    parties = read({party: (sparse.csr_matrix(X[rows]), Y[rows]) for party, rows in PARTS.items()})
    assert parties.groups.tolist() == np.repeat(list(PARTS), [40, 30, 26]).tolist()
    np.testing.assert_array_equal(parties.features.toarray(), X)
    assert hash_of((sparse.csr_matrix(X), Y), tmp_path, **keys) == hash_of(whole, tmp_path, **keys)


@pytest.mark.parametrize("first", [(X, Y), FRAME, pl.DataFrame(FRAME.to_dict("list")), FRAME.to_dict("list"), "a.csv"],
                         ids=["pair", "pandas", "polars", "columns", "file"])
def test_rows_may_be_the_first_argument(first, of_one_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path, "a.csv")
    target = {} if isinstance(first, tuple) else {"target": "y"}
    result = tequio.run(first, rounds=2, engine={"workers": 1}, **target, **{"data.partition.parties": 3})
    assert result.summary["model_sha256"] == of_one_table


def test_tables_by_party_may_be_the_first_argument_of_a_sweep_and_a_search(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {party: FRAME[rows] for party, rows in PARTS.items()}
    keys = {"target": "y", "rounds": 1, "engine": {"workers": 2}}
    swept = tequio.sweep(tables, sweep={"seeds": [0, 1]}, **keys)
    assert [result.summary["parties"] for result in swept.results] == [3, 3]
    found = tequio.search(tables, search={"space": {"local.learning_rate": [0.1, 0.5]}, "method": "grid"}, **keys)
    assert len(found.trials) == 2
    for again in ("iris", tables):
        with pytest.raises(ConfigError, match="data is given twice"):
            tequio.run(tables, data=again)
    given, _ = gather(tables, {"data": {"target": "y", "prepare": ["standardise"]}})
    assert (given["data"]["prepare"], given["data"]["partition"]) == (["standardise"], "natural")


def splits():
    from datasets import DatasetDict

    return DatasetDict({"train": hugging_face(FRAME[:64]), "test": hugging_face(FRAME[64:])})


@pytest.mark.parametrize("data", [splits, lambda: {"train": FRAME[:64], "test": FRAME[64:]}],
                         ids=["hugging face", "dict"])
def test_a_test_split_is_what_the_coordinator_reports_on(data, tmp_path):
    _, rows = gather(None, {"data": {"name": data(), "target": "y"}})
    assert isinstance(rows, Loaded)
    assert (len(rows.train), len(rows.test)) == (64, 32)
    np.testing.assert_array_equal(rows.test.features, X[64:])
    csv = {"name": "csv", "path": file_of(tmp_path, "a.csv", FRAME[:64]), "target": "y",
           "test_path": file_of(tmp_path, "b.csv", FRAME[64:])}
    keys = {"data.partition.parties": 3}
    assert hash_of({"name": data(), "target": "y"}, tmp_path, **keys) == hash_of(csv, tmp_path, **keys)


def test_test_rows_go_along_to_the_processes_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = {"target": "y", "rounds": 1, "data.partition.parties": 3, "sweep": {"seeds": [0, 1]}}
    metrics = [[result.summary["metrics"] for result in tequio.sweep(
        data=splits(), engine={"workers": workers}, name=f"s{workers}", **keys).results] for workers in (1, 2)]
    assert metrics[0] == metrics[1]
    assert "test.accuracy" in metrics[0][0]


def test_a_validation_split_says_what_becomes_of_it_and_others_are_refused():
    whole = {"train": FRAME[:40], "validation": FRAME[40:60], "test": FRAME[60:]}
    _, rows = gather(None, {"data": {"name": whole, "target": "y"}})
    assert (len(rows.train), len(rows.test)) == (40, 36)
    assert "the split 'validation' is not used" in rows.train.source.notes[-1]
    from datasets import DatasetDict

    strange = DatasetDict({"unsupervised": hugging_face(), "train": hugging_face()})
    with pytest.raises(DataError, match=r"of the splits 'unsupervised', 'train' nothing says which.*data\["):
        gather(None, {"data": {"name": strange, "target": "y"}})
    _, rows = gather(None, {"data": {"name": DatasetDict({"all": hugging_face()}), "target": "y"}})
    assert isinstance(rows, Dataset)
    assert len(rows) == ROWS


def test_ids_that_were_left_out_of_the_training_rows_do_not_stop_the_test_rows():
    frame = FRAME.assign(patient_id=np.arange(ROWS))
    _, rows = gather(None, {"data": {"name": {"train": frame[:64], "test": frame[64:]}, "target": "y"}})
    assert rows.test.schema.names == ("x0", "x1", "x2")


@pytest.mark.parametrize(("data", "message"), [
    ({"north": FRAME, "south": FRAME.rename(columns={"x1": "X1"}), "target": "y"},
     "'north' alone has 'x1'; 'south' alone has 'X1'; give columns that mean the same the same name"),
    ({"north": FRAME, "south": FRAME.assign(extra=1), "target": "y"},
     r"different columns: 'south' alone has 'extra'.*data.ignore = \[\"extra\"\]"),
    ({"north": FRAME, "south": [1, 2, 3], "target": "y"}, "'north' is a table, but 'south' is a column; give either"),
    ({"north": (X, Y), "south": (X[:, :2], Y)}, r"'north' has rows of shape \(3,\), 'south' has rows of shape \(2,\)"),
    ({"north": (X, Y), "south": (X,)}, "south"),
    ({"north": FRAME, "south": (X, Y), "target": "y"}, "'north' has named columns, 'south' has rows of shape"),
    ({"north": (FEATURES, FRAME["y"]), "south": (FEATURES, FRAME["y"].rename("z"))}, "different targets: y and z"),
    ({"north": FRAME, "south": FRAME, "target": "y", "group": "x0"}, "leave data.group out"),
    ({"north": FRAME, "south": FRAME, "target": "y", "ignore": ["id"]}, "no table has a column 'id'"),
    ({"north": read((X, Y)), "south": read((X, Y * 2))}, "'north' and 'south' have different schemas"),
    ({"a": X[:, 0], "target": Y, "b": Y}, "'target' is a key of .data., and here also the name of a column"),
    ((FEATURES, FRAME[["x0", "x1", "x2"]]), r"write tables of two parties as a list: \[first, second\]"),
    ({"name": (FEATURES, Y), "target": "y"}, "leave data.target out"),
    ({"name": FRAME, "target": "y", "ignore": ["y"]}, "'y' is the target, and data.ignore names it too"),
    ({"name": FRAME, "target": "y", "id": "y"}, "'y' is the target, and data.id names it too"),
    ({"north": FRAME, "south": FRAME[:0], "target": "y"}, "the table of 'south' has no rows; leave 'south' out"),
    ({"name": FRAME, "traget": "y"}, r"no key 'traget'.*did you mean 'target'"),
    ({"name": read((X, Y)), "target": "y"}, "leave data.target out"),
])
def test_what_cannot_be_meant_says_what_to_type(data, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, DataError), match=message):
        tequio.run(data=data, rounds=1)
    assert not (tmp_path / "runs").exists()


def test_a_mapping_is_no_table_of_a_party(tmp_path):
    frame = FRAME.assign(x1=[np.inf, *FRAME["x1"][1:]])
    with pytest.raises(DataError, match=r'1 infinite value \(row 0\).*data.mapping.missing = \["inf", "-inf"\]'):
        tequio.run(frame, target="y", missing="median")
    run = tequio.run(frame, target="y", missing="median", data={"mapping": {"missing": ["inf", "-inf"]}}, rounds=1,
                     output={"folder": str(tmp_path)})
    assert run.summary["data"] == "given"


def test_a_dataset_is_taken_as_it_is_and_rows_are_prepared():
    whole = read((X, Y))
    for data, steps in ((whole, []), ({"a": whole, "b": whole}, []), ((X, Y), ["auto"]), ({"a": (X, Y)}, ["auto"])):
        assert complete(gather(data, {})[0]).data.prepare == steps


def test_a_column_that_is_left_out_may_differ_between_parties():
    tables = {"north": FRAME.assign(nurse="a"), "south": FRAME}
    assert len(read(tables, target="y", ignore=["nurse"])) == 2 * ROWS


def test_categories_of_all_parties_unite():
    tables = {"north": {"ward": ["a", "b"], "code": [1, 2], "y": [0, 1]},
              "south": {"ward": ["c", "b"], "code": ["2", "x"], "y": [1, 0]}}
    found = read(tables, target="y")
    assert [feature.domain for feature in found.schema.features] == [("a", "b", "c"), ("1", "2", "x")]
    assert found.features.tolist() == [[0, 0], [1, 1], [2, 1], [1, 2]]
    assert found.groups.tolist() == ["north", "north", "south", "south"]


def test_missing_values_of_one_party_are_no_other_kind_of_column():
    tables = [{"a": [1, None], "y": [0, 1]}, {"a": [None, None], "y": [0, 1]}, {"a": [3, 4], "y": [0, 1]}]
    found = read(tables, target="y", missing="drop")
    assert found.features.tolist() == [[1], [3], [4]]
    assert found.groups.tolist() == [0, 2, 2]
    rows = np.array([[1.0, np.nan], [2.0, 3.0]])
    pairs = read([(rows, [0, 1]), (rows, [1, 0])], missing="drop")
    assert (pairs.groups.tolist(), pairs.target.tolist()) == ([0, 1], [1, 0])


def test_who_holds_which_rows_is_a_part_of_what_tells_runs_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {party: FRAME[rows] for party, rows in PARTS.items()}
    short = tequio.run(tables, target="y", rounds=1, engine={"workers": 1})
    other = {"north": FRAME[:50], "south": FRAME[50:70], "west": FRAME[70:]}
    with pytest.raises(ConfigError, match="'data' is changed"):
        tequio.run(resume=short.folder, data=other, target="y", rounds=2)
    resumed = tequio.run(resume=short.folder, data=tables, target="y", rounds=2)
    assert resumed.summary["model_sha256"] == tequio.run(tables, target="y", rounds=2, engine={
        "workers": 1}).summary["model_sha256"]


def test_a_config_in_a_dict_is_still_a_config(toy, given):
    assert gather(given, {})[0]["data"]["name"] == "toy_numbers"
    with pytest.raises(ConfigError, match="no key 'baseline'"):
        tequio.run({"baseline": ["alone"]})
    with pytest.raises(ConfigError, match=r"there is no file 'missing\.toml'"):
        tequio.run("missing.toml")
    with pytest.raises(DataError, match=r"there is no file 'missing\.csv'"):
        tequio.run("missing.csv", target="y")
