"""`tequio predict` and `tequio.predict`: files in, tables out, and why."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pandas
import pytest

import tequio
from tequio.cli.main import call
from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.inputs import read
from tequio.data.preprocessing import fit_and_prepare, preparations
from tequio.errors import ConfigError, DataError
from tequio.experiments.predicting import predictions
from tequio.learners.answers import One
from tequio.learners.kmeans import KMeans
from tequio.learners.linear import LogisticRegression, SGDRegressor
from tequio.learners.trees.forest import Cart
from tequio.learners.trees.id3 import ID3
from tequio.learners.zoo import MLP, Logistic
from tequio.models import folder
from tequio.models import model as models
from tequio.models.model import Model
from tequio.models.reasons import reason_for
from tequio.models.rows import Reading

TABLE = {"age": [30.0, 50.0, 40.0, 20.0], "colour": ["red", "blue", "green", "red"], "ok": ["no", "yes", "yes", "no"]}
COEF = np.array([[0.0, 0.0, 0.0, 0.0], [1.5, 0.5, -0.25, -1.0]])


def model_of(answer, steps, table=TABLE, target="ok", **given):
    data = read(table, target=target, **given)
    fitted, (prepared,) = fit_and_prepare(preparations(steps), [data], [data])
    answer = answer(prepared) if callable(answer) and not isinstance(answer, One) else answer
    return Model(Reading.of(data, fitted), answer, facts={"run": "hand", "algorithm": "fedavg"})


@pytest.fixture
def linear():
    return model_of(One(LogisticRegression(), {"coef": COEF, "intercept": np.zeros(2)}), ["standardise", "one-hot"])


@pytest.fixture
def saved(tmp_path, monkeypatch, linear):
    """A working folder with a model, and rows for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    folder.save(linear, tmp_path / "hand")
    frame = pandas.DataFrame({"note": ["a", "b", "c", "d"], "key": ["k1", "k2", "k3", "k4"], **TABLE})
    frame.drop(columns="ok").to_csv("rows.csv", index=False)
    frame.to_csv("known.csv", index=False)
    return tmp_path


def asked(capsys, *words):
    assert call(["predict", "hand", *words]) == 0
    return capsys.readouterr().out


def refused(capsys, *words):
    assert call(["predict", "hand", *words]) in (2, 3, 8)
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_the_table_fits_eighty_columns_and_names_what_is_ignored(saved, capsys, linear):
    told = asked(capsys, "--data", "rows.csv", "--id", "key", "--top", "2", "--proba", "--explain")
    assert max(map(len, told.splitlines())) <= 80
    assert "4 rows" in told
    assert "ignored   note" in told
    assert "more      2 rows" in told
    assert "scores" not in told
    answers = linear.predict(TABLE).tolist()
    assert f"answers   {', '.join(f'{a} {answers.count(a)}' for a in sorted(set(answers), key=answers.index))}" in told
    first = next(line.split() for line in told.splitlines() if line.startswith(" k1"))
    assert first[:2] == ["k1", answers[0]]
    assert float(first[2]) == pytest.approx(linear.predict_proba(TABLE)[0].max(), abs=5e-5)


def test_true_values_in_the_file_are_scored(saved, capsys, linear):
    told = json.loads(asked(capsys, "--data", "known.csv", "--json"))
    assert told["scores"] == linear.score(TABLE)
    assert (told["rows"], told["scored"], told["ignored"]) == (4, 4, ["note", "key"])
    assert [line["truth"] for line in told["predictions"]] == TABLE["ok"]
    (saved / "known.csv").write_text("age,colour,ok\n30,red,no\n50,blue,\n40,green,perhaps\n")
    told = json.loads(asked(capsys, "--data", "known.csv", "--json"))
    assert told["scored"] == 1
    assert told["scores"]["accuracy"] == float(linear.predict({"age": [30], "colour": ["red"]})[0] == "no")
    assert [line["truth"] for line in told["predictions"]] == ["no", None, None]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_are_written_batch_by_batch(saved, capsys, monkeypatch, linear, suffix):
    monkeypatch.setattr(models, "batch_rows", lambda columns: 1)
    (saved / "gaps.csv").write_text("age,colour\n30,pink\n50,blue\n,red\n20,red\n")
    told = asked(capsys, "--data", "gaps.csv", "--out", f"new/out{suffix}", "--unseen", "skip", "--proba", "--explain")
    assert "skipped   2 rows" in told
    place = saved / "new" / f"out{suffix}"
    written = pandas.read_csv(place) if suffix == ".csv" else pandas.read_parquet(place)
    assert list(written) == ["row", "prediction", "probability", "P(no)", "P(yes)", "why"]
    expected = linear.predict_proba({"age": [50, 20], "colour": ["blue", "red"]})
    np.testing.assert_array_equal(written.loc[[1, 3], ["P(no)", "P(yes)"]].to_numpy(float), expected)
    assert written["prediction"].isna().tolist() == [True, False, True, False]
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_a_failure_on_the_way_leaves_the_old_file(saved, capsys, monkeypatch):
    monkeypatch.setattr(models, "batch_rows", lambda columns: 1)
    (saved / "bad.csv").write_text("age,colour\n30,red\n50,pink\n")
    (saved / "out.csv").write_text("old")
    assert "row 1 has 'pink' in column 'colour'" in refused(capsys, "--data", "bad.csv", "--out", "out.csv")
    assert (saved / "out.csv").read_text() == "old"
    assert not list(saved.glob(".out*"))


