"""Two versions compared: published intervals, independent tests, pairs where there are some, groups corrected."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from models.in_use import outcomes
from tequio.cli.main import call
from tequio.errors import ConfigError, DataError
from tequio.models.statistics import holm, wilson
from tequio.models.versus import compare_versions, versus


def shares(right, count):
    return np.repeat([1.0, 0.0], [right, count - right])


def test_intervals_of_shares_are_the_published_ones():
    # Newcombe: Two-sided confidence intervals for the single proportion, and Interval estimation for the difference
    # between independent proportions, Statistics in Medicine 1998.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    found = versus(shares(48, 80), shares(56, 70))
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert found.difference == pytest.approx(0.2)


def test_shares_are_tested_by_the_score_test_and_few_by_fishers():
    found = versus(shares(48, 80), shares(56, 70))
    assert found.p == pytest.approx(stats.chi2_contingency([[48, 32], [56, 14]], correction=False).pvalue)
    assert found.effect == pytest.approx(2 * np.arcsin(np.sqrt(0.8)) - 2 * np.arcsin(np.sqrt(0.6)))
    few = versus(shares(9, 12), shares(12, 12))
    assert (few.test, few.p) == ("Fisher's exact test", pytest.approx(stats.fisher_exact([[9, 3], [12, 0]]).pvalue))
    assert versus(shares(12, 12), shares(9, 9)).p == 1.0


def test_means_are_tested_by_welchs_test_and_less_is_better_for_errors():
    rng = np.random.default_rng(0)
    first, second = rng.normal(1.0, 1, 80), rng.normal(0.4, 2, 50)
    found = versus(first, second, higher_is_better=False)
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.difference == pytest.approx(first.mean() - second.mean())


def test_pairs_are_tested_as_pairs():
    first, second = np.repeat([1.0, 1.0, 0.0, 0.0], [50, 5, 20, 25]), np.repeat([1.0, 0.0, 1.0, 0.0], [50, 5, 20, 25])
    found = versus(first, second, paired=True)
    assert found.p == pytest.approx(stats.binomtest(20, 25).pvalue)
    # Agresti and Min: the four counts with a half added each, 20.5 and 5.5 of 102.
    gain = (20.5 - 5.5) / 102
    half = stats.norm.ppf(0.975) * np.sqrt((26 / 102 - gain ** 2) / 102)
    assert (found.low, found.high) == pytest.approx((gain - half, gain + half))
    assert found.effect == pytest.approx(15 / 25)
    errors = np.random.default_rng(1).exponential(size=(2, 40))
    paired = versus(errors[0], errors[1], higher_is_better=False, paired=True)
    assert paired.p == pytest.approx(stats.wilcoxon(errors[0] - errors[1]).pvalue)


def test_a_group_may_lose_where_everybody_wins(in_trial):
    """Version 2 is better for most and worse for few; both is said, after a correction for looking at several."""
    for version, of_many, of_few in ((1, 0.80, 0.90), (2, 0.90, 0.70)):
        outcomes(in_trial, version, 900, of_many, groups={"region": ["north"] * 900})
        outcomes(in_trial, version, 150, of_few, groups={"region": ["south"] * 150})
    found = compare_versions(in_trial, 1, 2)
    assert found.verdict.startswith("Version 2 is better: accuracy 0.8714 against 0.8143; in favour of version 2 "
                                    "+0.0571")
    assert [(one.group, one.better(0.05)) for one in found.groups] == [("region = north", 2), ("region = south", 1)]
    assert [one.adjusted for one in found.groups] == holm([one.p for one in found.groups])
    assert not found.paired


def test_what_cannot_be_compared_is_refused(in_trial, tmp_path):
    with pytest.raises(ConfigError, match="with itself"):
        compare_versions(in_trial, 1, 1)
    with pytest.raises(ConfigError, match="no version 3"):
        compare_versions(in_trial, 1, 3)
    outcomes(in_trial, 1, 40, 0.5)
    with pytest.raises(DataError, match="no outcome of version 2"):
        compare_versions(in_trial, 1, 2)
    outcomes(in_trial, 2, 10, 0.5)
    with pytest.raises(ConfigError, match="have no 'rmse'"):
        compare_versions(in_trial, 1, 2, metric="rmse")
    with pytest.raises(ConfigError, match="have no column 'age'"):
        compare_versions(in_trial, 1, 2, by=["age"])
    assert "cannot be told apart" in compare_versions(in_trial, 1, 2).verdict
    assert compare_versions(in_trial, 1, 2).cautions[0].startswith("Version 2 has 10 outcomes only")


def test_offline_both_versions_answer_the_same_rows(in_trial, tmp_path, capsys):
    model = in_trial.version(1).load()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    names = [feature.name for feature in model.reading.schema.features]
    said = [in_trial.version(number).load().predict(dict(zip(names, rows.T, strict=True))) for number in (1, 2)]
    truth = np.where(rng.random(200) < 0.9, said[1], 1 - said[1])  # what version 2 says, but for a tenth
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([",".join([*names, "outcome", "site"]), *(
        ",".join([*map(repr, row.tolist()), str(value), "ab"[place % 2]])
        for place, (row, value) in enumerate(zip(rows, truth, strict=True)))]) + "\n")
    found = compare_versions(in_trial, 1, 2, data=path)
    assert found.paired
    assert found.overall.first.mean == pytest.approx((said[0] == truth).mean())
    assert found.overall.second.mean == pytest.approx((said[1] == truth).mean())
    assert [one.group for one in found.groups] == ["site = a", "site = b"]
    assert found.overall.better(0.05) == 2
    drawn = tmp_path / "plot.png"
    assert call(["models", "compare", "risk", "1", "2", "--data", str(path), "--folder", str(in_trial.parent), "--json",
                 "--plot", str(drawn)]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["test"] == "McNemar's exact test of pairs"
    assert drawn.read_bytes().startswith(b"\x89PNG")
