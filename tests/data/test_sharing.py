"""Schema files: what of a table is in them, that they come back as they were, and that older ones are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.dataset import OTHER, Dataset, Feature, Schema, Target
from tequio.data.inputs import read
from tequio.data.sharing import (
    SharedSchema,
    load_schema,
    range_of,
    save_schema,
    shareable,
    shared_from_json,
    shared_to_json,
    text_features,
)
from tequio.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

names = st.text(min_size=1, max_size=8)
features = st.one_of(
    st.builds(Feature, names),
    st.builds(Feature, names, st.lists(names, max_size=3).map(tuple), st.sampled_from(["category", "ordered"])),
    st.builds(Feature, names, st.none(), st.just("date"), format=st.sampled_from(["", "%d.%m.%Y"])))
schemas = st.builds(
    Schema, st.lists(features, min_size=1, max_size=5, unique_by=lambda feature: feature.name).map(tuple),
    st.builds(Target, st.sampled_from(["classes", "multilabel", "number", "none"]),
              st.lists(names, max_size=3).map(tuple), names))


@given(schemas)
def test_a_schema_comes_back_from_its_file_as_it_was(schema: Schema) -> None:
    assert shared_from_json(shared_to_json(SharedSchema(schema))).schema == schema


def test_units_ranges_texts_and_buckets_come_back_too(tmp_path: Path) -> None:
    schema = Schema((Feature("weight"), Feature("seen", None, "date"), *text_features("note", 3),
                     Feature("town", ("#0", "#1"), "hashed")), Target("number", (), "cost"))
    shared = SharedSchema(schema, {"weight": "kg", "cost": "EUR"}, {"weight": (40.0, 120.5), "seen": (0.0, 365.0),
                                                                   "cost": (0.0, 1e6)})
    save_schema(shared, tmp_path / "schema.json")
    assert load_schema(tmp_path / "schema.json") == shared
    written = json.loads((tmp_path / "schema.json").read_text())
    assert written["columns"] == [
        {"name": "weight", "kind": "number", "unit": "kg", "range": [40, 120.5]},
        {"name": "seen", "kind": "date", "range": ["1970-01-01", "1971-01-01"]},
        {"name": "note", "kind": "text", "buckets": 3}, {"name": "town", "kind": "hashed", "buckets": 2}]


def test_a_schema_file_keeps_the_shape_of_images(tmp_path: Path) -> None:
    schema = Schema.of_images((3, 2, 2), ["cat", "dog"])
    save_schema(SharedSchema(schema), tmp_path / "schema.json")
    assert load_schema(tmp_path / "schema.json").schema == schema


# The third smallest and the third largest value are 3 and 77; their distance is 74, so that the step is 10.
@pytest.mark.parametrize(("values", "expected"), [
    ([-500.0, 2.0, 3.0, 50.0, 77.0, 78.0, 9000.0], (0, 80)),
    ([0.011, 0.012, 0.013, 0.017, 0.018, 0.019, 99.0], (0.013, 0.018)),
    ([1.0] * 7, None),
    ([1.0, 2.0, 3.0, 4.0, 5.0], None),
    ([np.nan, -1234.5, -1234.5, -1234.5, 4321.0, 4321.0, 4321.0], (-2000, 5000)),
])
def test_ranges_leave_the_outermost_rows_out_and_are_rounded_outward(values, expected):
    assert range_of(np.array(values), 3) == expected


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=8, max_size=60), st.integers(1, 4))
def test_enough_rows_are_at_or_inside_each_end_of_a_range(values, minimum):
    found = range_of(np.array(values), minimum)
    if found is not None:
        inner = np.sort(values)[minimum - 1:len(values) - minimum + 1]
        assert found[0] <= inner[0] + 1e-6 * abs(inner[0])
        assert found[1] >= inner[-1] - 1e-6 * abs(inner[-1])
        step = 10.0 ** np.floor(np.log10(inner[-1] - inner[0]))
        assert np.allclose(np.array(found) / step, np.round(np.array(found) / step), rtol=1e-9, atol=1e-6)


def test_ranges_of_dates_are_whole_years():
    days = read({"seen": np.array(["2015-03-01", "2015-12-31", "2017-06-30", "2018-01-01"], "datetime64[D]"),
                 "y": list("abab")}, target="y")
    first, last = np.array(["2015-01-01", "2019-01-01"], "datetime64[D]").astype(int)
    assert shareable(days, 1).ranges["seen"] == (first, last)


def test_categories_of_few_rows_become_other():
    rows = read({"town": ["Oslo"] * 4 + ["Rome"] * 3 + ["Ely"] * 2, "y": list("aaaabbbbb")}, target="y")
    assert rows.schema.features[0].domain == ("Ely", "Oslo", "Rome")
    assert shareable(rows, 3).schema.features[0].domain == ("Oslo", "Rome", OTHER)
    assert shareable(rows, 2).schema == rows.schema


def test_levels_that_were_ordered_by_hand_stay():
    rows = read({"stage": ["II"] * 4 + ["I"], "y": list("aaabb")}, target="y", minimum_count=2,
                columns={"stage": {"kind": "ordered", "order": ["I", "II", "III"]}})
    assert shareable(rows, 2).schema.features[0].domain == ("I", "II", "III")


def test_a_class_of_few_rows_is_refused_with_the_key_to_type():
    rows = read({"x": range(9), "y": ["no"] * 5 + ["yes"] * 4}, target="y")
    assert shareable(rows, 4).schema.target.names == ("no", "yes")
    with pytest.raises(DataError, match=r"'y' has 1 class with fewer than 5 rows \('yes'\)") as refused:
        shareable(rows, 5)
    assert "--minimum-count 4" in refused.value.remedy


def test_sparse_rows_have_no_ranges():
    from scipy import sparse

    rows = Dataset.of(Schema.of_numbers("ab", Target("classes", ("n",))), sparse.eye(2, format="csr"), [0, 0])
    assert shareable(rows, 1).ranges == {}


OLD = '{"features": [{"name": "id", "domain": ["A1", "A2"]}], "target": {"kind": "classes", "names": [], "name": "y"}}'


@pytest.mark.parametrize(("text", "says", "remedy"), [
    ("{", "not a schema", "tequio data schema"),
    ("[]", "not a schema", "tequio data schema"),
    ('{"format": "tequio schema", "version": 1}', "columns", "tequio data schema"),
    ('{"format": "tequio schema", "version": 2, "columns": []}', "reads version 1", "install a newer tequio"),
    ('{"format": "tequio schema", "version": 1, "columns": [{"name": "a", "kind": "nmber"}], "target": {}}',
     "no kind of column 'nmber'", "did you mean 'number'"),
    ('{"format": "tequio schema", "version": 1, "columns": [], "target": {"kind": "class", "name": "y"}}',
     "no target kind 'class'", "did you mean 'classes'"),
    ('{"format": "tequio schema", "version": 1, "columns": [{"name": "a", "kind": "hashed", "buckets": 1000000000}], '
     '"target": {"kind": "none", "name": ""}}', "1,000,000,000 buckets", "buckets = 64"),
    ('{"format": "tequio schema", "version": 1, "columns": [{"name": "a", "kind": "number"}, {"name": "a", "kind": '
     '"date"}], "target": {"kind": "none", "name": ""}}', "two columns called 'a'", "tequio data schema"),
    ("[" * 100_000, "not a schema", "tequio data schema"),
    (OLD, "may hold ids, dates and texts of single rows", "tequio data schema TABLE --target y --out schema.json"),
])
def test_what_is_not_a_safe_schema_is_refused(tmp_path: Path, text: str, says: str, remedy: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(DataError, match=says) as caught:
        load_schema(path)
    assert str(path) in caught.value.message
    assert remedy in caught.value.remedy
    assert "A1" not in str(caught.value)


def test_a_schema_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.json"):
        load_schema(tmp_path / "nothing.json")