@pytest.mark.parametrize(("words", "message"), [
    (["--data", "rows.csv", "--out", "rows.csv"], "holds the rows to predict"),
    (["--data", "rows.csv", "--out", "out.xlsx"], "give a .csv or .parquet file"),
    (["--data", "rows.csv", "--unseen", "guess"], "choose error, fill or skip"),
    (["--data", "rows.csv", "--party", "3"], "all parties answer with the same model"),
    (["--data", "rows.csv", "--id", "kee"], "did you mean 'key'"),
    (["--data", "rows.csv", "--id", "key", "--only", "k9", "--only", "k1"], "1 of the 2 ids"),
    (["--data", "nowhere.csv"], "there is no file 'nowhere.csv'"),
])
def test_what_makes_no_sense_is_refused(saved, capsys, words, message):
    assert message in refused(capsys, *words)
    assert (saved / "rows.csv").read_text().startswith("note,key,age,colour")


def test_some_ids_only(saved, capsys):
    told = json.loads(asked(capsys, "--data", "rows.csv", "--id", "key", "--only", "k3", "--only", "k1", "--json"))
    assert [line["id"] for line in told["predictions"]] == ["k1", "k3"]


def test_the_function_takes_models_folders_and_results(saved, linear):
    whole = tequio.predict(linear, "rows.csv", proba=True, explain=True)
    assert whole.columns == ["row", "prediction", "probability", "P(no)", "P(yes)", "why"]
    assert whole["prediction"] == linear.predict(TABLE).tolist()
    assert tequio.predict("hand", "rows.csv")["probability"] == linear.predict_proba(TABLE).max(axis=1).tolist()
    assert tequio.predict("hand", pandas.read_csv("rows.csv"), id="key", ids=["k2"])["id"] == ["k2"]
    with pytest.raises(DataError, match="1 of the 1 ids"):
        tequio.predict(linear, "rows.csv", id="key", ids=["k7"])


