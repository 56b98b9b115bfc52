"""Verdicts: the truth table, the intervals beside scipy's tests, margins, and one text in all places."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tequio.studies import verdicts
from tequio.studies.answers import row_of
from tequio.studies.description import Cell, Margin, Quick, Study, load_study, study_names
from tequio.studies.keeping import kept_rows, read_kept
from tequio.studies.verdicts import (
    Interval,
    Sample,
    half_width,
    interval,
    is_share,
    judge,
    judge_requirement,
    margin_for,
    sample_of,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("low", "high", "higher", "lower", "both"), [
    (0.885, 0.915, "agrees", "agrees", "agrees"),  # the band is 0.88 to 0.92
    (0.88, 0.92, "agrees", "agrees", "agrees"),
    (0.921, 0.93, "better", "worse", "differs"),
    (0.85, 0.879, "worse", "better", "differs"),
    (0.87, 0.91, "cannot tell", "cannot tell", "cannot tell"),
    (0.91, 0.93, "cannot tell", "cannot tell", "cannot tell"),
    (0.80, 0.99, "cannot tell", "cannot tell", "cannot tell"),
    (0.93, 0.93, "better", "worse", "differs"),
])
def test_the_interval_and_the_margin_decide(low, high, higher, lower, both):
    found = [judge(0.9, 0.02, direction, Interval(low, high)) for direction in ("higher", "lower", "both")]
    assert found == [higher, lower, both]


def test_one_seed_cannot_tell_and_a_seed_that_never_got_there_is_worse():
    assert judge(0.9, 0.02, "higher", None) == "cannot tell"
    assert judge(12, 1, "lower", None, never=True) == "worse"
    assert judge(12, 1, "both", None, never=True) == "differs"


@pytest.mark.parametrize(("low", "high", "higher", "lower"), [
    (4.0, 5.0, "met", "not met"), (3.9, 5.0, "cannot tell", "cannot tell"), (3.0, 4.0, "cannot tell", "met"),
    (3.0, 3.9, "not met", "met")])
def test_requirements_are_kept_by_the_whole_interval(low, high, higher, lower):
    assert judge_requirement(4.0, "higher", Interval(low, high)) == higher
    if (low, high) != (4.0, 5.0):  # an interval that touches the bound may still keep it
        assert judge_requirement(4.0, "lower", Interval(low, high)) == lower
    assert judge_requirement(4.0, "higher", None) == "cannot tell"
    assert judge_requirement(4.0, "lower", None, never=True) == "not met"


def test_agreement_is_two_one_sided_tests_and_better_is_one():
    """Scipy's tests of the band's two ends come to the same verdict on 400 samples of all kinds."""
    rng, seen = np.random.default_rng(1), set()
    for _ in range(400):
        values = rng.normal(0.9 + rng.uniform(-0.05, 0.05), rng.uniform(0.001, 0.03), rng.integers(2, 12))
        found = interval(sample_of(dict(enumerate(values))))
        above = stats.ttest_1samp(values, 0.88, alternative="greater").pvalue < 0.05
        below = stats.ttest_1samp(values, 0.92, alternative="less").pvalue < 0.05
        expected = "cannot tell"
        if above and below:
            expected = "agrees"
        elif stats.ttest_1samp(values, 0.92, alternative="greater").pvalue < 0.05:
            expected = "better"
        elif stats.ttest_1samp(values, 0.88, alternative="less").pvalue < 0.05:
            expected = "worse"
        assert judge(0.9, 0.02, "higher", found) == expected
        seen.add(expected)
    assert seen == {"agrees", "better", "worse", "cannot tell"}


def test_equivalence_against_a_published_spread_is_welchs():
    """The interval of the difference is scipy's, put at our mean."""
    ours, theirs = Sample(0.71, 0.05, 5), Sample(0.74, 0.06, 30)
    found = interval(ours, published=theirs)
    test = stats.ttest_ind_from_stats(0.71, 0.05, 5, 0.74, 0.06, 30, equal_var=False)
    expected = test.confidence_interval(0.90) if hasattr(test, "confidence_interval") else None
    variance = 0.05 ** 2 / 5 + 0.06 ** 2 / 30
    freedom = variance ** 2 / ((0.05 ** 2 / 5) ** 2 / 4 + (0.06 ** 2 / 30) ** 2 / 29)
    half = stats.t.ppf(0.95, freedom) * variance ** 0.5
    assert (found.low, found.high) == pytest.approx((0.71 - half, 0.71 + half), abs=1e-12)
    assert expected is None or expected.high == pytest.approx(0.71 + half - 0.74)
    assert test.pvalue == pytest.approx(2 * stats.t.sf(0.03 / variance ** 0.5, freedom))


def test_half_widths_are_exact_for_three_seeds():
    # t of 2 degrees of freedom passes 2.919986 with 5 %.
    assert half_width([(0.03 ** 2 / 3, 2)]) == pytest.approx(2.919986 * 0.03 / 3 ** 0.5, rel=1e-6)
    assert half_width([(0.0, 2)]) == 0.0
    assert half_width([]) == 0.0


