"""Runs of parties with different columns: metrics, what is on record, predictions for new rows, resumption."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import tequio
from tequio.cli.main import call
from tequio.errors import DataError, QuorumError
from tequio.experiments.explaining.replaying import label_leakage
from tequio.experiments.running.table import read_csv
from tequio.experiments.running.transcripts import leakage_table, message_table
from tequio.federation.federation import Federation

COLUMNS = ("income", "debts", "age", "claims")


def customers(path, rows=240, seed=0, *, target=True):
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((rows, 4)).round(4)
    labels = np.where(values @ [1.0, -1.5, 0.5, -1.0] > 0.8, "yes", "no")
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["customer", *COLUMNS, *(["repaid"] if target else [])])
        for number, row in enumerate(values):
            table.writerow([f"C{seed}{number:05d}", *row, *([labels[number]] if target else [])])
    return path


def config(folder, **more):
    return {"name": "loan", "rounds": 4, "engine": {"workers": 1}, "output": {"folder": str(folder / "runs")},
            "data": {"name": "csv", "path": str(customers(folder / "customers.csv")), "target": "repaid",
                     "id": "customer", "prepare": ["minmax"], "partition": {
                         "name": "columns", "called": ["bank", "insurer"], "overlap": 0.8,
                         "names": [["income", "debts"], ["age", "claims"]]}},
            "algorithm": {"name": "split-nn", "bottom": [8], "cut": [4], "top": [8]},
            "local": {"optimizer": "adam", "learning_rate": 0.02}, **more}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vertical")
    return folder, tequio.run(config(folder))


def test_its_metrics_are_those_of_any_run(finished):
    _, result = finished
    metrics = result.summary["metrics"]
    assert metrics["test.accuracy"] > 0.8
    assert {"validation.accuracy", "parties.accuracy.pooled", "train.loss"} <= metrics.keys()
    assert [row["party"] for row in result.parties] == ["bank"]


def test_the_run_folder_says_who_saw_what(finished):
    _, result = finished
    seen = read_csv(result.folder / "leakage.csv")
    assert seen.to_csv() == leakage_table(result.folder).to_csv()
    assert not any(row["tells"] == "not described" for row in seen)
    fields = {(row["who"], row["field"]) for row in seen}
    assert ("bank", "activations") in fields
    assert ("insurer", "gradient") in fields
    assert ("insurer", "activations") not in fields
    assert ("insurer", "target") not in fields
    assert not any(who == "coordinator" and field in ("masked", "list") for who, field in fields)


def test_bytes_and_waiting_of_each_party_are_on_record(finished):
    _, result = finished
    messages = message_table(result.folder)
    assert sum(messages["bytes_up"]) == result.summary["bytes_up"] + result.summary["evaluation_bytes_up"]
    waited = {row["task"]: row["waiting_seconds"] for row in messages if row["party"] == "insurer"}
    assert waited["split-nn.top"] > 0


def test_new_rows_are_predicted_by_all_parties_together(finished):
    folder, result = finished
    fresh = customers(folder / "fresh.csv", 60, seed=7, target=False)
    table = tequio.predict(result.folder, fresh)
    with fresh.open() as file:
        truth = {row["customer"]: sum(float(row[name]) * weight for name, weight in
                                      zip(COLUMNS, [1.0, -1.5, 0.5, -1.0], strict=True)) > 0.8
                 for row in csv.DictReader(file)}
    assert sorted(table["id"]) == sorted(truth)
    right = sum((row["prediction"] == "yes") == truth[row["id"]] for row in table)
    assert right / len(truth) > 0.8
    some = tequio.predict(result.folder, fresh, ids=["C700003", "C700001"])
    by_id = {row["id"]: row for row in table}
    assert {row["id"] for row in some} == {"C700003", "C700001"}
    for row in some:
        assert row["probability"] == pytest.approx(by_id[row["id"]]["probability"], abs=1e-6)


def test_ids_that_nobody_has_are_counted_and_columns_are_checked(finished):
    folder, result = finished
    fresh = customers(folder / "more.csv", 10, seed=8, target=False)
    with pytest.raises(DataError, match="1 of the 2 ids"):
        tequio.predict(result.folder, fresh, ids=["C800001", "nobody"])
    (folder / "odd.csv").write_text("customer,debts,age,claims\nA,1,2,3\n")
    with pytest.raises(DataError, match="income"):
        tequio.predict(result.folder, folder / "odd.csv")


def test_labels_leak_less_under_protection(finished, tmp_path):
    _, result = finished
    bare = label_leakage(result.folder)
    assert set(bare) == {"insurer"}
    guarded = tequio.run(config(tmp_path), algorithm={"protection": "marvell", "protection_strength": 4.0})
    assert guarded.summary["metrics"]["test.accuracy"] > 0.7
    assert label_leakage(guarded.folder)["insurer"]["norm"] < bare["insurer"]["norm"]


def test_the_commands_print_one_document(finished, capsys):
    folder, result = finished
    assert call(["leakage", str(result.folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seen"] == leakage_table(result.folder).rows
    fresh = customers(folder / "asked.csv", 12, seed=9, target=False)
    assert call(["predict", str(result.folder), "--data", str(fresh), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["predictions"]) == 12
    assert call(["leakage", str(result.folder)]) == 0
    assert "what insurer, the feature party, sees" in capsys.readouterr().out


def test_a_run_of_another_kind_has_no_messages_but_answers(tmp_path, capsys):
    other = tequio.run(rounds=1, data="iris", output={"folder": str(tmp_path)})
    assert call(["leakage", str(other.folder)]) != 0
    told = tequio.predict(other.folder, np.zeros((2, 4)))
    assert told["row"] == [0, 1]
    assert told["prediction"] == other.predict(np.zeros((2, 4))).tolist()


def test_a_run_stopped_by_a_missing_party_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    given = config(tmp_path, output={"folder": str(tmp_path / "runs"), "checkpoint_every": 1})
    straight = tequio.run(given)
    with monkeypatch.context() as patch:
        patch.setattr(Federation, "present", lambda self, asked: asked if self.round < 3 else asked[asked != 1])
        with pytest.raises(QuorumError, match="without party 'insurer'"):
            tequio.run(given)
    resumed = tequio.run(given, resume="last")
    for name, value in straight.summary["metrics"].items():
        assert resumed.summary["metrics"][name] == value, name