def test_large_files_are_never_in_memory_as_a_whole(saved, linear):
    with (saved / "large.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["colour", "age"])
        out.writerows(["red", age] for age in range(130_000))
    sizes = [batch.rows for batch in predictions(linear, saved / "large.csv")]
    assert sizes == [64_000, 64_000, 2_000]


def test_a_model_shows_what_it_is_for(linear):
    whole = replace(linear, facts={"run": "hand", "algorithm": "fedavg", "data": "csv", "rounds": 3,
                                   "sha256": "0123456789abcdef0123"}, own={f"p{n}": linear.common for n in range(5)})
    assert repr(whole).splitlines() == [
        "model of 'hand': fedavg on csv, 3 rounds", "  predicts  one of 2: no, yes", "  columns   2: age, colour",
        "  prepared  standardise, one-hot", "  parties   5 with a part or a model of their own: p0, p1, p2, ...",
        "  sha256    0123456789abcdef"]
    assert "  party     p1" in repr(whole.of("p1"))


# Why


def test_contributions_of_a_linear_model_are_value_times_weight(linear):
    mean, scale = 35.0, np.std([30, 50, 40, 20])
    told = reason_for(linear)(linear.reading.rows_of(np.array([[50.0, 0], [20.0, 2]])))
    assert told == [f"yes over no: age=50 {(50 - mean) / scale * 1.5:+.3g}, colour=blue +0.5",
                    f"no over yes: age=20 {-(20 - mean) / scale * 1.5:+.3g}, colour=red +1"]


def test_the_torch_model_of_two_classes_has_one_output():
    arrays = {"output.weight": COEF[1:].astype(np.float32), "output.bias": np.zeros(1, np.float32)}
    model = model_of(One(Logistic(), arrays), ["one-hot"])
    assert reason_for(model, most=1)(model.reading.rows_of(np.array([[2.0, 1]]))) == ["yes over no: age=2 +3"]
    assert reason_for(model, most=2)(model.reading.rows_of(np.array([[0.0, 2]]))) == ["no over yes: colour=red +1"]


def test_a_number_is_explained_by_its_sum():
    model = model_of(One(SGDRegressor(), {"coef": np.array([2.0, -1.0]), "intercept": np.array([0.5])}), [],
                     {"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [0.5, 1.5]}, "y")
    assert reason_for(model)(model.reading.rows_of(np.array([[3.0, 10.0]]))) == ["-3.5: b=10 -10, a=3 +6"]


def by_cart(prepared):
    return One(Cart(), Cart().fit(prepared, np.random.default_rng(0)).to_payload())


@pytest.mark.parametrize("steps", [["one-hot"], ["standardise", "one-hot"], ["one-hot", "standardise"],
                                   ["minmax", "one-hot"], ["log1p", "standardise", "one-hot"]])
def test_rules_of_a_tree_speak_of_raw_values(steps):
    table = {"age": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0], "colour": ["red", "blue"] * 3,
             "ok": ["no", "no", "no", "yes", "yes", "no"]}
    model = model_of(by_cart, steps, table)
    told = reason_for(model)(model.reading.rows_of(np.array([[10.0, 1], [50.0, 1], [60.0, 0], [45.0, 0]])))
    for text, age in zip(told, [10, 50, 60, 45], strict=True):
        rule = text.removeprefix("if ").split(" then ")[0]
        for condition in rule.split(" and "):
            if "age" in condition:
                assert eval(condition, {"age": age}), text
                bound = [float(word) for word in condition.split() if word[0].isdigit()]
                assert all(20 < value < 60 for value in bound), text
            else:
                assert condition in ("colour == red", "colour == blue", "colour != red", "colour != blue")
    assert [text.split(" then ")[1].split()[0] for text in told] == model.predict(
        {"age": [10, 50, 60, 45], "colour": ["red", "red", "blue", "blue"]}).tolist()


def test_rules_of_ordinal_categories_name_them():
    table = {"size": ["a small", "b medium", "c large", "d huge"], "ok": ["no", "no", "yes", "yes"]}
    model = model_of(by_cart, ["ordinal"], table)
    assert reason_for(model)(model.reading.rows_of(np.array([[1.0], [2.0]]))) == [
        "if size == a small or b medium then no (100 % of 2 rows)",
        "if size == c large or d huge then yes (100 % of 2 rows)"]


def test_rules_of_a_multiway_tree():
    table = {"sky": ["sun", "sun", "rain", "rain"], "play": ["yes", "yes", "no", "no"]}
    model = model_of(lambda rows: One(ID3(), ID3().fit(rows, np.random.default_rng(0)).to_payload()), [], table, "play")
    assert reason_for(model)(model.reading.rows_of(np.array([[1.0]]))) == [
        "if sky == sun then yes (100 % of 2 rows)"]


def test_a_cluster_is_explained_by_its_distance():
    schema = Schema((Feature("a"), Feature("b")), Target("none"))
    model = Model(Reading(schema), One(KMeans(), {"centroids": np.array([[0.0, 0.0], [3.0, 4.0]])}))
    assert reason_for(model)(Dataset.of(schema, np.array([[0.0, 1.0]]))) == [
        "centre of cluster 0 is 1 away, the next one is 1 at 4.243"]
    assert tequio.predict(model, {"a": [0, 3], "b": [1, 3]})["cluster"] == [0, 1]


def test_a_model_without_short_reasons_says_what_to_do_instead():
    model = model_of(One(MLP(), {}), ["one-hot"])
    with pytest.raises(ConfigError, match="learner = 'cart' for a rule"):
        reason_for(model)
    with pytest.raises(ConfigError, match="gives no probabilities"):
        next(predictions(replace(model, reading=Reading(Schema.of_numbers("a", Target("number")))), {"a": [1]},
                         proba=True))
