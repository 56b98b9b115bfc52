"""What is found in a table: kinds, roles, leaks by single-column score, gaps, parties, samples."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patients import HOSPITALS, LEAK, patients, write
from tequio.data.inputs import table_of
from tequio.data.inspecting import sampling
from tequio.data.inspecting.facts import UNBALANCED
from tequio.data.inspecting.scores import (
    FOLDS,
    bins_of,
    monotone_score,
    outcome_of,
    party_folds,
    score,
    share_placed,
    text_score,
)
from tequio.data.inspecting.table import inspect_table
from tequio.errors import DataError
from tequio.experiments.running.headline import IMBALANCED


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("tables") / "patients.csv", patients())
    return inspect_table(path, target="readmitted", party="Hospital")


def by_name(found):
    return {column.name: column for column in found.columns}


EXPECTED = {
    "Patient Nr.": ("id", "id", "tells rows apart"),
    "Pat ID": ("id", "out", "tells rows apart"),
    "Hospital": ("category", "party", ""),
    "admitted on": ("date", "feature", "as parts of the date"),
    "Arztbrief (frei)": ("text", "feature", "words, in 128 columns"),
    "Größe [cm]": ("number", "feature", ""),
    'CRP "mg/l"': ("number", "feature", ""),
    "age": ("number", "feature", ""),
    "severity": ("ordered", "feature", "in order: low < medium < high"),
    "smoker?": ("category", "feature", ""),
    "name": ("category", "feature", ""),
    LEAK: ("category", "out", "leak? AUC 1.000 alone"),
    "house.code": ("category", "out", "says which party it is"),
    "country": ("category", "out", "always the same value"),
    "Alter": ("number", "out", "the same as age"),
    "empty": ("ignore", "out", "holds no values"),
    "readmitted": ("category", "target", ""),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_column_of_a_newcomers_table_is_seen_through(found, name):
    column = by_name(found)[name]
    assert (column.kind, column.role, column.reason) == EXPECTED[name]


def test_the_whole_of_a_newcomers_table(found):
    assert (found.rows, found.seen, list(by_name(found))) == (1200, 1200, list(EXPECTED))
    assert {party.name: party.rows for party in found.parties} == HOSPITALS
    assert dict(found.target.classes) == {"no": 1116, "yes": 84}
    assert [finding.text for finding in found.findings] == [
        "93.0% of the rows are of class 'no', so accuracy says little: results are compared by balanced accuracy",
        f"'{LEAK}' alone predicts the target almost without error (AUC 1.000): most likely it is only known "
        "afterwards, so it is left out",
        "2 columns have missing values, in 17.0% of the rows: these are kept, not dropped"]


def test_gaps_are_counted(found):
    table = patients()
    assert by_name(found)['CRP "mg/l"'].missing == table['CRP "mg/l"'].count("")
    assert by_name(found)["severity"].missing == table["severity"].count("NA")


def test_without_a_target_and_a_party_the_likely_ones_are_named(tmp_path):
    found = inspect_table(write(tmp_path / "patients.csv", patients()))
    assert (found.targets, found.groups) == (("readmitted",), ("Hospital",))


def test_runs_and_inspections_agree_on_when_accuracy_says_little():
    assert UNBALANCED == IMBALANCED


# scores

def labelled(**columns):
    content, _, _ = table_of({name: np.asarray(values) for name, values in columns.items()})
    return content, outcome_of(content["y"], is_number=content["y"].values.dtype != object and len(
        np.unique(content["y"].values)) > 20)


def test_the_score_of_categories_is_the_auc_of_predictions_from_other_folds():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 400)
    content, outcome = labelled(x=x.astype(str), y=np.where(rng.random(400) < 0.1 + 0.12 * x, "b", "a"))
    is_b = outcome.values == 1
    areas = []
    for fold in range(FOLDS):
        held = outcome.folds == fold
        shares = {value: (is_b[~held & (x == value)].sum() + is_b.mean()) / ((~held & (x == value)).sum() + 1)
                  for value in range(6)}
        areas.append(roc_auc_score(is_b[held], [shares[value] for value in x[held]]))
    # of two classes the second's area is the first's
    assert score(bins_of(content["x"], categories=False), outcome) == pytest.approx(np.mean(areas), abs=1e-12)


def test_the_score_of_a_number_taken_as_it_is_is_its_auc_either_way():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    y = np.where(rng.random(300) < 0.3, "b", "a")
    x = rng.normal(size=300).round(1) - (y == "b")
    content, outcome = labelled(x=x, y=y)
    assert monotone_score(content["x"], outcome) == pytest.approx(roc_auc_score(y == "b", -x), abs=1e-12)


def test_the_score_of_a_number_against_a_number_is_the_explained_variance_of_ranks():
    from scipy.stats import rankdata, spearmanr
    from sklearn.metrics import r2_score

    rng = np.random.default_rng(2)
    x = rng.integers(0, 5, 200)
    y = np.exp(x + rng.normal(size=200))
    content, outcome = labelled(x=x.astype(float), y=y)
    ranks = rankdata(y)
    predicted = np.empty(200)
    for fold in range(FOLDS):
        held = outcome.folds == fold
        for value in range(5):
            known = ~held & (x == value)
            predicted[held & (x == value)] = (ranks[known].sum() + ranks.mean()) / (known.sum() + 1)
    assert score(bins_of(content["x"], categories=False), outcome) == pytest.approx(r2_score(ranks, predicted))
    assert monotone_score(content["x"], outcome) == pytest.approx(spearmanr(x, y).statistic ** 2)


@given(st.permutations(range(100)), st.integers(10, 50))
@settings(max_examples=25, deadline=None)
def test_values_that_occur_once_say_exactly_nothing(order, ones):
    """Whatever the order of ids is, in a table sorted by its classes too."""
    content, outcome = labelled(x=[f"P{number}" for number in order], y=["b"] * ones + ["a"] * (100 - ones))
    assert score(bins_of(content["x"], categories=True), outcome) == 0.5


def test_an_id_that_only_one_class_has_is_a_leak():
    ids = [f"D{row}" if row % 4 == 0 else "" for row in range(200)]
    table = {"death certificate": ids, "x": np.arange(200) % 7 / 2, "died": ["yes" if one else "no" for one in ids]}
    assert by_name(inspect_table(table, target="died"))["death certificate"].reason == "leak? AUC 1.000 alone"


def test_a_word_that_decides_is_a_leak():
    rng = np.random.default_rng(3)
    words = np.array(["calm", "tired", "awake", "eating", "sleeping", "walking", "cold", "warm"])
    died = rng.random(400) < 0.2
    notes = [" ".join([*rng.choice(words, 6), *(["deceased"] * 3 if one else [])]) + f" {row}"
             for row, one in enumerate(died)]
    content, outcome = labelled(notes=notes, y=np.where(died, "yes", "no"))
    assert text_score(content["notes"], outcome) > 0.999
    found = inspect_table({"notes": notes, "x": rng.normal(size=400), "y": np.where(died, "yes", "no")}, target="y")
    assert by_name(found)["notes"].reason.startswith("leak? AUC")


def test_good_columns_are_no_leaks():
    """Measurements that doctors learned to trust: left in, the best of them to be checked."""
    from sklearn.datasets import load_breast_cancer, load_iris

    for data, checked in ((load_breast_cancer(as_frame=True), 5), (load_iris(as_frame=True), 2)):
        frame = data.frame.assign(target=data.target_names[data.target])
        found = inspect_table(frame, target="target")
        assert not found.of("out")
        assert sum(column.reason.startswith("check") for column in found.columns) >= checked


def test_a_copy_of_a_number_is_a_leak_of_it():
    rng = np.random.default_rng(4)
    price = rng.lognormal(10, 1, 500)
    found = inspect_table({"cents": (price * 100).round(), "rooms": rng.integers(1, 9, 500), "price": price},
                          target="price")
    assert {name: column.role for name, column in by_name(found).items()} == {
        "cents": "out", "rooms": "feature", "price": "target"}


def test_the_share_of_rows_that_a_column_places_is_counted_exactly():
    parties = np.repeat([0, 1, 2], 100)
    bins = parties.copy()
    bins[:10] = 1  # ten rows of the first party look like the second
    assert share_placed(bins, parties, party_folds(parties)) == pytest.approx(290 / 300)


# rows

@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_a_sample_of_a_file_is_that_of_its_rows_in_memory(tmp_path, monkeypatch, ending):
    import pandas as pd

    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"row": np.arange(1000) * 1.5, "word": rng.choice(["a", "b"], 1000)})
    path = tmp_path / f"rows.{ending}"
    frame.to_parquet(path, row_group_size=130) if ending == "parquet" else frame.to_csv(path, index=False)
    whole = sampling.sampled(frame, 100).columns
    monkeypatch.setattr(sampling, "_LARGE_BYTES", 0)
    monkeypatch.setattr(sampling, "columns_from_file", None)  # not read as a whole
    sample = sampling.sampled(path, 100)
    kept = sample.columns
    assert sample.rows == 1000
    assert kept["row"].values.tolist() == whole["row"].values.tolist()
    assert kept["word"].values.tolist() == whole["word"].values.tolist()
    assert len(set(kept["row"].values)) == 100


def test_a_sample_is_spoken_of(found):
    sample = inspect_table(patients(), target="readmitted", party="Hospital", most=300)
    assert (sample.rows, sample.seen) == (1200, 300)
    assert sample.findings[0].text == ("the table has 1,200 rows; a sample of 300 was looked at, the same one each "
                                       "time")


def test_small_parties_of_a_sample_may_be_larger():
    table = of_parties(north=(900, 400), south=(900, 400), east=(40, 20))
    found = inspect_table(table, target="y", party="site", most=200)
    assert found.findings[1].text == ("'east' has fewer than 10 of the rows looked at; parties that are as small in "
                                      "the whole table are left out")


def test_repeated_rows_are_counted_without_ids():
    table = {"id": np.arange(60), "x": np.r_[np.arange(30), np.arange(30)] / 2, "y": ["a", "b"] * 30}
    found = inspect_table(table, target="y")
    assert "30 rows repeat an earlier one (ids aside)" in found.findings[0].text


def test_an_id_in_several_rows_is_spoken_of():
    ids = [f"K{row:03d}" for row in range(95)] + [f"K{row:03d}" for row in range(5)]
    found = inspect_table({"case": ids, "x": np.arange(100) / 3, "y": ["a", "b"] * 50}, target="y")
    assert by_name(found)["case"].role == "out"
    assert any("some values of 'case' are in several rows" in finding.text for finding in found.findings)


# parties and targets

def of_parties(**sizes):
    """Rows of two classes for parties of these sizes, (rows, rows of the second class)."""
    party = [name for name, (rows, _) in sizes.items() for _ in range(rows)]
    label = [("b" if row < second else "a") for rows, second in sizes.values() for row in range(rows)]
    return {"site": party, "x": np.random.default_rng(0).normal(size=len(party)), "y": label}


def test_small_parties_and_parties_of_one_class_are_named():
    found = inspect_table(of_parties(north=(100, 40), south=(100, 0), tiny=(6, 3)), target="y", party="site")
    assert [finding.text for finding in found.findings] == [
        "'tiny' has fewer than 10 rows and is left out",
        "'south' may hold rows of one class only, which is allowed"]


@pytest.mark.parametrize(("table", "said"), [
    ({"x": np.arange(50) / 3, "y": ["a"] * 50}, "'y' has one class only"),
    ({"x": [1.5], "y": ["a"]}, "fewer than 20 rows cannot be dealt"),
    ({"x": np.arange(300) / 3, "y": [f"{row:x}!" for row in range(300)]}, "has 300 classes, too many"),
    ({"empty": [None] * 50, "y": ["a", "b"] * 25}, "no column is left"),
])
def test_what_keeps_a_run_from_working_is_a_problem(table, said):
    assert any(said in problem.text for problem in inspect_table(table, target="y").problems)


def test_a_column_of_numbers_with_a_few_other_values_is_spoken_of():
    table = {"lab": [f"{row / 3:.1f}" if row % 20 else "<5" for row in range(300)],
             "few": [str(row % 7) if row % 20 else "<5" for row in range(300)],
             "price": [f"1.0{row % 9}0,{row % 90:02d}" for row in range(300)],
             "code": [f"{row:03d}" for row in range(300)],
             "y": np.random.default_rng(0).choice(["a", "b"], 300)}
    found = inspect_table(table, target="y")
    reasons = {name: (column.role, column.reason) for name, column in by_name(found).items()}
    # nearly every value of 'lab' is another one, so that it would pass for an id
    assert reasons == {"lab": ("out", "numbers, but for some rows"), "few": ("feature", "numbers, but for some rows"),
                       "price": ("feature", "numbers with decimal commas"), "code": ("id", "tells rows apart"),
                       "y": ("target", "")}
    assert [finding.text for finding in found.findings if "read as text" in finding.text] == [
        f"'{name}' holds {reasons[name][1]}, and is read as text: {key}" for name, key in (
            ("lab", "correct these values, or name them in data.mapping.missing"),
            ("few", "correct these values, or name them in data.mapping.missing"),
            ("price", "to read it as numbers set data.mapping.decimal = \",\""))]


def test_rows_of_their_own_are_not_parties():
    found = inspect_table({"who": [f"P{row}" for row in range(60)], "x": np.arange(60) / 3, "y": ["a", "b"] * 30},
                          target="y", party="who")
    assert "does not name parties" in found.problems[0].text


def test_rows_without_a_target_or_a_party_are_counted():
    table = of_parties(north=(100, 50), south=(100, 50))
    table["y"][:12], table["site"][150:] = [""] * 12, [""] * 50
    found = inspect_table(table, target="y", party="site")
    assert (found.target.missing, found.party_missing) == (12, 50)
    assert sum(party.rows for party in found.parties) == 138


def test_zero_and_one_are_classes_even_where_a_program_wrote_them_as_numbers():
    found = inspect_table({"x": np.arange(60) / 3, "y": np.tile([0.0, 1.0], 30)}, target="y")
    assert (found.target.kind, dict(found.target.classes)) == ("classes", {"0": 30, "1": 30})


# dates

def dated(days):
    table = {"seen": days, "x": np.random.default_rng(0).normal(size=len(days)), "y": ["a", "b"] * (len(days) // 2)}
    return by_name(inspect_table(table, target="y"))["seen"]


def test_a_date_that_may_be_read_in_two_ways_is_read_with_the_day_first_and_said_so():
    column = dated([f"{1 + row % 12:02d}/{1 + row % 11:02d}/2020" for row in range(60)])
    assert (column.plan.kind, column.plan.format) == ("date", "%d/%m/%Y")
    assert column.reason == "day or month first? read as %d/%m/%Y"


def test_dates_written_in_several_ways_are_left_out():
    column = dated(["2020-01-31"] * 30 + ["31.12.2020"] * 30)
    assert (column.role, column.reason) == ("out", "dates written in several ways")


@pytest.mark.parametrize(("name", "is_id"), [
    ("patient_id", True), ("PatientID", True), ("Patient Nr.", True), ("ID", True), ("id_case", True), ("", True),
    ("Unnamed: 0", True), ("account number", True), ("income", False), ("paid", False), ("covid", False),
    ("体重", False), ("0", False)])
def test_whole_numbers_that_are_all_different_are_ids_by_their_name(name, is_id):
    values = np.random.default_rng(0).choice(100_000, 60, replace=False)
    found = inspect_table({name: values, "x": np.arange(60) / 3, "y": ["a", "b"] * 30}, target="y")
    assert (by_name(found)[name].kind == "id") == is_id


def test_row_numbers_are_ids_whatever_they_are_called():
    rng = np.random.default_rng(0)
    table = {"thing": rng.permutation(np.arange(7, 207)), "x": rng.normal(size=200), "y": ["a", "b"] * 100}
    assert by_name(inspect_table(table, target="y"))["thing"].kind == "id"


# what cannot be looked at

@pytest.mark.parametrize(("asked", "said"), [
    ({"target": "readmited"}, "has no column 'readmited'; did you mean 'readmitted'?"),
    ({"target": "readmitted", "party": "hospital"}, "has no column 'hospital'; did you mean 'Hospital'?"),
    ({"target": "Hospital", "party": "Hospital"}, "cannot be both the target and the party")])
def test_wrong_columns_are_refused_with_the_nearest(asked, said):
    with pytest.raises(DataError) as refused:
        inspect_table(patients(rows=40), **asked)
    assert said in str(refused.value)


@pytest.mark.parametrize(("content", "said"), [
    (b"", "is empty"), (b"a,b\n", "has no rows"), (b"a,a\n1,2\n", "2 columns called 'a'"),
    (b"a,b\n\xff\xfe,2\n", "cannot be read"), (b"a,b\n1\n", "has 1 values"),
    (gzip.compress(b"a", mtime=0), "cannot be read")])
def test_files_that_are_no_tables_are_refused(tmp_path, content, said):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as refused:
        inspect_table(path)
    assert said in str(refused.value)


def test_pictures_are_no_table():
    with pytest.raises(DataError, match="not a table"):
        inspect_table((np.zeros((30, 1, 8, 8)), np.zeros(30)))


def test_plain_arrays_get_names():
    rng = np.random.default_rng(0)
    found = inspect_table((rng.normal(size=(60, 2)), np.tile([0, 1], 30)))
    assert list(by_name(found)) == ["x0", "x1", "target"]
    assert found.target.names == ("target",)


def test_tables_by_party_are_one_table():
    north, south = patients(rows=100), patients(rows=50)
    found = inspect_table({"north": north, "south": south}, target="readmitted")
    assert {party.name: party.rows for party in found.parties} == {"north": 100, "south": 50}
