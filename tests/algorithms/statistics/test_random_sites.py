"""Random intercepts: by closed form for gaussian outcomes, and beside numerical integration for others."""

from __future__ import annotations

import numpy as np
import pytest
from pooled import SECURE, dealt
from scipy import integrate

from tequio.algorithms.statistics.fitting import ModelSpec, prepare
from tequio.algorithms.statistics.random_sites import RandomSettings, _Site, fit_random
from tequio.errors import ConfigError

sm = pytest.importorskip("statsmodels.api")


def fair():
    data = sm.datasets.fair.load_pandas().data
    columns = {name: data[name].to_numpy(float) for name in data.columns}
    return columns, [np.flatnonzero(columns["occupation"] == site) for site in range(1, 7)]


def found(data, held, stages=(), *, restricted=True, nodes=9, **spec):
    sums = dealt(data, held, stages)
    frame = prepare(sums, sums.federation.schema, ModelSpec(**spec))
    return fit_random(sums, frame, restricted=restricted, nodes=nodes)


LOGIT = {"formula": "I(affairs > 0) ~ rate_marriage + yrs_married + religious", "family": "binomial"}


def test_a_logistic_model_with_random_intercepts():
    model = found(*fair(), **LOGIT)
    assert model.log_likelihood == pytest.approx(-3485.81943081, abs=1e-5)
    np.testing.assert_allclose(model.model.coefficients, [2.445102, -0.706854, 0.0594015, -0.377371], atol=1e-5)
    assert (model.tau, model.sites) == (pytest.approx(0.243326, abs=1e-5), 6)


def test_one_node_is_laplaces_approximation():
    model = found(*fair(), nodes=1, **LOGIT)
    assert (model.log_likelihood, model.tau) == (pytest.approx(-3485.82085441, abs=1e-5),
                                                 pytest.approx(0.243249, abs=1e-5))


def test_a_gaussian_model_by_restricted_likelihood():
    model = found(*fair(), formula="yrs_married ~ age + children")
    assert model.log_likelihood == pytest.approx(-15517.94240070, abs=1e-6)
    np.testing.assert_allclose(model.model.coefficients, [-14.600723388, 0.732013621842, 1.570912284536], atol=1e-6)
    assert (model.model.dispersion, model.tau ** 2) == pytest.approx((7.635022592, 0.248981799), abs=1e-6)


def test_a_gaussian_model_by_full_likelihood_equals_statsmodels():
    data, held = fair()
    model = found(data, held, restricted=False, formula="yrs_married ~ age + children")
    pooled = sm.MixedLM(data["yrs_married"], sm.add_constant(np.column_stack([data["age"], data["children"]])),
                        data["occupation"]).fit(reml=False)
    assert model.log_likelihood >= pooled.llf - 1e-8
    np.testing.assert_allclose(model.model.coefficients, pooled.fe_params, rtol=1e-4)
    np.testing.assert_allclose(model.model.errors, pooled.bse_fe, rtol=3e-3)  # its variance is coarse


def test_sites_that_do_not_differ_have_no_variance():
    draw = np.random.default_rng(2)
    x = draw.standard_normal(300)
    y = x + draw.standard_normal(300)
    y -= np.array([y[site::6].mean() - x[site::6].mean() for site in range(6)])[np.arange(300) % 6]
    model = found({"y": y, "x": x}, 6, formula="y ~ x")
    assert model.tau == 0
    assert "the intercepts of sites do not differ more than rows do" in model.model.notes


def test_a_site_integrates_over_its_own_intercept():
    draw = np.random.default_rng(3)
    eta, tau = draw.standard_normal(30), 0.8
    y = (draw.random(30) < 0.4).astype(float)

    def height(u):
        chance = 1 / (1 + np.exp(-(eta + u)))
        return np.prod(np.where(y > 0, chance, 1 - chance)) * np.exp(-u**2 / 2 / tau**2) / tau / np.sqrt(2 * np.pi)

    exact = np.log(integrate.quad(height, -10, 10, epsabs=0, epsrel=1e-12)[0])
    settings = RandomSettings(formula="y ~ x", family="binomial", link="logit", weights="", drop_unknown=False,
                              sites="none", nodes=15)
    nodes, weights = np.polynomial.hermite.hermgauss(15)
    site = _Site(settings, y, nodes, np.log(weights) + np.square(nodes))
    assert site.marginal(eta, np.log(tau)) == pytest.approx(exact, abs=1e-8)


def test_few_sites_are_refused_where_they_could_be_solved_for():
    data, held = fair()
    with pytest.raises(ConfigError, match="random intercepts of 6 parties under a hidden sum could be solved for"):
        found(data, held, SECURE, **LOGIT)
    with pytest.raises(ConfigError, match="for gaussian, binomial and poisson outcomes without weights"):
        found(data, held, formula="age ~ children", family="gamma")
    four = [np.concatenate(held[:3]), *held[3:]]
    assert found(data, four, formula="yrs_married ~ age").model.notes[-1].startswith("4 sites are few")
