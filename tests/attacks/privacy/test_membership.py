"""Membership by shadows: LiRA and RMIA equal their definitions, and reports say what they can."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

from published_attacks import lira_of_the_paper, rmia_of_the_paper
from tequio.attacks.label_leakage import area_under_curve
from tequio.attacks.privacy.membership import (
    Shadows,
    area_bounds,
    found_at,
    lira_offline,
    lira_online,
    log_odds,
    log_odds_of_outputs,
    measured,
    rmia,
    rmia_offline,
)

ROWS = 300


def simulated(count, seed=0, effect=1.5):
    """Rows of different hardness, whose log-odds rise where they are trained on; the first half of rows are members."""
    draw = np.random.default_rng(seed)
    hardness = 3 * draw.standard_normal(ROWS)
    effects = effect * draw.random(ROWS)
    inside = np.array([draw.permutation(ROWS) < ROWS // 2 for _ in range(count // 2)])
    inside = np.stack([inside, ~inside], axis=1).reshape(count, ROWS)
    is_member = np.arange(ROWS) < ROWS // 2

    def odds(members):
        return hardness + effects * members + 0.7 * draw.standard_normal(ROWS)

    return Shadows(odds(is_member), np.stack([odds(members) for members in inside]), inside), is_member


@pytest.mark.parametrize("count", [8, 64])
def test_lira_is_that_of_its_paper(count):
    shadows, _ = simulated(count)
    np.testing.assert_allclose(lira_online(shadows), lira_of_the_paper(shadows, online=True, per_row=count >= 64),
                               rtol=1e-6, atol=1e-6)
    expected = lira_of_the_paper(shadows, online=False, per_row=count >= 64)
    np.testing.assert_allclose(norm.cdf(lira_offline(shadows)), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("count", "gamma"), [(4, 1.0), (64, 2.0)])
def test_rmia_is_that_of_its_paper(count, gamma):
    shadows, is_member = simulated(count)
    assert (np.abs(rmia(shadows) - rmia_of_the_paper(shadows, gamma)) < 1e-9).mean() > 0.99  # but for ties
    areas = [area_under_curve(rmia_of_the_paper(shadows, gamma, slope), is_member) for slope in (0.0, 0.3, 0.6, 1.0)]
    assert min(areas) - 1e-9 <= area_under_curve(rmia_offline(shadows), is_member) <= max(areas) + 0.02


def test_beside_shadows_hard_members_do_not_pass_for_others():
    shadows, is_member = simulated(16, effect=3.0)
    alone = area_under_curve(shadows.seen, is_member)
    assert alone < 0.7
    areas = {attack: area_under_curve(attack(shadows), is_member)
             for attack in (lira_online, lira_offline, rmia, rmia_offline)}
    assert min(areas.values()) > alone + 0.05
    assert areas[lira_online] == max(areas.values())  # which knows the law that these rows follow


def test_rows_that_leave_no_trace_are_not_told():
    shadows, is_member = simulated(16, effect=0.0)
    for attack in (lira_online, lira_offline, rmia, rmia_offline):
        low, high = area_bounds(attack(shadows), is_member)
        assert low <= 0.5 <= high


def test_log_odds_do_not_saturate_and_are_the_same_from_outputs_and_probabilities():
    outputs = np.array([[1.0, 0.0, -1.0], [800.0, 0.0, -3.0], [0.0, 900.0, 0.0]])
    target = np.array([1, 0, 0])
    found = log_odds_of_outputs(outputs, target)
    assert found == pytest.approx([-np.log(np.exp(1) + np.exp(-1)), 800 - np.log1p(np.exp(-3)), -900], rel=1e-9)
    mild = np.array([[1.0, 0.0, -1.0]])
    chances = np.exp(mild) / np.exp(mild).sum()
    assert log_odds(chances, np.array([1])) == pytest.approx(log_odds_of_outputs(mild, np.array([1])))
    assert log_odds_of_outputs(np.array([[40.0], [40.0]]), np.array([1, 0])) == pytest.approx([40, -40])


def test_the_interval_of_the_area_is_delongs():
    """Worked from the sums of the paper: variances of the placements, divided by their numbers."""
    scores, is_member = np.array([3.0, 5.0, 4.0, 1.0, 4.0, 2.0]), np.array([1, 1, 1, 0, 0, 0], dtype=bool)
    above, below = np.array([2, 3, 2.5]) / 3, np.array([3, 1.5, 3]) / 3
    margin = norm.ppf(0.975) * np.sqrt(above.var(ddof=1) / 3 + below.var(ddof=1) / 3)
    area = 7.5 / 9
    assert area_under_curve(scores, is_member) == pytest.approx(area)
    assert area_bounds(scores, is_member) == pytest.approx((area - margin, min(area + margin, 1)))


def test_the_interval_of_the_area_holds_the_truth_as_often_as_it_says():
    draw, truth = np.random.default_rng(0), norm.cdf(1 / np.sqrt(2))
    is_member = np.arange(200) < 100
    bounds = [area_bounds(draw.standard_normal(200) + is_member, is_member) for _ in range(1000)]
    assert np.mean([low <= truth <= high for low, high in bounds]) == pytest.approx(0.95, abs=0.02)


def test_an_area_of_one_is_not_taken_for_certain():
    is_member = np.arange(60) < 30
    assert area_bounds(is_member.astype(float), is_member) == (pytest.approx(0.025 ** (1 / 30)), 1.0)
    assert area_bounds(np.zeros(60), is_member) == (0.5, 0.5)


def test_members_found_are_reported_only_where_ten_false_alarms_stand_behind_it():
    draw = np.random.default_rng(0)
    is_member = np.arange(2000) < 1000
    scores = draw.standard_normal(2000) + 2 * is_member
    found = measured(scores, is_member)
    hits = int((scores[is_member] > np.sort(scores[~is_member])[-11]).sum())
    assert found["found_at_1_percent"] == hits / 1000
    assert (found["found_at_1_percent_low"], found["found_at_1_percent_high"]) == pytest.approx(
        (beta.ppf(0.025, hits, 1001 - hits), beta.ppf(0.975, hits + 1, 1000 - hits)))
    assert "found_at_1_permille" not in found
    fewer = measured(scores[1:], is_member[1:])
    assert "found_at_1_percent" in fewer
    assert "found_at_1_percent" not in measured(scores[:-1], is_member[:-1])


def test_members_found_by_hand():
    is_member = np.array([True, True, True, True, False, False])
    assert found_at(np.array([5.0, 4.0, 1.0, 0.0, 3.0, 2.0]), is_member, 0.01) == 0.5
    assert found_at(np.array([5.0, 4.0, 2.5, 0.0, 3.0, 2.0]), is_member, 0.5) == 0.75
