"""Rows in every form that people have them: the right answer, or an error that says where."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from pyarrow import parquet
from scipy import sparse

from tequio.data.dataset import Dataset, Feature, Schema, Target
from tequio.data.inputs import read
from tequio.data.preprocessing import fit_and_prepare, preparations
from tequio.errors import ConfigError, DataError
from tequio.learners.answers import One
from tequio.learners.linear import LogisticRegression, SGDRegressor
from tequio.models import model as models
from tequio.models.model import Model
from tequio.models.rows import Reading
from tequio.models.sources import batch_rows, batches

COLOURS = ("blue", "green", "red")
COEF, INTERCEPT = np.array([[0.0] * 5, [1.0, -2.0, 0.5, 1.5, -3.0]]), np.array([0.0, 0.25])
ROWS = {"age": [1.0, 2.5, -3.0, 4.0], "weight": [2, 0, 1, 3], "colour": ["red", "blue", "green", "red"]}


def by_hand(ages, weights, colours):
    """The margin of 'yes' over 'no', without any of our code."""
    chosen = {"blue": 0.5, "green": 1.5, "red": -3.0}
    return [age - 2 * weight + chosen[colour] + 0.25
            for age, weight, colour in zip(ages, weights, colours, strict=True)]


ANSWERS = ["yes" if margin > 0 else "no" for margin in by_hand(**{name + "s": ROWS[name] for name in ROWS})]


def mixed(names=("no", "yes"), missing="error", **reading):
    table = {**ROWS, "ok": [names[1], names[0], names[1], names[1]]}
    if missing == "median":
        table["age"] = [1.0, None, -3.0, 4.0]
    data = read(table, target="ok", target_kind="classes", missing=missing)
    steps = [{"name": "impute", "indicators": False}, "one-hot"] if missing == "median" else ["one-hot"]
    prepared, _ = fit_and_prepare(preparations(steps), [data], [data])
    return Model(Reading.of(data, prepared, **reading), One(LogisticRegression(), {"coef": COEF,
                                                                                 "intercept": INTERCEPT}))


def numeric(columns=3, dtype="float64"):
    schema = Schema.of_numbers([f"x{column}" for column in range(columns)], Target("number", (), "y"))
    learner = {"coef": np.arange(1.0, columns + 1), "intercept": np.array([0.5])}
    return Model(Reading(schema, dtype), One(SGDRegressor(), learner))


FORMS = {
    "dict": lambda: ROWS,
    "pandas": lambda: pandas.DataFrame(ROWS),
    "pandas, categories": lambda: pandas.DataFrame(ROWS).astype({"colour": "category"}),
    "pandas, nullable": lambda: pandas.DataFrame(ROWS).convert_dtypes(),
    "other order and more columns": lambda: pandas.DataFrame({"note": pandas.Timestamp("2026-01-01"), **dict(
        reversed(ROWS.items()))}),
    "numbers as text": lambda: pandas.DataFrame({**ROWS, "age": ["1", " 2.50", "-3e0", "4"]}),
    "polars": lambda: polars.DataFrame(ROWS),
    "polars, lazy": lambda: polars.LazyFrame(ROWS),
    "polars, categories": lambda: polars.DataFrame(ROWS).with_columns(polars.col("colour").cast(polars.Categorical)),
    "arrow": lambda: pyarrow.table(ROWS),
    "arrow, dictionary": lambda: pyarrow.table({**ROWS, "colour": pyarrow.array(ROWS["colour"]).dictionary_encode()}),
    "arrow, batch": lambda: pyarrow.record_batch(ROWS),
    "list of dicts": lambda: pandas.DataFrame(ROWS).to_dict("records"),
    "structured array": lambda: pandas.DataFrame(ROWS).to_records(index=False),
    "codes in an array": lambda: np.array([[1, 2, 2], [2.5, 0, 0], [-3, 1, 1], [4, 3, 2]]),
    "codes in lists": lambda: [[1, 2, 2], [2.5, 0, 0], [-3, 1, 1], [4, 3, 2]],
    "tensor": lambda: torch.tensor([[1, 2, 2], [2.5, 0, 0], [-3, 1, 1], [4, 3, 2]]),
    "sparse": lambda: sparse.coo_matrix(np.array([[1, 2, 2], [2.5, 0, 0], [-3, 1, 1], [4, 3, 2]])),
    "torch dataset": lambda: torch.utils.data.TensorDataset(torch.tensor([[1, 2, 2], [2.5, 0, 0], [-3, 1, 1],
                                                                          [4, 3, 2]])),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gets_the_same_answers(form):
    model = mixed()
    assert model.predict(FORMS[form]()).tolist() == ANSWERS
    margins = np.array(by_hand(**{f"{name}s": ROWS[name] for name in ROWS}))
    np.testing.assert_allclose(model.predict_proba(FORMS[form]())[:, 1], 1 / (1 + np.exp(-margins)), rtol=1e-12)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_files_are_answered_part_by_part(tmp_path, monkeypatch, suffix, size):
    path, frame = tmp_path / f"rows{suffix}", pandas.DataFrame({**ROWS, "seen": pandas.Timestamp("2026-01-01")})
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    monkeypatch.setattr(models, "batch_rows", lambda columns: size)
    model = mixed()
    assert model.predict(path).tolist() == ANSWERS
    parts = [part for part, _ in model.answered(str(path))]
    assert [part.given for part in parts] == [size] * (4 // size) + [4 % size] * (4 % size > 0)
    assert parts[0].ignored == ("seen",)


@pytest.mark.parametrize("row", [{name: values[2] for name, values in ROWS.items()},
                                 pandas.DataFrame(ROWS).iloc[2]])
def test_one_row_is_a_dict_of_values_or_a_series(row):
    assert mixed().predict(row).tolist() == [ANSWERS[2]]


@pytest.mark.parametrize(("rows", "message"), [
    ({**ROWS, "colour": ["red", "pink", "red", "pink"]}, r"row 1 has 'pink' in column 'colour', of which the model "
     r"knows 'blue', 'green', 'red' \(and 1 more row\)"),
    ({**ROWS, "colour": ["red", None, "red", "red"]}, "row 1 has no value in column 'colour'"),
    ({**ROWS, "age": [1, 2, "old", 4]}, "row 2 has 'old' in column 'age', which is no number"),
    ({**ROWS, "age": [1, 2, np.nan, 4]}, "row 2 has no value in column 'age'"),
    ({**ROWS, "age": [1, np.inf, 0, 4]}, "row 1 has inf in column 'age', which is not finite"),
    ({"age": [1], "wieght": [2], "colour": ["red"]}, "lack 1 of the model's 3 columns: 'weight'; did you "
     "mean 'wieght'"),
    ({"a": [1], "b": [2]}, "lack 3 of the model's 3 columns"),
    ({**ROWS, "weight": 3}, "'weight' is a single value, and other columns are lists"),
    ({**ROWS, "weight": [3]}, "columns have different lengths"),
    ({**ROWS, "age": [[1, 2]] * 4}, "not single values"),
    ({**ROWS, "age": pandas.to_datetime(["2026-01-01"] * 4)}, "'age' holds dates, and number is wanted"),
    ({}, "there are no rows"),
    ([], "there are no rows"),
    (pandas.DataFrame(ROWS).iloc[:0], "there are no rows"),
    (np.empty((0, 3)), "there are no rows"),
    (np.zeros(3), r"rows.reshape\(1, -1\)"),
    (np.zeros((2, 4)), r"rows of shape \(4,\) are not what the model was trained on: \(3,\)"),
    (np.array([[1, 2, 3]]), "row 0 has the code 3 in column 'colour', which has 3 categories"),
    (np.array([[1, 2, 0.5]]), "row 0 has the code 0.5 in column 'colour'"),
    (np.array([[1, np.nan, 0]]), "row 0 has no value in column 'weight'"),
    (np.array([[1, 2, 0], [1, -np.inf, 0]]), "row 1 has -inf in column 'weight', which is not finite"),
    (np.array([["1", "2", "red"]]), "lack 3 of the model's 3 columns"),
    (np.array([[1 + 2j, 0, 0]]), "complex"),
    ([[1, 2], [1, 2, 0]], "different lengths"),
    ((np.zeros((1, 3)), None, None), "a tuple of 3 parts"),
    (sparse.csr_matrix(np.array([[1, np.nan, 0]])), "missing or infinite"),
    (pandas.DataFrame([[1, 1, 2, "red"]], columns=["age", "age", "weight", "colour"]), "2 columns called 'age'"),
    (pyarrow.Table.from_arrays([pyarrow.array([1])] * 4, ["age", "age", "weight", "colour"]),
     "2 columns called 'age'"),
    (7, "rows cannot be read from a int"),
    (None, "rows cannot be read from a NoneType"),
    ("nowhere.csv", "there is no file 'nowhere.csv'"),
])
def test_what_cannot_be_answered_says_where(rows, message):
    with pytest.raises(DataError, match=message):
        mixed().predict(rows)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("empty.csv", "", "is empty"),
    ("header.csv", "age,weight,colour\n", "names columns but has no rows"),
    ("twice.csv", "age,age,weight,colour\n1,1,2,red\n", "2 columns called 'age'"),
    ("short.csv", "age,weight,colour\n1,2\n", "line 2 .* has 2 values"),
    ("other.csv", "a;b\n1;2\n", "lack 3 of the model's 3 columns"),
    ("latin.csv", "age,weight,colour\n1,2,f\xe4rbt\n".encode("latin-1"), "a text table in utf-8"),
    ("sheet.xlsx", "PK", "no known file type"),
    ("not.parquet", "PAR1", "cannot be read as a Parquet file"),
    ("bad.csv", "age,weight,colour\n1,2,red\n1,two,red\n", "row 1 has 'two' in column 'weight'"),
])
def test_files_that_cannot_be_answered_say_why(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        mixed().predict(tmp_path / name)


def test_an_empty_parquet_file_is_an_error(tmp_path):
    parquet.write_table(pyarrow.table(ROWS).slice(0, 0), tmp_path / "no.parquet")
    with pytest.raises(DataError, match="no rows"):
        mixed().predict(tmp_path / "no.parquet")


def test_an_error_names_the_row_of_the_whole_file(monkeypatch):
    monkeypatch.setattr(models, "batch_rows", lambda columns: 2)
    with pytest.raises(DataError, match="row 3 has 'x' in column 'age'") as caught:
        mixed().predict({**ROWS, "age": [1, 2, 3, "x"]})
    assert (caught.value.row, caught.value.column) == (3, "age")


def test_unseen_values_are_skipped_or_filled_in():
    rows = {**ROWS, "colour": ["red", "pink", "green", "red"], "age": [1.0, 2.5, np.nan, 4.0]}
    assert mixed().predict(rows, unseen="skip").tolist() == [ANSWERS[0], None, None, ANSWERS[3]]
    assert np.isnan(mixed().predict_proba(rows, unseen="skip")[1:3]).all()
    with pytest.raises(DataError, match="no usual value of column 'age'"):
        mixed().predict(rows, unseen="fill")
    known = mixed(missing="median")  # median age 1.0, most frequent colour red
    margins = by_hand([1.0, 2.5, 1.0, 4.0], ROWS["weight"], ["red", "red", "green", "red"])
    assert known.predict(rows, unseen="fill").tolist() == ["yes" if margin > 0 else "no" for margin in margins]
    assert known.predict(rows, unseen="skip").tolist()[1:3] == [None, "yes" if margins[2] > 0 else "no"]
    codes = np.array([[np.nan, 1, 1], [2.5, 0, 0]])
    assert known.predict(codes).tolist() == known.predict({"age": [1.0, 2.5], "weight": [1, 0], "colour": [
        "green", "blue"]}).tolist()
    with pytest.raises(ConfigError, match="choose error, fill or skip"):
        known.predict(rows, unseen="ignore")


def test_columns_that_are_not_there_are_filled_in_on_request_only():
    rows = {"age": ROWS["age"], "weight": ROWS["weight"]}
    with pytest.raises(DataError, match="--unseen fill"):
        mixed().predict(rows)
    assert mixed().predict(rows, unseen="fill").tolist() == mixed().predict({**rows, "colour": ["red"] * 4}).tolist()
    with pytest.raises(DataError, match="lack 3 of"):
        mixed().predict({"other": [1]}, unseen="fill")


def test_categories_that_look_like_numbers_do_not_depend_on_the_other_rows_of_a_part(tmp_path):
    domain = ("1.0", "1e5", "3", "007", "x")
    schema = Schema((Feature("code", domain),), Target("number", (), "y"))
    data = Dataset.of(schema, np.arange(5.0)[:, None], np.zeros(5))
    prepared, _ = fit_and_prepare(preparations(["one-hot"]), [data], [data])
    model = Model(Reading.of(data, prepared), One(SGDRegressor(), {"coef": np.arange(5.0), "intercept": np.zeros(1)}))
    for code, text in enumerate(domain):
        (tmp_path / "one.csv").write_text(f"code\n{text}\n")
        assert model.predict(tmp_path / "one.csv").tolist() == [code]
    assert model.predict({"code": [3.0, 3]}).tolist() == [2, 2]
    assert model.predict({"code": ["3.0", "007"]}).tolist() == [2, 3]


def test_truth_values_are_numbers_and_categories():
    assert numeric().predict({"x0": [True, False], "x1": [0, 1], "x2": ["True", "False"]}).tolist() == [4.5, 2.5]
    schema = Schema((Feature("flag", ("False", "True")),), Target("number", (), "y"))
    model = Model(Reading(schema, preparation=fit_and_prepare(preparations(["ordinal"]), [Dataset.of(
        schema, np.zeros((1, 1)), np.zeros(1))], [])[0]), One(SGDRegressor(), {"coef": np.ones(1),
                                                                             "intercept": np.zeros(1)}))
    assert model.predict({"flag": np.array([True, False])}).tolist() == [1, 0]
    assert model.predict({"flag": ["True", "False"]}).tolist() == [1, 0]


def test_numbers_too_large_for_the_model_are_refused():
    with pytest.raises(DataError, match="row 0 has 1e\\+300 in column 'x1', which is not finite"):
        numeric(dtype="float32").predict({"x0": [1.0], "x1": [1e300], "x2": [0.0]})
    with pytest.raises(DataError, match="row 0 has inf in column 'x1'"):
        numeric(dtype="float32").predict(np.array([[1.0, 1e300, 0.0]]))
    large = np.array([[1e308, 0, 0], [1e308, 0, 0]])  # each is finite, their sum is not
    assert numeric().predict(large).tolist() == [1e308, 1e308]


@given(some.lists(some.tuples(*[some.floats(-1e6, 1e6)] * 3), min_size=1, max_size=12),
       some.permutations(["x0", "x1", "x2"]), some.booleans())
@settings(max_examples=60, deadline=None)
def test_order_and_form_change_no_answer(rows, order, with_more):
    table = np.array(rows)
    expected = table @ [1.0, 2.0, 3.0] + 0.5
    frame = pandas.DataFrame(table, columns=["x0", "x1", "x2"])[list(order)]
    if with_more:
        frame.insert(1, "note", "text")
    model = numeric()
    for form in (frame, polars.from_pandas(frame), pyarrow.Table.from_pandas(frame), frame.to_dict("list"),
                 frame.to_dict("records"), frame.astype(str), table):
        np.testing.assert_allclose(model.predict(form), expected, rtol=1e-9, atol=1e-6)


@given(some.lists(some.sampled_from([1.5, "2", None, "nan", "", "x", np.inf, "-inf", True, "1_0"]), min_size=1,
                  max_size=8), some.sampled_from(["skip", "error"]))
@settings(max_examples=80, deadline=None)
def test_a_number_column_is_read_or_refused_value_by_value(values, unseen):
    good = {1.5: 1.5, "2": 2.0, True: 1.0, "1_0": 10.0}
    bad = [value not in good for value in values]
    rows = {"x0": np.array([*values, None], dtype=object)[:-1], "x1": [0.0] * len(values), "x2": [0.0] * len(values)}
    if unseen == "error" and any(bad):
        with pytest.raises(DataError) as caught:
            numeric().predict(rows)
        assert (caught.value.row, caught.value.column) == (bad.index(True), "x0")
    else:
        expected = [np.nan if wrong else good[value] + 0.5 for value, wrong in zip(values, bad, strict=True)]
        np.testing.assert_array_equal(numeric().predict(rows, unseen=unseen), expected)


TRUTH = ["yes", "no", "yes", "yes"]
RIGHT = np.mean([answer == truth for answer, truth in zip(ANSWERS, TRUTH, strict=True)])


@pytest.mark.parametrize("target", [TRUTH, np.array(TRUTH), pandas.Series(TRUTH, index=[9, 8, 7, 6]),
                                    polars.Series(TRUTH), pyarrow.chunked_array([TRUTH]),
                                    pandas.Series(TRUTH, dtype="category"), np.array(TRUTH)[:, None]])
def test_true_values_come_as_any_array(target):
    assert mixed().score(pandas.DataFrame(ROWS), target)["accuracy"] == RIGHT


def test_true_values_come_as_a_column_by_any_name():
    assert mixed().score({**ROWS, "ok": TRUTH})["accuracy"] == RIGHT
    assert mixed().score({**ROWS, "outcome": TRUTH}, "outcome")["accuracy"] == RIGHT
    with pytest.raises(DataError, match=r"there is no column 'outcme'; .*did you mean 'outcome'"):
        mixed().score({**ROWS, "outcome": TRUTH}, "outcme")


@pytest.mark.parametrize(("names", "given_as", "kind"), [
    (("0", "1"), [[1, 0, 1, 1], ["1", "0", "1", "1"], [1.0, 0.0, 1.0, 1.0], np.array([1, 0, 1, 1], np.uint8)],
     np.int64),
    (("False", "True"), [[True, False, True, True], ["True", "False", "True", "True"]], np.bool_),
    (("no", "yes"), [TRUTH, np.array(TRUTH, object)], object),
    (("-1", "1"), [[1, -1, 1, 1]], np.int64),
    (("1", "01"), [["01", "1", "01", "01"]], object),
])
def test_classes_are_numbers_texts_or_truth_values(names, given_as, kind):
    model = mixed(names)
    model = Model(Reading(Schema(model.reading.schema.features, Target("classes", names, "ok")),
                          preparation=model.reading.preparation), model.common)
    assert model.classes.dtype == np.dtype(kind)
    assert [str(answer) for answer in model.predict(ROWS)] == [names[answer == "yes"] for answer in ANSWERS]
    for target in given_as:
        assert model.score(ROWS, target)["accuracy"] == RIGHT


@pytest.mark.parametrize(("target", "message"), [
    (["yes", "no", "yes"], "there are 4 rows, but 3 true values"),
    (["yes", "no", "yes", "yes", "no"], "there are 4 rows, but 5 true values"),
    (["yes", "maybe", "yes", "no"], "row 1 has the true value 'maybe' in column 'ok', which the model does not know"),
    (["yes", "no", None, "no"], "row 2 has no true value in column 'ok'"),
    (np.ones((4, 2)), "the true values have 2 columns, and the model predicts 1: 'ok'"),
])
def test_true_values_that_do_not_fit_are_refused(target, message):
    with pytest.raises(DataError, match=message):
        mixed().score(ROWS, target)


def test_scores_of_parts_are_those_of_the_whole(monkeypatch):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2_500, 3))
    truth = rows @ [1, 2, 3] + rng.normal(size=2_500)
    whole = numeric().score(rows, truth)
    monkeypatch.setattr(models, "BATCH", 700)
    parts = numeric().score(rows, truth)
    assert parts == pytest.approx(whole, rel=1e-12)
    error = rows @ [1, 2, 3] + 0.5 - truth
    assert parts["rmse"] == pytest.approx(np.sqrt(np.mean(error ** 2)))


def test_batches_are_multiples_of_what_a_torch_learner_takes_at_once():
    assert [batch_rows(columns) for columns in (1, 16, 64, 784, 3_072, 10**7)] == [64_000, 64_000, 16_000, 1_000,
                                                                                 1_000, 1_000]
    assert [len(part) for part in batches(np.zeros((7, 2)), 3)] == [3, 3, 1]
