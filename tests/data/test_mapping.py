"""Tables with other names, units, codes and encodings, read as hand-cleaned ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.inputs import harmonised, read
from tequio.data.inputs.mapping import CONVERSIONS, Conversion, TableMapping, mapping_of
from tequio.data.sharing import save_schema, shareable
from tequio.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset

CLEAN = """weight,temperature,sex,seen,smokes,risk
70.5,36.6,male,2021-03-02,yes,low
82.0,37,female,2020-12-24,no,high
64.25,38.2,female,2021-01-05,,low
"""

NORTH = """Patient;Gewicht;Temp;Geschlecht;Datum;Raucher;Risiko
p1;155,426;97,88;m;02.03.2021;j;niedrig
p2;180,779;98,6;w;24.12.2020;n;höher
p3;141,647;100,76;w;05.01.2021;unbekannt;niedrig
"""

MAPPING = """
encoding = "cp1252"
decimal = ","
missing = ["unbekannt"]
ignore = ["Patient"]
[rename]
Gewicht = "weight"
Temp = "temperature"
Geschlecht = "sex"
Datum = "seen"
Raucher = "smokes"
Risiko = "risk"
[units]
weight = {convert = "lb->kg", digits = 2}
temperature = "F->C"
[dates]
seen = "%d.%m.%Y"
[codes.sex]
m = "male"
w = "female"
[codes.smokes]
j = "yes"
n = "no"
[codes.risk]
niedrig = "low"
"höher" = "high"
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "clean.csv").write_text(CLEAN)
    (tmp_path / "north.csv").write_text(NORTH, encoding="cp1252")
    (tmp_path / "north.toml").write_text(MAPPING)
    clean = read(tmp_path / "clean.csv", target="risk", missing="keep")
    save_schema(shareable(clean, 1), tmp_path / "schema.json")
    return tmp_path, clean


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.schema == other.schema
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.target, other.target)


def test_a_mapped_table_is_the_hand_cleaned_one_bit_for_bit(files):
    folder, clean = files
    schema = folder / "schema.json"
    assert_same(read(folder / "north.csv", schema=schema, missing="keep", mapping=folder / "north.toml"), clean)
    columns = harmonised(folder / "north.csv", folder / "north.toml")
    assert_same(read(columns, schema=schema, missing="keep"), clean)


def test_without_the_mapping_the_table_is_refused(files):
    folder, _ = files
    with pytest.raises(DataError, match="cannot be read as a text table in utf-8") as refused:
        read(folder / "north.csv", schema=folder / "schema.json")
    assert 'data.mapping = {encoding = "cp1252"}' in refused.value.remedy


def test_frames_and_dicts_are_mapped_too():
    table = {"kg2": [154.0, 200.0], "s": [1, 2], "when": [20210302, 20201224]}
    found = harmonised(table, {"rename": {"kg2": "kg", "s": "sex"}, "units": {"kg": {"factor": 0.5, "offset": 1}},
                               "codes": {"sex": {"1": "male", "2": "female"}}, "dates": {"when": "%Y%m%d"}})
    assert found["kg"].values.tolist() == [78, 101]
    assert found["sex"].values.tolist() == ["male", "female"]
    days = np.array(["2021-03-02", "2020-12-24"], "datetime64[D]").astype(float)
    assert found["when"].values.tolist() == days.tolist()
    assert found["when"].dated


def test_missing_markers_of_one_column_are_values_in_others(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n-9,-9\n1.5,2\n")
    found = harmonised(tmp_path / "t.csv", {"missing": {"a": [-9]}})
    assert np.isnan(found["a"].values[0])
    assert found["b"].values.tolist() == [-9, 2]


def test_points_between_thousands_are_no_decimals(tmp_path):
    (tmp_path / "t.csv").write_text("cost;code\n1.234;A.1\n1.234.567,5;B.2\n")
    found = harmonised(tmp_path / "t.csv", {"decimal": ","})
    assert found["cost"].values.tolist() == [1234, 1234567.5]
    assert found["code"].values.tolist() == ["A.1", "B.2"]


@given(st.sampled_from(sorted(CONVERSIONS)), st.floats(-1e6, 1e6, allow_subnormal=False))
def test_every_conversion_has_a_way_back(name, value):
    substance, _, units = name.rpartition(" ")
    back = f"{substance} {'->'.join(reversed(units.split('->')))}".lstrip()
    there = Conversion(name).apply(np.array([value]))
    assert Conversion(back).apply(there)[0] == pytest.approx(value, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(("name", "value", "expected"), [
    ("F->C", 98.6, 37.0), ("lb->kg", 100, 45.359237), ("inch->cm", 10, 25.4), ("glucose mmol/L->mg/dL", 5, 90.08),
    ("creatinine mg/dL->umol/L", 1, 88.42), ("K->C", 310.15, 37.0)])
def test_conversions_say_what_textbooks_say(name, value, expected):
    assert Conversion(name).apply(np.array([value]))[0] == expected


@pytest.mark.parametrize(("said", "error", "message", "remedy"), [
    ({"units": {"a": "lbs->kg"}}, ConfigError, "no conversion 'lbs->kg'", "did you mean 'lb->kg'"),
    ({"unit": {"a": "lb->kg"}}, ConfigError, "no parameter 'unit'", "did you mean 'units'"),
    ({"encoding": "latin-x"}, ConfigError, "'latin-x' is unknown", "cp1252"),
    ({"rename": {"a": "x", "b": "x"}}, ConfigError, "renames 2 columns to 'x'", "rename"),
    ({"rename": {"q": "x"}}, DataError, "column 'q', which the table has not", "there is: a, b"),
    ({"ignore": ["c"]}, DataError, "column 'c', which the table has not", "there is: a, b"),
    ({"rename": {"a": "b"}}, DataError, "renames a column to 'b', and the table has one", 'ignore = ["b"]'),
    ({"codes": {"z": {"1": "x"}}}, DataError, "column 'z', which the table has not, renamed or not", "there is: a, b"),
    ({"units": {"b": "lb->kg"}}, DataError, "holds texts such as 'u'", "[missing] b = [...]"),
])
def test_what_a_mapping_cannot_do_is_said_with_the_key_to_type(said, error, message, remedy):
    with pytest.raises(error, match=message) as refused:
        harmonised({"a": [1.5, 2], "b": ["u", "v"]}, said)
    assert remedy in refused.value.remedy


def test_a_mapping_that_is_no_toml_names_its_file(tmp_path):
    (tmp_path / "map.toml").write_text("rename = [")
    with pytest.raises(ConfigError, match=r"map\.toml"):
        mapping_of(tmp_path / "map.toml")
    assert mapping_of(TableMapping(decimal=",")) == TableMapping(decimal=",")