def test_samples():
    assert interval(Sample(0.9, None, 1)) is None
    assert interval(Sample(0.9, None, 1), deterministic=True) == Interval(0.9, 0.9)
    assert interval(Sample(7.0, 0.0, 3)) == Interval(7.0, 7.0)
    never = sample_of({0: 3.0, 1: inf, 2: 5.0})
    assert (never.mean, never.sd, never.seeds, never.never) == (4.0, None, 3, 1)
    assert interval(never) is None


@pytest.mark.parametrize(("metric", "published", "margin"), [
    ("test.accuracy", 0.9, 0.02), ("test.accuracy", 0.99, 0.005), ("common.f1_macro.mean", 0.0146, 0.0073),
    ("attack.success_on_all", 0.98, 0.01), ("route.mnist.svhn", 1.0, 0.001), ("test.loss", 0.4, 0.02),
    ("rounds_to(test.accuracy, 0.9)", 20, 1.0), ("highest(test.accuracy)", 0.9, 0.02), ("mean(seconds)", 200, 10.0),
    ("matched_jaccard@10", 0.96, 0.02), ("novelty.mnist.svhn.mean", 0.05, 0.0025)])
def test_margins_by_kind_of_quantity(metric, published, margin):
    assert margin_for(metric, published) == pytest.approx(margin)


def test_what_is_a_share():
    assert is_share("parties.accuracy.mean")
    assert not is_share("seconds_to(test.accuracy, 0.9)")
    assert not is_share("train.loss")


def study(cell, **changes):
    return Study(title="t", source="s", runs={"r": {}}, cells=[cell], quick=Quick(note="q", config={}), **changes)


def row(cell, values, **changes):
    return row_of(study(cell, **changes), cell, sample_of(dict(enumerate(values))))


def test_a_row_says_what_its_verdict_rests_on():
    cell = Cell(name="c", run="r", published=0.9)
    found = row(cell, [0.901, 0.899, 0.903])
    assert (found.verdict, found.margin, found.direction) == ("agrees", 0.02, "higher")
    assert found.low < found.ours < found.high
    assert row(cell, [0.95]).verdict == "cannot tell"
    assert row(cell, []).verdict == "not run"
    assert row(cell.model_copy(update={"deterministic": True}), [0.95]).verdict == "better"
    assert row(cell.model_copy(update={"comparable": False}), [0.9, 0.9]).verdict == "other data"
    assert row(cell.model_copy(update={"published": None}), [0.9, 0.9]).verdict == "no published number"


def test_a_weaker_attack_on_a_method_without_a_defence_is_no_better_result():
    attacked = Cell(name="c", run="r", published=0.691, direction="both")
    assert row(attacked, [0.80, 0.801, 0.802]).verdict == "differs"
    defended = Cell(name="c", run="r", metric="attack.success_on_all", published=0.31)
    assert row(defended, [0.05, 0.051, 0.052]).verdict == "better"


def test_a_study_states_a_margin_of_its_own_with_its_reason():
    cell = Cell(name="timing only: rounds", run="r", metric="rounds", published=100)
    own = [Margin(cells="timing only*", relative=0.2, why="slept")]
    assert row(cell, [110, 111, 112]).verdict == "worse"
    assert row(cell, [110, 111, 112], margins=own).verdict == "agrees"
    assert row(cell, [110, 111, 112], margins=[Margin(cells="*", absolute=15, why="w")]).margin == 15
    with pytest.raises(ValueError, match="either absolute or relative"):
        Margin(cells="*", why="no number")


@pytest.mark.parametrize(("keys", "complaint"), [
    ({"published": 0.5, "required": 0.4}, "published value or a required one"),
    ({"published": 0.5, "published_sd": 0.1}, "needs published, published_sd and published_seeds together"),
    ({"published_sd": 0.1, "published_seeds": 5}, "needs published, published_sd and published_seeds together"),
    ({"published": 0.5, "direction": "up"}, "'higher', 'lower' or 'both'"),
])
def test_cells_that_contradict_themselves_are_refused(keys, complaint):
    with pytest.raises(ValueError, match=complaint):
        Cell(name="c", run="r", **keys)


def test_repeats_and_requirements_count_nowhere_as_published():
    assert row(Cell(name="c", run="r", published=0.9), [0.9]).counts
    assert not row(Cell(name="c", run="r", published=0.9, repeats="b"), [0.9]).counts
    required = row(Cell(name="c", run="r", metric="test.loss", required=0.5), [0.4, 0.41])
    assert (required.counts, required.verdict) == (False, "met")


def test_the_rule_is_one_text():
    rule = re.sub(r"\s+", " ", verdicts.__doc__.strip())
    for page in (ROOT / "studies" / "README.md", ROOT / "docs" / "results.md"):
        assert rule in re.sub(r"\s+", " ", page.read_text(encoding="utf-8")), f"repeat the rule in {page.name}"


def test_two_points_is_what_seeds_are_apart():
    """The reason that the rule gives for its margin: the median deviation of published shares over three seeds or
    more."""
    spreads = [found.sd for name in study_names(ROOT / "studies")
               for found in kept_rows(load_study(name, ROOT / "studies"), read_kept(ROOT / "studies" / name))
               if found.published is not None and is_share(found.metric) and found.seeds > 2 and found.sd is not None]
    assert len(spreads) > 500
    assert float(np.median(spreads)) == pytest.approx(verdicts.POINTS, abs=0.004)
