"""Counts by group add up, measures follow from them exactly, and nothing but counts is handed over."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

import tequio
from tequio.cli.main import call
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.models.fairness import HIDDEN, GroupCounts, count_groups, gaps, positive_class, rates, wilson
from tequio.views.fairness import counted


@pytest.fixture(scope="module")
def patients():
    draw = np.random.default_rng(0)
    count = 600
    sex, age = draw.choice(["f", "m"], count), draw.integers(1, 90, count)
    pulse = draw.normal(70, 10, count)
    score = (pulse - 70) / 10 + np.where(sex == "m", 0.8, -0.4) + draw.normal(0, 0.5, count)
    return {"sex": sex, "age": age, "pulse": pulse, "ill": np.where(score > 0, "yes", "no")}


@pytest.fixture(scope="module")
def run(patients, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fair")
    lines = [",".join(patients), *(",".join(map(str, row)) for row in zip(*patients.values(), strict=True))]
    (folder / "all.csv").write_text("\n".join(lines) + "\n")
    data = {"name": "csv", "path": str(folder / "all.csv"), "target": "ill", "partition": {"name": "iid", "parties": 3},
            "split": {"test": 0.3}, "prepare": ["one-hot", "standardise"]}
    return tequio.run(name="fair", data=data, learner="logistic", rounds=3, output={"folder": str(folder / "runs")},
                      engine={"name": "local", "workers": 1})


def test_rates_are_those_of_the_predictions(run, patients):
    counts = count_groups(run.trained, patients, "sex")
    told, sex, ill = run.predict(patients), patients["sex"], patients["ill"]
    found = rates(counts, "yes")
    assert set(found) == {"f", "m"}
    for group, row in found.items():
        mine = sex == group
        assert row["rows"] == mine.sum()
        assert row["told positive"] == (told[mine] == "yes").mean()
        assert row["true positives"] == (told[mine & (ill == "yes")] == "yes").mean()
        assert row["false positives"] == (told[mine & (ill == "no")] == "yes").mean()
    parity = gaps(counts, "yes")["demographic parity"]
    assert parity["gap"] == abs(found["m"]["told positive"] - found["f"]["told positive"])
    assert 0.1 < parity["low"] < parity["gap"] < parity["high"]
    assert parity["gap"] > parity["by_chance"]


def test_calibration_is_the_gap_between_told_and_true_over_ten_bins(run, patients):
    row = rates(count_groups(run.trained, patients, "sex"), "yes")["f"]
    mine = patients["sex"] == "f"
    told = run.predict_proba(patients)[mine, 1].astype(np.float64)
    true = (patients["ill"] == "yes")[mine]
    error = sum(abs(told[inside].sum() - true[inside].sum()) for low in range(10)
                if (inside := np.minimum((told * 10).astype(int), 9) == low).any()) / mine.sum()
    assert row["calibration error"] == pytest.approx(error, abs=1e-12)
    assert row["told minus true"] == pytest.approx(told.mean() - true.mean(), abs=1e-12)


@pytest.mark.parametrize(("some", "all"), [(0, 5), (3, 10), (10, 10), (499, 1000)])
def test_intervals_of_shares_are_wilsons(some, all):
    expected = binomtest(some, all).proportion_ci(method="wilson")
    assert wilson(some, all) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_counts_of_parties_add_up_to_those_of_all_rows_and_cross_as_a_file(run, patients):
    parts = [{name: values[rows] for name, values in patients.items()} for rows in (slice(200), slice(200, None))]
    first, second = (GroupCounts.from_json(count_groups(run.trained, part, "sex").to_json()) for part in parts)
    whole, together = count_groups(run.trained, patients, "sex"), first + second
    for group in ("f", "m"):
        assert (together.confusion[group] == whole.confusion[group]).all()
        assert (together.rows[group] == whole.rows[group]).all()
        np.testing.assert_allclose(together.probability[group], whole.probability[group], rtol=1e-7)


def test_equal_groups_differ_by_no_more_than_chance():
    draw = np.random.default_rng(3)
    surprised = 0
    for seed in range(60):
        table = {name: np.array([[400, 0], [0, 0]]) for name in "abc"}
        for name in table:
            told = draw.binomial(400, 0.3)
            table[name] = np.array([[400 - told, told], [0, 0]])
        parity = gaps(GroupCounts("g", ("no", "yes"), table), "yes", seed=seed)["demographic parity"]
        surprised += parity["gap"] > parity["by_chance"]
    assert surprised <= 8  # one in twenty is expected


def test_small_groups_are_not_told():
    table = {"a": np.full((2, 2), 10), "b": np.eye(2, dtype=np.int64), "c": np.full((2, 2), 3)}
    bins = {name: np.zeros((2, 10), np.int64) for name in table}
    counts = GroupCounts("g", ("no", "yes"), table, bins, bins, {name: values * 1.0 for name, values in bins.items()})
    hidden = counts.without_small(13)
    assert set(hidden.confusion) == {"a", HIDDEN}
    assert hidden.confusion[HIDDEN].tolist() == [[4, 3], [3, 4]]
    assert set(counts.without_small(15).confusion) == {"a"}


@pytest.mark.parametrize("change", [
    lambda document: document.pop("rows"), lambda document: document["confusion"].update(f=[[-1, 0], [0, 0]]),
    lambda document: document["rows"].update(f=[[1] * 10] * 2), lambda document: document.update(confusion=[]),
    lambda document: document["probability"].update(f=[[1e9] * 10] * 2)])
def test_a_file_that_is_no_counts_is_refused(run, patients, change):
    document = json.loads(count_groups(run.trained, patients, "sex").to_json())
    change(document)
    with pytest.raises(PayloadError, match=r"no counts of groups|contradict each other"):
        GroupCounts.from_json(json.dumps(document))


def test_ids_make_no_groups_and_ages_are_cut(run, patients):
    with pytest.raises(DataError, match="looks like ids or numbers"):
        count_groups(run.trained, patients, "age")
    counts = count_groups(run.trained, patients, "age", cuts=[18, 65])
    assert set(counts.confusion) == {"below 18", "18 to below 65", "65 and above"}
    assert counts.confusion["below 18"].sum() == (patients["age"] < 18).sum()


def test_of_many_classes_one_is_named(run):
    counts = GroupCounts("g", ("a", "b", "c"))
    with pytest.raises(ConfigError, match="3 classes"):
        positive_class(counts)
    with pytest.raises(ConfigError, match="no class 'z'"):
        positive_class(counts, "z")


def test_parties_count_their_own_test_rows(run):
    found = counted([str(run.folder)], "sex", None, by_party=True, minimum=1)
    whole, *parties = found.values()
    assert len(parties) == 3
    assert sum(table.sum() for table in whole.confusion.values()) == sum(row["rows"] for row in run.parties)
    right = sum(np.trace(table) for table in whole.confusion.values())
    total = sum(table.sum() for table in whole.confusion.values())
    assert right / total == run.summary["metrics"]["parties.accuracy.pooled"]


def test_the_command_prints_draws_and_merges(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    counts, plot = tmp_path / "counts.json", tmp_path / "fair.png"
    assert call(["fairness", str(run.folder), "--column", "sex", "--counts", str(counts), "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out
    assert "demographic parity" in printed
    assert "beyond chance" in printed
    assert max(map(len, printed.splitlines()[:-2])) <= 80
    assert plot.stat().st_size > 10_000
    assert call(["fairness", str(counts), str(counts), "--merge", "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)["all parties"]
    assert merged["positive"] == "yes"
    assert call(["fairness", str(run.folder)]) == 2
    assert "--column" in capsys.readouterr().err
