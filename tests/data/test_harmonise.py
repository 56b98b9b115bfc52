"""What differs between a table and a schema, what units its columns are in, and what a mapping would have to say."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.data.dataset import OTHER, Feature, Schema, Target
from tequio.data.inputs import harmonised, read
from tequio.data.inputs.column import columns_of
from tequio.data.inputs.harmonise import compare, mapping_text, matched, proposed_codes
from tequio.data.inputs.mapping import CONVERSIONS, Conversion, mapping_of
from tequio.data.inputs.units import other_unit
from tequio.data.sharing import SharedSchema, shareable


def table(rows=80):
    rng = np.random.default_rng(3)
    days = rng.integers([18, 1, 0], [25, 9, 9], (rows, 3))
    return {"weight": rng.normal(80, 12, rows).round(1), "height": rng.normal(172, 9, rows).round(),
            "temperature": rng.normal(37.2, 0.8, rows).round(1), "sex": rng.choice(["male", "female"], rows),
            "seen": [f"20{year}-0{month}-1{day}" for year, month, day in days],
            "risk": rng.choice(["low", "high"], rows)}


def shared_of(columns, **units):
    return shareable(read(columns, target="risk", minimum_count=10), 10, units)


CLEAN = table()
SHARED = shared_of(CLEAN, weight="kg", height="cm", temperature="C")


def differences(columns, shared=SHARED, quantiles=None, roles=()):
    found = compare(columns_of(columns, parse=True), shared, quantiles or {}, roles)
    return {(one.here, one.there.partition(":")[0]): one.what for one in found.differences}, found


def test_a_table_does_not_differ_from_its_own_schema():
    assert differences(CLEAN) == ({}, compare(columns_of(CLEAN, parse=True), SHARED, {}))


def test_columns_of_other_names_are_found_by_names_and_by_what_they_hold():
    said, found = differences({"WT_KG": CLEAN["weight"], "Grösse": CLEAN["height"], "TEMP": CLEAN["temperature"],
                               "geschlecht": CLEAN["sex"], "Aufnahme": CLEAN["seen"], "Risk": CLEAN["risk"]})
    assert found.mapping == {"rename": {"WT_KG": "weight", "Grösse": "height", "TEMP": "temperature",
                                        "geschlecht": "sex", "Aufnahme": "seen", "Risk": "risk"}}
    assert set(said.values()) == {"another name"}


def test_columns_that_are_missing_and_columns_too_many_are_named():
    said, found = differences({**{name: CLEAN[name] for name in CLEAN if name != "sex"},
                               "ward": [f"w{row}" for row in range(80)], "patient": np.arange(80)}, roles={"patient"})
    assert said == {("", "sex"): "missing: no column looks like it", ("ward", ""): "not in the schema"}
    assert found.mapping["ignore"] == ["ward"]


@pytest.mark.parametrize(("column", "other", "what", "step", "said"), [
    ("weight", lambda values: [f"{value:.1f}".replace(".", ",") for value in values], "decimal commas", "decimal", ","),
    ("height", lambda values: ["unk", *map(str, values[1:])], "not numbers: unk", "missing", {"height": ["unk"]}),
    ("sex", lambda values: [value[0].upper() for value in values], "other codes: F = female, M = male", "codes",
     {"sex": {"F": "female", "M": "male"}}),
    ("seen", lambda values: ["{2}.{1}.{0}".format(*value.split("-")) for value in values[:-1]] + ["30.12.2020"],
     "dates are written as %d.%m.%Y", "dates", {"seen": "%d.%m.%Y"}),
    ("weight", lambda values: values / 0.45359237, "other units? it looks like lb->kg", "units", {"weight": "lb->kg"}),
    ("temperature", lambda values: values * 1.8 + 32, "other units? it looks like F->C", "units",
     {"temperature": "F->C"}),
    ("height", lambda values: values / 100, "other units? it looks like m->cm", "units", {"height": "m->cm"}),
])
def test_a_column_that_is_written_otherwise_is_named_with_what_to_say(column, other, what, step, said):
    found, comparison = differences({**CLEAN, column: np.array(other(CLEAN[column]))})
    assert found == {(column, column): what}
    assert comparison.mapping == {step: said}
    mapped = harmonised({**CLEAN, column: np.array(other(CLEAN[column]))}, comparison.mapping)
    assert compare(mapped, SHARED, {}).differences == []


def test_dates_that_may_be_read_in_two_ways_are_left_to_people():
    said, found = differences({**CLEAN, "seen": [f"0{1 + row % 9}/03/2020" for row in range(80)]})
    assert said == {("seen", "seen"): "dates: day or month first?"}
    assert '# seen = "%d.%m.%Y"  or  "%m/%d/%Y"' in mapping_text(found)


def test_codes_that_nobody_knows_are_listed_to_be_completed():
    _, found = differences({**CLEAN, "risk": np.where(CLEAN["risk"] == "low", "A", "B")})
    text = mapping_text(found)
    assert '[codes.risk]\n# A = "high"  or  "low"\n# B = "high"  or  "low"' in text
    tomllib.loads(text.replace('# A = "high"  or  "low"', 'A = "low"').replace('# B = "high"  or  "low"', 'B = "high"'))


def test_unknown_categories_become_other_where_the_schema_has_it():
    shared = SharedSchema(Schema((Feature("town", ("Oslo", "Rome", OTHER)),), Target("none")))
    said, _ = differences({"town": ["Oslo", "Rome", "Pisa"]}, shared)
    assert said == {("town", "town"): f"Pisa become {OTHER}"}


# Weights of 60 to 84 kg are 132 to 185 lb: within a wide range, so that only quantiles can tell.
def test_quantiles_of_all_parties_tell_units_where_a_range_cannot():
    light = np.random.default_rng(1).normal(72, 4, 80)
    wide = replace(SHARED, ranges={**SHARED.ranges, "weight": (40.0, 200.0)})
    quantiles = {"weight": {0.25: 70.0, 0.5: 80.0, 0.75: 90.0}}
    for values, expected in ((light / 0.45359237, "lb->kg"), (light + 8, None)):
        found = differences({**CLEAN, "weight": values}, wide, quantiles)[1].mapping.get("units", {}).get("weight")
        assert found == expected
    assert differences({**CLEAN, "weight": light / 0.45359237}, wide)[0] == {}


@given(st.sampled_from(["lb->kg", "inch->cm", "F->C", "mmHg->kPa", "ft->cm"]), st.integers(0, 2**32))
def test_a_known_conversion_is_found_from_the_middle_of_the_values(name, seed):
    rng = np.random.default_rng(seed)
    centre, spread = (37, 1) if name == "F->C" else (16, 2) if name == "mmHg->kPa" else (170, 10)
    wanted = rng.normal(centre, spread, 200)
    theirs = Conversion("->".join(reversed(name.split("->")))).apply(rng.normal(centre, spread, 150))
    unit = name.rpartition("->")[2]
    quantiles = {share: float(np.quantile(wanted, share)) for share in (0.25, 0.5, 0.75)}
    assert other_unit(theirs, "x", unit, None, quantiles) == name
    assert other_unit(wanted, "x", unit, None, quantiles) is None


@given(st.floats(1, 1e4), st.sampled_from([1e-3, 0.01, 0.1, 10.0, 100.0, 1e3]), st.integers(0, 2**32))
def test_steps_of_ten_are_found_where_the_unit_says_nothing(centre, factor, seed):
    values = np.random.default_rng(seed).normal(centre, centre / 8, 100)
    ends = (float(np.quantile(values, 0.05)), float(np.quantile(values, 0.95)))
    assert other_unit(values / factor, "x", "items", ends, {}) == {"factor": factor}
    assert other_unit(values, "x", "items", ends, {}) is None


def test_a_conversion_of_one_substance_is_for_that_substance():
    rng = np.random.default_rng(2)
    found = {name: other_unit(rng.normal(95, 10, 50), name, "mmol/L", (4.0, 7.0), {})
             for name in ("fasting glucose", "cholesterol", "x")}
    assert found == {"fasting glucose": "glucose mg/dL->mmol/L", "cholesterol": None, "x": None}


def test_few_values_say_nothing_about_units():
    assert other_unit(np.full(7, 170 / 2.54), "height", "cm", (150.0, 190.0), {}) is None


@pytest.mark.parametrize(("codes", "domain", "expected"), [
    (["J", "N"], ["no", "yes"], {"J": "yes", "N": "no"}),
    (["1", "2"], ["female", "male"], {"1": "male", "2": "female"}),
    (["NEVER", "Form", "curent"], ["current", "former", "never"], {"NEVER": "never", "Form": "former",
                                                                  "curent": "current"}),
    (["x"], ["current", "former"], {}),
    (["a"], ["ab", "ac"], {}),
    (["ok"], ["ok", OTHER], {}),
])
def test_codes_are_proposed_where_they_can_mean_one_category_only(codes, domain, expected):
    assert proposed_codes(codes, domain) == expected


@given(st.permutations(["weight", "height", "temperature", "sex", "seen", "risk"]))
def test_the_order_of_columns_does_not_matter(order):
    wanted = {feature.column: feature for feature in SHARED.schema.features}
    found = matched(columns_of({f"my_{name}": CLEAN[name] for name in order}, parse=True), wanted, SHARED)
    assert found == {name: f"my_{name}" for name in wanted}


def test_a_proposal_is_a_mapping_that_can_be_read_back(tmp_path):
    _, found = differences({"Gewicht (lb)": CLEAN["weight"] / 0.45359237, "h.cm": CLEAN["height"],
                            "temperature": CLEAN["temperature"], "sex": [value[0] for value in CLEAN["sex"]],
                            "seen": CLEAN["seen"], "risk": CLEAN["risk"], "odd \"name\"": np.arange(80)})
    (tmp_path / "map.toml").write_text(mapping_text(found), encoding="utf-8")
    assert mapping_of(tmp_path / "map.toml") == mapping_of(found.mapping)
    assert found.mapping["units"]["weight"] in CONVERSIONS
