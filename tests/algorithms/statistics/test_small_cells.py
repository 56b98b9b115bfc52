"""A party holds its rows against its owner's rules before anything leaves."""

from __future__ import annotations

import numpy as np
import pytest
from pooled import SECURE, dealt

from tequio.algorithms.statistics.fitting import ModelSpec, fit, prepare
from tequio.algorithms.statistics.small_cells import SmallCells, flags_among, require
from tequio.errors import DataError, PartyError
from tequio.gate.policy import Policy, policy_file, read_policy

DATASHIELD = {"minimum_rows": 20, "minimum_count": 5, "saturation": 0.33, "maximum_levels": 40}


def broken(rules, *asked, **named):
    return "".join(letter for letter, wrong in zip("abcd", rules.broken(*asked, **named), strict=True) if wrong)


def test_each_rule_has_its_edge():
    rules = SmallCells(**DATASHIELD)
    assert [broken(rules, rows) for rows in (0, 1, 19, 20)] == ["", "a", "a", ""]
    assert [broken(rules, 100, columns) for columns in (33, 34)] == ["", "b"]
    assert [broken(rules, 1000, levels=[levels]) for levels in (40, 41)] == ["", "d"]
    assert [broken(rules, 20, levels=[levels]) for levels in (2, 6, 7)] == ["", "", "d"]
    assert broken(SmallCells(), 1, 500, np.eye(1), [99]) == ""


@pytest.mark.parametrize(("ones", "ok"), [(0, True), (4, False), (5, True), (45, True), (46, False), (50, True)])
def test_a_flag_has_enough_rows_on_both_sides(ones, ok):
    assert SmallCells(minimum_count=5).large_tables(np.repeat([[1.0], [0.0]], [ones, 50 - ones], axis=0)) is ok


def test_each_of_the_four_cells_of_a_table_counts():
    for few in range(4):
        sizes = np.full(4, 20)
        sizes[few] = 4
        flags = np.repeat([[0.0, 0], [0, 1], [1, 0], [1, 1]], sizes, axis=0)
        assert not SmallCells(minimum_count=5).large_tables(flags)
        assert SmallCells(minimum_count=4).large_tables(flags)
    np.testing.assert_array_equal(flags_among(np.array([[0, 2.0, 1], [1, 0, 1]])), [[0, 1], [1, 1]])


def test_refusals_have_letters_and_no_numbers():
    with pytest.raises(DataError, match=r"^there are too few rows for this here \(rule a, c\);"):
        require(np.array([1, 0, 1, 0]))


def table():
    draw = np.random.default_rng(1)
    return {"y": draw.standard_normal(120), "x": draw.standard_normal(120),
            "rare": np.isin(np.arange(120), [0, 4, 1]).astype(float)}  # two at party 0 of 4, one at party 1


@pytest.mark.parametrize("stages", [(), SECURE], ids=["open", "hidden"])
def test_parties_that_refuse_are_counted_and_not_named(stages):
    data = table()
    sums = dealt(data, 4, stages, cells=DATASHIELD)
    with pytest.raises(DataError, match=r"^2 of 4 parties have too few rows for this model \(rule c\);") as refusal:
        prepare(sums, sums.federation.schema, ModelSpec(formula="y ~ x + rare"))
    assert refusal.value.remedy.startswith("merge levels, drop a term, or lower what those parties' policies ask for")
    without = prepare(dealt(data, 4, stages, cells=DATASHIELD), sums.federation.schema, ModelSpec(formula="y ~ x"))
    assert without.rows == 120


def test_a_threshold_of_a_logarithm_is_a_cell():
    data = {**table(), "age": np.arange(120.0)}
    for shift, ok in ((2, False), (-1, True), (23, True)):  # two rows, none, six rows of each party at least
        sums = dealt(data, 3, cells={**DATASHIELD, "minimum_count": 5})
        spec = ModelSpec(formula=f"y ~ log(age - {shift})" if shift > 0 else "y ~ log(age + 1)")
        if ok:
            prepare(sums, sums.federation.schema, spec)
        else:
            with pytest.raises(DataError, match="rule c"):
                prepare(sums, sums.federation.schema, spec)


def test_a_coordinator_that_skips_the_question_gets_no_answer():
    """Every task holds the rows against the rules again."""
    data = table()
    loose, strict = dealt(data, 4), dealt(data, 4, cells=DATASHIELD)
    frame = prepare(loose, loose.federation.schema, ModelSpec(formula="y ~ x + rare"))
    with pytest.raises(PartyError, match="too few rows for this here"):
        fit(strict, frame)


def test_a_policy_that_protects_rows_has_all_rules_and_an_open_one_has_none():
    assert Policy().small_cells == read_policy(policy_file("open"), required=True).small_cells == {}
    assert read_policy(policy_file("hospital"), required=True).small_cells == DATASHIELD
    assert Policy(tell_rows="hundreds").small_cells == DATASHIELD
    assert Policy(minimum_rows=50, minimum_count=9, saturation=0.1).small_cells == {
        "minimum_rows": 50, "minimum_count": 9, "saturation": 0.1, "maximum_levels": 40}
    assert Policy(saturation=0.1).small_cells == {"saturation": 0.1, "minimum_count": 1}
