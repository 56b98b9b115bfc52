"""What sources conclude, checked: the language of statements, paired and unpaired differences, and who decides."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tequio.errors import ConfigError
from tequio.studies.answered import Answered, claims_of
from tequio.studies.answers import row_of
from tequio.studies.claims import check_claims, parse_statement
from tequio.studies.description import Cell, Claim, Order, Quick, Study, load_study, study_names
from tequio.studies.orders import agreement, problems_of
from tequio.studies.verdicts import Sample, sample_of
from tequio.views.studies import fate_of, ranking_line

SHIPPED = Path(__file__).parents[2] / "studies"


def rows_of(published=None, **values):
    """Rows by the name of their cell, with the numbers of their seeds; two underscores stand for a comma."""
    published = published or {}
    cells = {name.replace("__", ", "): seeds for name, seeds in values.items()}
    study = Study(title="t", source="s", runs={"r": {}}, quick=Quick(note="q", config={}),
                  cells=[Cell(name=name, run="r", published=published.get(name)) for name in cells])
    return [row_of(study, cell, seeds if isinstance(seeds, Sample) else sample_of(dict(enumerate(seeds))))
            for cell, seeds in zip(study.cells, cells.values(), strict=True)]


def check(rows, *holds):
    fared, = check_claims([Claim(says="x", where="y", holds=list(holds))], rows)
    return fared


def test_a_paired_difference_is_scipys():
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.8, 0.05, 7), rng.normal(0.78, 0.05, 7)
    found = check(rows_of(a=first, b=second), "a > b").statements[0]
    expected = stats.ttest_rel(first, second).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_without_numbers_by_seed_the_difference_is_welchs():
    found = check(rows_of(a=Sample(0.80, 0.05, 7), b=Sample(0.70, 0.02, 4)), "a > b").statements[0]
    test = stats.ttest_ind_from_stats(0.80, 0.05, 7, 0.70, 0.02, 4, equal_var=False)
    error = 0.1 / test.statistic
    freedom = error ** 4 / ((0.05 ** 2 / 7) ** 2 / 6 + (0.02 ** 2 / 4) ** 2 / 3)
    assert found.high - found.difference == pytest.approx(stats.t.ppf(0.95, freedom) * error)


@pytest.mark.parametrize(("statement", "fate"), [
    ("a > b", "confirmed"), ("a < b", "refuted"), ("a > b by 0.05", "confirmed"), ("a > b by 0.2", "refuted"),
    ("a > b by 0.1", "open"), ("b > a by -0.05", "refuted"), ("b > a by -0.2", "confirmed"),
    ("a ~ b within 0.2", "confirmed"), ("a ~ b within 0.05", "refuted"), ("a ~ b within 0.1", "open"),
    ("a > 0.7", "confirmed"), ("a < 0.7", "refuted"), ("a < 0.8", "open"), ("a ~ 0.8 within 0.01", "confirmed"),
    ("a > b times 1.1", "confirmed"), ("a > b times 2", "refuted"), ("a > never", "open"), ("a > single", "open"),
])
def test_what_a_statement_asks_for(statement, fate):
    rows = rows_of(a=[0.80, 0.801, 0.799, 0.80], b=[0.70, 0.701, 0.70, 0.699], never=[], single=[0.2])
    assert check(rows, statement).fate == fate


def test_half_of_the_published_lead_is_asked_for():
    values = {"a": [0.80, 0.801, 0.799], "b": [0.70, 0.701, 0.70]}
    for lead, fate in ((0.15, "confirmed"), (0.3, "refuted"), (-0.1, "confirmed")):
        assert check(rows_of({"a": 0.5 + lead, "b": 0.5}, **values), "a > b by half").fate == fate
        assert check(rows_of({"a": 0.5 + lead, "b": 0.5}, **values), "b < a by half").fate == fate


def test_a_lead_of_exactly_nothing_refutes():
    assert check(rows_of(a=[1.0, 1.0], b=[1.0, 1.0]), "a > b").fate == "refuted"


def test_a_star_pairs_cells_up_and_takes_the_mean_over_them():
    rows = rows_of(a__x=[0.9, 0.9], b__x=[0.7, 0.7], a__y=[0.5, 0.5], b__y=[0.6, 0.6])
    found = check(rows, "a, * > b, *").statements[0]
    assert found.difference == pytest.approx((0.2 - 0.1) / 2)
    with pytest.raises(ConfigError, match="do not pair up: z"):
        check([*rows, *rows_of(a__z=[1.0])], "a, * > b, *")


def test_all_statements_confirm_and_one_refutes_at_a_share_of_the_level():
    rows = rows_of(a=[0.80, 0.81, 0.79], b=[0.70, 0.71, 0.69], c=[0.9, 0.91, 0.89])
    assert check(rows, "a > b", "c > a").fate == "confirmed"
    assert check(rows, "a > b", "a > c").fate == "refuted"
    # t is 3.6 with two degrees of freedom: beyond the 2.9 of one statement, not beyond the 4.3 of two.
    edge = rows_of(e=[0.0, 0.0, 0.0], f=[0.02, 0.008, 0.011], g=[1.0, 1.0, 1.0])
    assert [check(edge, "e > f").fate, check(edge, "e > f", "g > e").fate] == ["refuted", "open"]


def test_a_seed_that_never_got_there_counts_as_twice_the_largest():
    rows = rows_of(slow=[50.0, inf, 60.0], fast=[10.0, 12.0, 11.0])
    found = check(rows, "fast < slow").statements[0]
    assert found.difference == pytest.approx(np.mean([10 - 50, 12 - 120, 11 - 60]))
    old = rows_of(slow=Sample(55.0, None, 3, 1), fast=Sample(11.0, 1.0, 3))
    assert fate_of(check(old, "fast < slow")) == "open (a seed never got there)"


def test_statements_that_say_nothing_are_refused():
    for text, complaint in (("a is b", "no statement"), ("a ~ b", "no statement"), ("a > b within 0.1", "no statement"),
                            ("a > b by much", "a number after"), ("a > c", "no cell 'c'"), ("d > 0.5", "no cell 'd'")):
        with pytest.raises(ConfigError, match=complaint):
            parse_statement(text, ["a", "b"])


def test_names_with_signs_in_them_are_found():
    names = ["5/7, R = 15: accuracy", "4 bits: times fewer bytes"]
    assert parse_statement(f"{names[0]} ~ {names[1]} within 0.1", names).pairs == ((names[0], names[1]),)
    assert parse_statement(f"{names[0]} > {names[1]}", names).pairs == ((names[0], names[1]),)


def test_a_claim_of_several_studies_fares_as_where_it_is_decided_first_with_the_sources_own_data():
    claim = check(rows_of(a=[1.0, 1.0], b=[0.0, 0.0]), "a > b")
    undecided = replace(claim, fate="open")
    other = replace(claim, fate="refuted", other_data=True)

    def studies(*claims):
        return [Answered(Study(name=str(number), title="t", source="Ana 2024 (thesis), table 1", runs={"r": {}},
                               cells=[Cell(name="a", run="r")], quick=Quick(note="q", config={})), (), (), (), (one,))
                for number, one in enumerate(claims)]

    assert claims_of(studies(other, claim)) == [("Ana 2024", claim)]
    assert claims_of(studies(undecided, other)) == [("Ana 2024", other)]
    assert claims_of(studies(undecided, replace(undecided, says="z")))[1][1].says == "z"


# --- rankings --------------------------------------------------------------------------------------------------------

def test_tau_is_scipys_for_one_problem_and_pools_pairs_over_several():
    rng = np.random.default_rng(7)
    for _ in range(20):
        published = {name: float(value) for name, value in zip("abcdef", rng.integers(0, 4, 6) / 10, strict=True)}
        means = rng.integers(0, 5, 6) / 10
        rows = rows_of(published, **{name: [value, value] for name, value in zip("abcdef", means, strict=True)})
        expected = stats.kendalltau(list(published.values()), means).statistic
        if expected == expected:
            assert agreement(Order(methods=list("abcdef")), rows).tau == pytest.approx(expected)
    two = rows_of({"a, x": 0.1, "b, x": 0.2, "a, y": 0.8, "b, y": 0.7},
                  a__x=[0.3, 0.3], b__x=[0.4, 0.4], a__y=[0.1, 0.1], b__y=[0.2, 0.2])
    found = agreement(Order(methods=["a", "b"]), two)
    assert (found.tau, found.pairs, found.alike, found.problems) == (0.0, 2, 1, 2)


def test_the_interval_of_tau_follows_the_seeds():
    published = {"a": 0.1, "b": 0.2, "c": 0.3}
    apart = agreement(Order(methods=list("abc")), rows_of(published, a=[1, 2, 3], b=[11, 12, 13], c=[21, 22, 23]))
    assert (apart.low, apart.tau, apart.high) == (1.0, 1.0, 1.0)
    mixed = rows_of(published, a=[1, 9, 5], b=[8, 2, 5.5], c=[6, 5, 6.5])
    found = agreement(Order(methods=list("abc")), mixed)
    assert found.low < found.tau <= found.high <= 1.0
    assert agreement(Order(methods=list("abc")), mixed) == found
    one = agreement(Order(methods=list("abc")), rows_of(published, a=[1], b=[2], c=[3]))
    assert (one.low, one.high) == (None, None)
    assert "no interval, as cells have one seed" in ranking_line(one)


def test_problems_are_what_else_names_say():
    rows = rows_of({"scene, a": 0.1, "scene, b": 0.2, "yeast, a": 0.1, "c: f1": 0.1},
                   scene__a=[0.1], scene__b=[0.1], yeast__a=[0.1], **{"c: f1": [0.1]})
    found = problems_of(Order(methods=["a", "b"]), rows)
    assert {key: [row.cell for row in cells] for key, cells in found.items()} == {
        ("scene",): ["scene, a", "scene, b"], ("yeast",): ["yeast, a"]}


# --- what is shipped -------------------------------------------------------------------------------------------------

def test_shipped_claims_orders_and_repeats_name_cells_that_are_there():
    studies = {name: load_study(name, SHIPPED) for name in study_names(SHIPPED)}
    said = set()
    for name, study in studies.items():
        lines = [line.name for line in study.lines]
        for claim in study.claims:
            said.add(claim.says)
            for text in claim.holds:
                parse_statement(text, lines)
        for order in study.orders:
            published = rows_of({line.name: line.published for line in study.lines}, **dict.fromkeys(lines, (0.5,)))
            assert any(len(cells) > 1 for cells in problems_of(order, published).values()), (name, order.methods)
        for line in study.lines:
            if line.repeats and line.repeats != "the cells that it is the mean of":
                other, _, cell = line.repeats.partition(": ")
                home, cell = (studies[other], cell) if other in studies else (study, line.repeats)
                first = next(one for one in home.lines if one.name == cell)
                assert not first.repeats or first.repeats == line.repeats, (name, line.name)
                assert first.published == pytest.approx(line.published, abs=0.0011), (name, line.name)
    assert len(said) >= 30
