"""What a column is taken for: guesses, what its owner says, dates, hashed texts, rare categories."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.dataset import OTHER
from tequio.data.inputs import read
from tequio.data.inputs.column import column_of
from tequio.data.inputs.kinds import as_dates, bucket_of, common, date_format, token_counts, tokens
from tequio.data.sharing import shareable
from tequio.errors import ConfigError, DataError
from tequio.registry import build

COUNT = 40
PEOPLE = [f"P-{number:04}" for number in range(COUNT)]
NOTES = [f"seen on day {number} with a cough" for number in range(COUNT)]


def kinds(values, **said):
    """By column the kind of its first feature, and the notes."""
    found = read({"x": np.arange(len(values)) % 50, "column": values}, **said)
    known = {feature.column: feature.kind for feature in found.schema.features}
    return known.get("column", "left out"), found


@pytest.mark.parametrize(("values", "kind", "said"), [
    (list(range(COUNT)), "number", ""),
    (PEOPLE, "left out", "column 'column' looks like an id and is left out: nearly every row has another value; to "
                         "use it: data.columns.column = \"hashed\""),
    (NOTES, "text", "column 'column' is text: its words are counted in 128 hashed columns; to leave it out: "
                    "data.ignore = [\"column\"]"),
    (["2026-01-31", "2025-12-24"] * 20, "date", "column 'column' holds dates; to take them for categories: "
                                                "data.columns.column = \"category\""),
    ([date(2026, 1, 31), None] * 20, "date", ""),
    (["a", "b"] * 20, "category", ""),
    ([f"code {number % 70}" for number in range(700)], "hashed",
     "column 'column' has 70 categories, hashed to 64; to keep them apart: data.columns.column = \"category\""),
    ([None] * COUNT, "left out", "column 'column' holds no values and is left out"),
    (["1.5", "text"] * 20, "category", ""),
    ([f"P0{number % 3}812" for number in range(COUNT)], "hashed",
     "column 'column' holds codes as long as ids, hashed to 64; to keep them apart, and name them in schemas: "
     "data.columns.column = \"category\""),
    (["I10", "E11.9", "S72001A", "10000-20000"] * 10, "category", ""),
    (["1,5", "2,5"] * 20, "category", "column 'column' holds numbers with decimal commas, and is read as categories; "
                                      "to read it as numbers: data.mapping.decimal = \",\""),
    ([*(f"{number}.5" for number in range(39)), "low"], "left out",
     "column 'column' holds numbers, but for some rows, and is left out; to take those rows for missing values: "
     "data.mapping.missing = [\"what they hold\"]"),
])
def test_what_a_column_is_taken_for_follows_from_its_values_and_is_said(values, kind, said):
    found, dataset = kinds(values, missing="keep")
    assert found == kind
    assert dataset.source.notes == ((said,) if said else ())


def test_a_number_that_only_tells_rows_apart_is_an_id_by_its_name():
    for name in ("id", "patient_id", "PatientID", "MRN".lower(), "Unnamed: 0"):
        found = read({"x": np.arange(30.0), name: np.arange(30)[::-1] + 5000})
        assert found.schema.names == ("x",)
        assert "looks like an id" in found.source.notes[0]
    few = read({"x": np.arange(30.0), "id": np.arange(30) % 7})
    assert few.schema.names == ("x", "id")  # not all different, so it tells no rows apart


def test_an_id_with_several_rows_of_one_person_is_an_id_by_its_name():
    people = np.arange(780) % 65
    table = {"x": np.arange(780.0), "visits": people, "patient_id": people, "MRN": [f"M{person}" for person in people]}
    assert read(table).schema.names == ("x", "visits")
    few = {"x": np.arange(780.0), "patient_id": people % 64, "mrn": [f"M{person % 4}" for person in people]}
    assert read(few).schema.names == ("x", "patient_id")


def test_what_the_owner_says_goes_before_what_the_values_look_like():
    table = {"a": PEOPLE, "b": [1, 2] * 20, "c": ["low", "high"] * 20, "d": NOTES, "e": np.arange(COUNT)}
    found = read(table, columns={"a": "hashed", "b": "category", "c": {"kind": "ordered", "order": ["low", "high"]},
                                 "d": {"kind": "text", "buckets": 3}, "e": "ignore"})
    assert [(feature.name, feature.kind) for feature in found.schema.features] == [
        ("a", "hashed"), ("b", "category"), ("c", "ordered"), ("d[0]", "text"), ("d[1]", "text"), ("d[2]", "text")]
    assert found.features[:2, 2].tolist() == [0, 1]
    assert found.features[0, 0] == bucket_of("P-0000", 64)
    assert found.features[0, 3:].sum() == len(tokens(NOTES[0]))
    assert read(table, columns=["b", "e"]).schema.names == ("b", "e")
    assert read(table, columns=["b", "e"], ignore=["e"]).schema.names == ("b",)


@pytest.mark.parametrize(("said", "error", "remedy"), [
    ({"columns": {"b": "numbr"}}, "there is no kind of column 'numbr'", "did you mean 'number'"),
    ({"columns": {"b": "ordered"}}, "nothing says in which order", 'order = ["low", "high"]'),
    ({"columns": {"b": {"kind": "text", "bucket": 3}}}, "no parameter 'bucket'", "buckets"),
    ({"columns": ["bb"]}, "has no column 'bb'", "did you mean 'b'"),
    ({"ignore": ["bb"]}, "has no column 'bb'", "did you mean 'b'"),
    ({"columns": {"bb": "number"}}, "has no column 'bb'", "correct data.columns: did you mean 'b'?"),
    ({"ignore": ["b"]}, "no column left to learn from", "data.columns"),
])
def test_wrong_words_about_columns_are_answered_with_the_key(said, error, remedy):
    with pytest.raises((ConfigError, DataError), match=error) as caught:
        read({"b": [1, 2, 3]}, **said)
    assert remedy in caught.value.remedy


def days(year, month, day):
    return (date(year, month, day) - date(1970, 1, 1)).days


@pytest.mark.parametrize(("texts", "format", "found"), [
    (["2026-01-31", "1969-12-31"], "", ""),
    (["31.01.2026", "01.02.2026"], "", "%d.%m.%Y"),
    (["01/31/2026", "02/01/2026"], "", "%m/%d/%Y"),
    (["2026/01/31"], "", "%Y/%m/%d"),
    (["01/02/2026"], "%m/%d/%Y", "%m/%d/%Y"),
    (["31.01.2026 06:00"], "", "%d.%m.%Y %H:%M"),
])
def test_dates_are_read_as_all_of_them_are_written(texts, format, found):
    column = column_of("when", np.array(texts, dtype=object))
    assert date_format(column, format) == found
    expected = [datetime.strptime(text, found) if found else datetime.fromisoformat(text) for text in texts]
    exact = [(moment - datetime(1970, 1, 1)) / timedelta(days=1) for moment in expected]
    assert as_dates(column, found).values.tolist() == exact


def test_dates_that_may_be_read_in_two_ways_are_asked_about():
    for texts in (["03/04/2026", "01/02/2026"], ["99/99/2026"], ["2026-01-31", "31.01.2026"]):
        with pytest.raises(DataError, match=r"day first or the month first|cannot be read") as caught:
            read({"x": [1] * len(texts), "the day": texts})
        assert 'data.columns."the day" = {kind = "date", format = ' in caught.value.remedy


def test_moments_of_all_zones_count_from_the_same_moment():
    east = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=6)))
    column = column_of("when", np.array([east, east.astimezone(UTC), None], dtype=object))
    assert column.values[:2].tolist() == [days(2026, 1, 31) + 0.25] * 2
    assert column.missing.tolist() == [False, False, True]
    stamps = column_of("when", pd.Series([pd.Timestamp("2026-01-31 06:00"), pd.NaT]).to_numpy())
    assert stamps.values[0] == days(2026, 1, 31) + 0.25


@given(st.lists(st.text(max_size=12), min_size=1, max_size=8), st.integers(1, 9))
def test_words_fall_into_the_same_buckets_everywhere(texts, buckets):
    counts = token_counts(texts, buckets)
    for row, text in enumerate(texts):
        assert counts[row].tolist() == token_counts([text], buckets)[0].tolist()
        assert counts[row].sum() == len(tokens(text))


@given(st.lists(st.sampled_from("abcde"), min_size=1), st.integers(1, 6))
def test_a_category_is_named_only_if_enough_rows_have_it(values, least):
    column = column_of("c", np.array(values, dtype=object))
    domain, rare = common(column, least)
    counts = {value: values.count(value) for value in set(values)}
    assert {value for value in domain if value != OTHER} == {value for value in counts if counts[value] >= least}
    assert rare == sum(count < least for count in counts.values())
    assert (OTHER in domain) == (rare > 0)


def test_rare_and_unknown_categories_are_others_where_there_are_others():
    table = {"ward": ["a"] * 12 + ["b"] * 11 + ["rare"], "x": np.arange(24)}
    found = read(table, minimum_count=10)
    assert found.schema.features[0].domain == ("a", "b", OTHER)
    assert found.features[-1, 0] == 2
    assert found.source.notes == ("column 'ward' has 1 category with fewer than 10 rows, taken together as '(other)'; "
                                  "to keep them apart: data.minimum_count = 1",)
    later = read({"ward": ["b", "never seen"], "x": [1, 2]}, schema=found.schema)
    assert later.features[:, 0].tolist() == [1, 2]


def test_dates_where_numbers_are_wanted_are_refused():
    known = read({"age": [1.0, 2.0]})
    with pytest.raises(DataError, match="column 'age' holds dates, and number is wanted") as caught:
        read({"age": [date(2026, 1, 1), date(2026, 1, 2)]}, schema=known.schema)
    assert 'data.columns.age = "date"' in caught.value.remedy


def test_what_is_left_out_of_a_table_is_left_out_of_its_test_rows(tmp_path):
    table = pd.DataFrame({"person": PEOPLE, "x": np.arange(COUNT) % 7, "y": ["p", "q"] * 20})
    table.to_csv(tmp_path / "train.csv", index=False)
    table.assign(person="someone").to_csv(tmp_path / "test.csv", index=False)
    made = build("dataset", "csv", {"path": str(tmp_path / "train.csv"), "target": "y",
                                    "test_path": str(tmp_path / "test.csv")})
    loaded = made.load()
    assert loaded.train.source.left_out == ("person",)
    assert loaded.test.schema.names == ("x",)


def test_a_schema_may_leave_room_for_the_categories_of_other_tables():
    north = read({"ward": ["a", "b"] * 20, "x": range(COUNT)})
    closed, opened = (shareable(north, 10, others=others).schema for others in (False, True))
    assert [closed.features[0].domain, opened.features[0].domain] == [("a", "b"), ("a", "b", OTHER)]
    south = {"ward": ["a"] * 30 + ["c"] * 10, "x": range(COUNT)}
    with pytest.raises(DataError, match="has the category 'c'") as caught:
        read(south, schema=closed)
    assert "tequio data schema --others" in caught.value.remedy
    found = read(south, schema=opened)
    assert found.features[-1, 0] == 2
    assert found.source.notes == ("column 'ward' has values in 10 of 40 rows that are not in the schema, and are taken "
                                  "for '(other)'",)
    with pytest.raises(DataError, match="values in 40 of 40 rows that are not in the schema") as caught:
        read({"ward": ["A", "B"] * 20, "x": range(COUNT)}, schema=opened)
    assert "[codes.ward]" in caught.value.remedy
