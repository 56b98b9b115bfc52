"""Tables as people have them, from a file to an answer: kinds of columns, missing values, and models that meet both."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import tequio
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.errors import ConfigError
from tequio.experiments.config.complete import complete
from tequio.experiments.running.scenario import make_scenario

WORDS = ["calm", "cough", "fever", "night", "pain", "rest"]


def patients(count: int = 300) -> pd.DataFrame:
    """An id, a date, a note, gaps, a rare category, an ordered column, and two classes that depend on most of them."""
    draw = np.random.default_rng(5)
    age, ward = draw.normal(60, 12, count).round(), draw.choice(["a", "b"], count)
    notes = [" ".join(draw.choice(WORDS, 5)) for _ in range(count)]
    stage = draw.choice(["I", "II", "III"], count)
    score = (age - 60) / 12 + (ward == "a") + (stage == "III") + np.array(["fever" in note for note in notes]) - 1.3
    table = pd.DataFrame({
        "Patient ID": [f"P{number}" for number in draw.permutation(count)],
        "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 700, count), "D"),
        "age": age, "ward": ward, "stage": stage, "note": notes, "again": np.where(score > 0, "yes", "no")})
    table["seen"] = table["seen"].dt.strftime("%d.%m.%Y")
    table.loc[draw.choice(count, 40, replace=False), "age"] = np.nan
    table.loc[draw.choice(count, 25, replace=False), "ward"] = None
    table.loc[3, "ward"] = "rare"
    return table


SAID = {"target": "again", "missing": "keep", "columns": {"stage": {"kind": "ordered", "order": ["I", "II", "III"]}}}


def run(table, folder, learner="logistic", algorithm="fedavg", **data):
    path = folder / "patients.csv"
    table.to_csv(path, index=False)
    local = {"local": {"epochs": 10}} if learner == "logistic" else {}
    data = {"name": "csv", "path": str(path), "partition": {"name": "iid", "parties": 3}, **SAID, **data}
    return tequio.run(data=data, learner=learner, algorithm=algorithm, rounds=5, engine={"workers": 1},
                      output={"folder": str(folder / "runs")}, **local)


def test_a_messy_table_runs_as_it_is_and_says_what_was_done(tmp_path):
    result = run(patients(), tmp_path)
    notes = [event["message"] for event in result.events if event["event"] == "note"]
    assert [note.split("'")[1] for note in notes] == ["Patient ID", "seen", "note", "ward"]
    [data] = [event for event in result.events if event["event"] == "data"]
    ordinal = {"name": "ordinal", "which": "ordered"}
    assert data["prepare"] == ["date-parts", ordinal, "impute", "standardise", "one-hot"]
    assert result.config.data.prepare == ["auto"]
    assert result.score(patients(600).iloc[300:], "again")["accuracy"] > 0.7


def test_answers_to_raw_rows_are_those_of_the_run(tmp_path):
    result = run(patients(), tmp_path)
    rows = patients().drop(columns="again").sample(frac=1.0, random_state=0)
    shuffled = result.predict_proba(rows)
    np.testing.assert_array_equal(shuffled, result.predict_proba(rows[rows.columns[::-1]]))
    one = pd.concat([rows.iloc[[0]]] * 2)
    one["age"] = [np.nan, 60.0]
    apart = result.predict_proba(one)
    assert not np.allclose(apart[0], apart[1])  # the flag that the age is missing has a weight of its own
    new = rows.iloc[[0]].assign(ward="never seen")
    np.testing.assert_array_equal(result.predict_proba(new), result.predict_proba(rows.iloc[[0]].assign(ward="rare")))


def test_held_out_rows_do_not_change_what_is_fitted(tmp_path):
    """Only rows that parties train on may move medians, means and scales."""
    table = patients()
    before = run(table, tmp_path).trained.reading.preparation.statistics
    config = complete({"data": {"name": "csv", "path": str(tmp_path / "patients.csv"), "id": "Patient ID",
                                "partition": {"name": "iid", "parties": 3}, **SAID}})
    population = make_scenario(config).population
    trained = np.concatenate([population.view(party).train.ids for party in range(3)])
    held = ~table["Patient ID"].isin(trained)
    assert held.sum() > 60
    table.loc[held, "age"] = 1e6
    after = run(table, tmp_path).trained.reading.preparation.statistics
    for first, second in zip(before, after, strict=True):
        assert all(np.array_equal(first[key], second[key]) for key in first)
    table.loc[~held, "age"] = 1e6
    assert not np.array_equal(run(table, tmp_path).trained.reading.preparation.statistics[2]["fill"], before[2]["fill"])


@pytest.mark.parametrize("scope", ["federated", "local"])
def test_workers_do_not_change_a_bit(tmp_path, scope):
    table = patients()
    path = tmp_path / "patients.csv"
    table.to_csv(path, index=False)
    hashes = {tequio.run(data={"name": "csv", "path": str(path), "partition": {"name": "iid", "parties": 3}, **SAID,
                               "prepare_scope": scope}, rounds=2, engine={"workers": workers},
                         output={"folder": str(tmp_path / f"runs{workers}")}).summary["model_sha256"]
              for workers in (1, 2)}
    assert len(hashes) == 1


def test_trees_get_the_table_as_it_is(tmp_path):
    result = run(patients(), tmp_path, learner="cart", algorithm="icdta4fl")
    assert "prepare" not in {key for event in result.events if event["event"] == "data" for key in event}
    assert result.score(patients(600).iloc[300:], "again")["accuracy"] > 0.6


def test_steps_of_your_own_take_the_place_of_auto(tmp_path):
    steps = ["date-parts", "ordinal", {"name": "impute", "indicators": False}, "minmax"]
    result = run(patients(), tmp_path, prepare=steps)
    assert [type(step).__name__ for step in result.trained.reading.preparation.steps] == [
        "DateParts", "Ordinal", "Impute", "MinMax"]
    with pytest.raises(ConfigError, match="values of this table may be missing"):
        run(patients(), tmp_path, prepare=["date-parts", "ordinal"])


def test_catalogue_sets_and_datasets_of_ones_own_making_stay_as_they_are(tmp_path):
    def steps(*rows, **data):
        result = tequio.run(*rows, rounds=1, data={"partition": {"name": "iid", "parties": 2}, **data},
                            output={"folder": str(tmp_path)})
        return result.config.data.prepare

    features = np.random.default_rng(0).normal(50, 9, (60, 2))
    target = (features[:, 0] > 50) * 1
    schema = Schema((Feature("a"), Feature("b")), Target("classes", ("0", "1")))
    assert steps() == []
    assert steps(Dataset.of(schema, features, target)) == []
    assert steps((features, target)) == ["auto"]
    assert steps((features, target), prepare=["minmax"]) == ["minmax"]
