"""Meta-analysis: the thirteen BCG trials, statsmodels, and what pooling has to obey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tequio.algorithms.statistics.meta_analysis import PowerSums, Study, between, meta_analysis, meta_of_sums
from tequio.errors import DataError

BCG = np.array([[4, 119, 11, 128], [6, 300, 29, 274], [3, 228, 11, 209], [62, 13536, 248, 12619], [33, 5036, 47, 5761],
                [180, 1361, 372, 1079], [8, 2537, 10, 619], [505, 87886, 499, 87892], [29, 7470, 45, 7232],
                [17, 1699, 65, 1600], [186, 50448, 141, 27197], [5, 2493, 3, 2338], [27, 16886, 29, 17825]], float)


def bcg():
    a, b, c, d = BCG.T
    estimates = np.log((a / (a + b)) / (c / (c + d)))
    variances = 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)
    return [Study(f"trial {index + 1}", y, v) for index, (y, v) in enumerate(zip(estimates, variances, strict=True))]


def close(found, wanted, digits=9):
    assert found == pytest.approx(wanted, abs=0.6 * 10.0**-digits, rel=0)


def test_fixed_effect_of_the_bcg_trials():
    found = meta_analysis(bcg(), "fixed")
    close([found.estimate, found.std_error, found.q], [-0.4302851637, 0.0404987517, 152.2330080824])
    assert np.isnan(found.prediction).all()
    assert found.tau2 == 0
    assert sum(found.weights) == pytest.approx(1)


def test_dersimonian_and_laird_of_the_bcg_trials():
    found = meta_analysis(bcg(), "dl")
    close([found.tau2, found.estimate, found.std_error, found.i2],
          [0.308760262862, -0.7141172221, 0.1787420895, 92.1173468546])


def test_restricted_likelihood_of_the_bcg_trials():
    found = meta_analysis(bcg(), "reml")
    close([found.tau2, found.estimate, found.std_error], [0.313243258136, -0.7145323422, 0.1797815161])
    close(found.i2, 92.22138452, 8)
    close([found.tau2_low, found.tau2_high], [0.119718361, 1.111479084], 9)
    close(found.prediction, (-2.0083759069, 0.5793112226))


def test_hartung_and_knapp_of_the_bcg_trials():
    found = meta_analysis(bcg(), "reml", hartung_knapp=True)
    close([found.std_error, found.low, found.high], [0.1807917441, -1.1084437137, -0.3206209706])
    close([found.p_value, *found.prediction], [0.00192002, -1.99601683, 0.56695215], 8)
    assert found.df == 12


def test_statsmodels_gives_the_same():
    from statsmodels.stats.meta_analysis import combine_effects

    studies = bcg()
    theirs = combine_effects(np.array([s.estimate for s in studies]), np.array([s.variance for s in studies]),
                             method_re="chi2")
    fixed, ours = meta_analysis(studies, "fixed"), meta_analysis(studies, "dl", hartung_knapp=True)
    assert [fixed.estimate, fixed.std_error] == pytest.approx([theirs.mean_effect_fe, theirs.sd_eff_w_fe], rel=1e-12)
    assert [ours.estimate, ours.std_error, ours.tau2, ours.q] == pytest.approx(
        [theirs.mean_effect_re, theirs.sd_eff_w_re_hksj, theirs.tau2, theirs.q], rel=1e-12)


def test_sums_over_studies_are_enough_for_two_methods():
    studies = bcg()
    y, v = np.array([s.estimate for s in studies]), np.array([s.variance for s in studies])
    w = 1 / v
    first = PowerSums(len(y), w.sum(), w @ y, w @ y**2, w @ w)
    later = 1 / (v + between(first))
    for method, second in (("fixed", None), ("dl", (later.sum(), later @ y))):
        ours, whole = meta_of_sums(method, first, second), meta_analysis(studies, method)
        for name in ("estimate", "std_error", "p_value", "low", "high", "tau2", "q", "i2"):
            assert getattr(ours, name) == pytest.approx(getattr(whole, name), rel=1e-10)


def test_restricted_likelihood_is_at_its_maximum():
    from scipy.optimize import minimize_scalar

    y = np.array([s.estimate for s in bcg()])
    v = np.array([s.variance for s in bcg()])

    def minus_likelihood(tau2):
        w = 1 / (v + tau2)
        mean = w @ y / w.sum()
        return 0.5 * (np.log(v + tau2).sum() + np.log(w.sum()) + w @ (y - mean) ** 2)

    best = minimize_scalar(minus_likelihood, bounds=(0, 3), method="bounded", options={"xatol": 1e-12}).x
    assert meta_analysis(bcg(), "reml").tau2 == pytest.approx(best, abs=1e-7)


def test_studies_that_agree_have_no_variance_between_them():
    found = meta_analysis([Study(name, 0.5, 0.1) for name in "abcd"], "reml")
    assert (found.tau2, found.tau2_low, found.i2, found.estimate) == (0, 0, 0, 0.5)
    assert meta_analysis([Study(name, 0.5, 0.1) for name in "ab"], "dl", hartung_knapp=True, adhoc=True).std_error == \
        pytest.approx((0.1 / 2) ** 0.5)


def test_one_study_is_no_meta_analysis_and_a_broken_one_is_named():
    with pytest.raises(DataError, match="one study is no meta-analysis"):
        meta_analysis([Study("a", 1.0, 0.1), Study("b", 1.0, 0.0)])
    found = meta_analysis([*bcg(), Study("broken", float("nan"), 1.0), Study("endless", 1.0, float("inf"))])
    assert found.left_out == ("broken", "endless")
    assert found.estimate == meta_analysis(bcg()).estimate


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(1e-3, 10)), min_size=3, max_size=8), st.floats(-3, 3))
def test_pooling_moves_with_its_studies(given, off):
    studies = [Study(str(index), y, v) for index, (y, v) in enumerate(given)]
    moved = [Study(s.name, s.estimate + off, s.variance) for s in studies]
    for method in ("fixed", "dl", "reml"):
        one, other = meta_analysis(studies, method), meta_analysis(moved, method)
        assert other.estimate - off == pytest.approx(one.estimate, abs=1e-6)
        assert other.tau2 == pytest.approx(one.tau2, abs=1e-6)
        assert min(y for y, _ in given) - 1e-9 <= one.estimate <= max(y for y, _ in given) + 1e-9
    found = meta_analysis(studies, "reml")
    assert 0 <= found.tau2_low <= found.tau2_high
