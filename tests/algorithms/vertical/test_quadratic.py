"""The cut series of the logistic loss and its gradient, against the functions themselves and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from tequio.algorithms.vertical.quadratic import (
    NOT_CALIBRATED,
    QUADRATICS,
    calibrated,
    constants,
    expanded,
    one_against_rest,
    predictions,
    signs,
    target_scale,
)
from tequio.errors import DataError

DRAW = np.random.default_rng(3)
ROWS = DRAW.standard_normal((40, 5))
WEIGHTS = 0.3 * DRAW.standard_normal(5)
SIGNS = np.where(DRAW.random(40) < 0.5, -1.0, 1.0)
MASK = (DRAW.random(40) < 0.7).astype(float)


def loss(weights, kind="logistic", targets=SIGNS, mask=None):
    form, scores = QUADRATICS[kind], ROWS @ weights
    each = scores * (form.curve / 2 * scores - form.pull * targets) + constants(kind, targets)
    return float((each * (1.0 if mask is None else mask)).mean())


def gradient(weights, kind="logistic", targets=SIGNS, mask=None):
    form = QUADRATICS[kind]
    residual = form.curve * (ROWS @ weights) - form.pull * targets
    return ROWS.T @ (residual * (1.0 if mask is None else mask)) / len(ROWS)


def finite_differences(function, weights, step=1e-6):
    return np.array([(function(weights + step * side) - function(weights - step * side)) / (2 * step)
                     for side in np.eye(len(weights))])


def test_the_series_is_that_of_the_logistic_loss():
    for margin in (-0.4, -0.05, 0.0, 0.1, 0.4):
        series = np.log(2) - margin / 2 + margin**2 / 8
        assert series == pytest.approx(np.log1p(np.exp(-margin)), abs=margin**4 / 192 + 1e-15)


def test_the_loss_of_small_scores_is_the_logistic_loss():
    small = WEIGHTS / 10
    exact = np.log1p(np.exp(-SIGNS * (ROWS @ small))).mean()
    assert loss(small) == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("kind", ["logistic", "linear", "poisson"])
@pytest.mark.parametrize("mask", [None, MASK])
def test_the_gradient_is_the_slope_of_the_loss(kind, mask):
    targets = SIGNS if kind == "logistic" else DRAW.standard_normal(40)
    slope = finite_differences(lambda weights: loss(weights, kind, targets, mask), WEIGHTS)
    assert gradient(WEIGHTS, kind, targets, mask) == pytest.approx(slope, abs=1e-8)


def test_the_gradient_of_small_scores_is_that_of_the_logistic_loss():
    small = WEIGHTS / 10
    exact = ROWS.T @ ((1 / (1 + np.exp(-SIGNS * (ROWS @ small))) - 1) * SIGNS) / len(ROWS)
    assert gradient(small) == pytest.approx(exact, abs=1e-3)


def test_an_expansion_touches_the_logistic_residual():
    centres = np.array([-3.0, 0.0, 0.5, 4.0])
    wanted = np.array([1.0, -1.0, 1.0, -1.0])
    slopes, offsets = expanded("logistic", centres, wanted)
    residual = lambda scores: 1 / (1 + np.exp(-scores)) - (wanted + 1) / 2  # noqa: E731
    assert slopes * centres + offsets == pytest.approx(residual(centres))
    assert slopes == pytest.approx((residual(centres + 1e-6) - residual(centres - 1e-6)) / 2e-6, abs=1e-8)
    assert (slopes[1], offsets[1]) == (0.25, 0.5)


def test_the_poisson_series_is_that_of_rates_near_their_mean():
    for score in (-0.2, 0.0, 0.1, 0.2):
        series = 1 + score + score**2 / 2 - 1.7 * score
        assert series == pytest.approx(np.exp(score) - 1.7 * score, abs=abs(score) ** 3 / 5 + 1e-15)


def test_an_expansion_touches_the_poisson_residual():
    centres, wanted = np.array([-3.0, 0.0, 0.5, 3.9]), np.array([-1.0, 0.5, 4.0, 0.0])
    slopes, offsets = expanded("poisson", centres, wanted)
    assert slopes * centres + offsets == pytest.approx(np.exp(centres) - (wanted + 1))
    assert slopes == pytest.approx(np.exp(centres))
    assert (slopes[1], offsets[1]) == (1.0, -0.5)
    far, _ = expanded("poisson", np.array([9.0]), np.array([0.0]))
    assert far == pytest.approx([np.exp(4.0)])  # no slope needs more than six bits


def test_counts_are_divided_by_their_mean_and_rates_multiplied_by_it():
    counts = np.array([0.0, 1.0, 5.0])
    scale = target_scale("poisson", counts)
    assert signs("poisson", counts, scale) == pytest.approx([-1.0, -0.5, 1.5])
    assert predictions("poisson", np.log([0.5, 1.0, 2.0]), scale, NOT_CALIBRATED) == pytest.approx([1.0, 2.0, 4.0])
    with pytest.raises(DataError, match="2 of the 3 training rows have a target below 0"):
        target_scale("poisson", np.array([-4.5, 3.0, -1.0]))
    with pytest.raises(DataError, match="the target of all training rows is 0"):
        target_scale("poisson", np.zeros(3))


def test_a_calibration_of_rates_is_the_poisson_regression_on_the_score():
    from sklearn.linear_model import PoissonRegressor

    scores = DRAW.standard_normal(300)
    counts = DRAW.poisson(np.exp(0.4 * scores + 0.3)).astype(float)
    fitted = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(scores[:, None], counts)
    scale = target_scale("poisson", counts)
    found = calibrated("poisson", scores, signs("poisson", counts, scale))
    assert found["slope"] == pytest.approx(fitted.coef_[0], abs=1e-4)
    assert found["shift"] == pytest.approx(fitted.intercept_ - np.log(scale["deviation"]), abs=1e-4)


def test_probabilities_of_one_against_the_rest_add_up():
    found = one_against_rest([np.array([0.2, 0.0]), np.array([0.2, 0.0]), np.array([0.4, 0.0])])
    assert found == pytest.approx(np.array([[0.25, 0.25, 0.5], [1 / 3, 1 / 3, 1 / 3]]))


def test_masked_rows_count_for_nothing():
    kept = MASK.astype(bool)
    form = QUADRATICS["logistic"]
    residual = form.curve * (ROWS[kept] @ WEIGHTS) - form.pull * SIGNS[kept]
    assert gradient(WEIGHTS, mask=MASK) == pytest.approx(ROWS[kept].T @ residual / len(ROWS), abs=1e-15)


def test_a_calibration_is_the_logistic_regression_on_the_score():
    from sklearn.linear_model import LogisticRegression

    scores = DRAW.standard_normal(200) + 0.3
    targets = np.where(scores + DRAW.standard_normal(200) > 0.8, 1.0, -1.0)
    fitted = LogisticRegression(C=1e6, tol=1e-10).fit(scores[:, None], targets)
    found = calibrated("logistic", scores, targets)
    assert (found["slope"], found["shift"]) == pytest.approx((fitted.coef_[0, 0], fitted.intercept_[0]), abs=1e-3)


def test_scores_that_point_the_wrong_way_are_left_alone():
    assert calibrated("logistic", np.array([1.0, 2.0, -1.0, -2.0]), np.array([-1.0, -1.0, 1.0, 1.0])) == NOT_CALIBRATED


def test_scores_that_part_the_classes_stay_finite():
    found = calibrated("logistic", np.array([1.0, 2.0, -1.0, -2.0]), np.array([1.0, 1.0, -1.0, -1.0]))
    assert 1.0 < found["slope"] < 100.0


def test_a_numeric_target_goes_there_and_back():
    target = np.array([10.0, 20.0, 60.0])
    scale = target_scale("linear", target)
    assert predictions("linear", signs("linear", target, scale), scale, {}) == pytest.approx(target)
    assert target_scale("linear", np.ones(3))["deviation"] == 1.0
