"""Generalised linear models equal those of the pooled rows to eight digits, and themselves to the last bit.

Reference numbers are statsmodels 0.15.0, iterated until nothing moves; Longley's are NIST's.
"""

from __future__ import annotations

import numpy as np
import pytest
from pooled import ONE_SHOT, SECURE, Backwards, dealt

from tequio.algorithms.statistics.design import spline
from tequio.algorithms.statistics.fitting import ModelSpec, fit, likelihood, prepare, with_errors

sm = pytest.importorskip("statsmodels.api")


def frame_of(name):
    """The package's rows in its order, the outcome first."""
    data = getattr(sm.datasets, name).load_pandas().data
    return {column: data[column].to_numpy(float) for column in data.columns}


def fitted(data, parties, stages=(), engine=None, **spec):
    sums = dealt(data, parties, stages, engine=engine)
    return sums, fit(sums, prepare(sums, sums.federation.schema, ModelSpec(**spec)))


def close(found, coefficients, errors):
    """Coefficients in standard errors, and standard errors themselves, to 1e-8."""
    assert np.abs((found.coefficients - coefficients) / found.errors).max() <= 1e-8
    np.testing.assert_allclose(found.errors, errors, rtol=1e-8)


FAIR = ("I(affairs > 0) ~ rate_marriage + age + yrs_married + children + religious + educ + occupation + "
        "occupation_husb")
RAND = "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"
LONGLEY = "TOTEMP ~ GNPDEFL + GNP + UNEMP + ARMED + POP + YEAR"
SCOTLAND = "YES ~ COUTAX + UNEMPF + MOR + ACT + GDP + AGE + COUTAX_FEMALEUNEMP"
MODELS = {
    "spector logit": ("spector", 4, {"formula": "GRADE ~ GPA + TUCE + PSI", "family": "binomial"}, 7, 25.7792684443,
                      [-13.021346858, 2.8261125949, 0.095157661318, 2.3786876551],
                      [4.9313242136, 1.2629410756, 0.14155420567, 1.0645642545]),
    "spector probit": ("spector", 4, {"formula": "GRADE ~ GPA + TUCE + PSI", "family": "binomial", "link": "probit"},
                       11, 25.6376081378, [-7.4523196482, 1.6258100395, 0.051728945508, 1.426332342],
                       [2.5715582188, 0.68973139471, 0.081194845852, 0.5869588719]),
    "spector cloglog": ("spector", 4, {"formula": "GRADE ~ GPA + TUCE + PSI", "family": "binomial", "link": "cloglog"},
                        19, 26.0160073926, [-10.031418788, 2.2935526681, 0.041155972457, 1.5622758811],
                        [3.4360443913, 0.91767132999, 0.096971065112, 0.72615547101]),
    "fair": ("fair", 5, {"formula": FAIR, "family": "binomial"}, 6, 6942.9428461134,
             [3.7257198666, -0.71610710508, -0.060487680697, 0.11001794098, -0.0042332261929, -0.37515765268,
              -0.039219204065, 0.16023383319, 0.012400818906],
             [0.29876336747, 0.031430617482, 0.010277984066, 0.01094292909, 0.031613975422, 0.034763348348,
              0.015480384968, 0.033970887362, 0.02292554184]),
    "rand": ("randhie", 5, {"formula": RAND, "family": "poisson"}, 7, 83934.23786047,
             [0.7003528786, -0.052535115354, -0.24708679413, 0.035290201696, -0.034577506718, 0.27171397882,
              0.033941474482, -0.012635034402, 0.054056329894, 0.20611511844],
             [0.011162667126, 0.0028839891979, 0.010617251896, 0.0018283368441, 0.0016128485258, 0.012239138438,
              0.00056476497444, 0.0092506112262, 0.015309870675, 0.026279282718]),
    "scotland": ("scotland", 4, {"formula": SCOTLAND, "family": "gamma"}, 8, 0.087987818361,
                 [5.65812719621, -0.00237704061034, -0.100477296617, 0.0048129558838, -0.00666001412274,
                  8.17331449562e-06, 0.0297555513408, 0.000117986913235],
                 [0.680241112277, 0.000963895876799, 0.0307341748346, 0.00163367266868, 0.00262844212133,
                  7.19384153335e-06, 0.0148134073891, 4.33110872086e-05])}


@pytest.mark.parametrize("name", MODELS)
def test_models_equal_those_of_the_pooled_rows(name):
    table, parties, spec, iterations, deviance, coefficients, errors = MODELS[name]
    for number in (1, 2, parties):
        _, found = fitted(frame_of(table), number, **spec)
        assert found.fit.iterations == iterations
        assert found.deviance == pytest.approx(deviance, rel=1e-11)
        close(found, coefficients, errors)


@pytest.mark.parametrize("name", ["spector logit", "spector cloglog", "scotland"])
def test_every_carrier_and_order_gives_the_same_bits(name):
    table, parties, spec, *_ = MODELS[name]
    found = [fitted(frame_of(table), parties, stages, engine, **spec)[1]
             for stages, engine in (((), None), ((), Backwards()), (SECURE, None), (ONE_SHOT, None))]
    for other in found[1:]:
        assert np.array_equal(other.coefficients, found[0].coefficients)
        assert np.array_equal(other.covariance, found[0].covariance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fair", "rand"])
def test_large_models_have_the_same_bits_when_hidden(name):
    table, parties, spec, *_ = MODELS[name]
    plain, secure = (fitted(frame_of(table), parties, stages, **spec)[1] for stages in ((), SECURE))
    assert np.array_equal(plain.coefficients, secure.coefficients)
    assert np.array_equal(plain.covariance, secure.covariance)


def test_six_and_a_hundred_parties_take_as_many_iterations():
    sums, found = fitted(frame_of("fair"), 100, formula=FAIR, family="binomial")
    assert (found.fit.iterations, len(sums.parties)) == (6, 100)
    close(found, MODELS["fair"][5], MODELS["fair"][6])


def test_longley_against_nists_certified_values():
    _, found = fitted(frame_of("longley"), 4, formula=LONGLEY)
    certified = [-3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683, -1.03322686717359,
                 -0.511041056535807e-01, 1829.15146461355]
    np.testing.assert_allclose(found.coefficients, certified, rtol=1e-10)
    np.testing.assert_allclose(found.errors, [890420.383607373, 84.9149257747669, 0.334910077722432e-01,
                                              0.488399681651699, 0.214274163161675, 0.226073200069370,
                                              455.478499142212], rtol=1e-9)
    assert found.fit.iterations == 2
    assert found.dispersion ** 0.5 == pytest.approx(304.854073561965, rel=1e-10)


def iris():
    from sklearn.datasets import load_iris

    data = load_iris()
    return {**dict(zip(("sl", "sw", "pl", "pw"), data.data.T, strict=True)),
            "species": data.target_names[data.target].astype(str)}


IRIS = "sl ~ sw + pl + C(species)"


def test_factors_of_iris():
    sums, found = fitted(iris(), 5, formula=IRIS)
    close(found, [2.39038914032, 0.432217208772, 0.775629458281, -0.955812300899, -1.39409787159],
          [0.262268153236, 0.0813898190775, 0.0642456624549, 0.215198533751, 0.285660531251])
    assert found.frame.names == ("const", "sw", "pl", "species[versicolor]", "species[virginica]")
    assert found.dispersion == pytest.approx(0.096313891628, rel=1e-10)
    np.testing.assert_allclose(with_errors(sums, found, "HC3").errors, [
        0.253023144726, 0.0810687151652, 0.0698458282408, 0.218070882312, 0.306602863149], rtol=1e-8)


def test_a_level_that_a_party_lacks_is_a_column_of_zeros_there():
    by_species = [np.arange(50), np.arange(50, 100), np.arange(100, 150)]
    _, plain = fitted(iris(), 1, formula=IRIS)
    for held in (by_species, [np.arange(75), np.arange(75, 150), []]):
        found = fitted(iris(), held, formula=IRIS)[1]
        close(found, plain.coefficients, plain.errors)


ROBUST = {
    "HC0": [0.2975613367, 0.03223825048, 0.0103598771, 0.01096011015, 0.03237676146, 0.03444218782, 0.01557106071,
            0.03449398268, 0.02322050757],
    "HC2": [0.2978436019, 0.03226807218, 0.01037119322, 0.01097195546, 0.0324127801, 0.03447243346, 0.0155884876,
            0.03452873633, 0.02324095258],
    "HC3": [0.2981263118, 0.03229793628, 0.01038253132, 0.01098382307, 0.03244885787, 0.03450272113, 0.01560594457,
            0.03456354168, 0.02326142457],
    "cluster": [0.2708802675, 0.0392048884, 0.008376978044, 0.007398457199, 0.02366446762, 0.02281268099, 0.01766353038,
                0.06811557096, 0.02959352629]}


def test_robust_errors():
    sums, found = fitted(frame_of("fair"), 5, formula=FAIR, family="binomial")
    for kind, errors in ROBUST.items():
        np.testing.assert_allclose(with_errors(sums, found, kind).errors, errors, rtol=2e-8)
    rows = len(frame_of("fair")["age"])
    np.testing.assert_allclose(with_errors(sums, found, "HC1").errors, np.sqrt(rows / (rows - 9)) * np.array(
        ROBUST["HC0"]), rtol=1e-8)
    assert with_errors(sums, found, "cluster").degrees == 4
    assert with_errors(sums, found, "cluster").notes == ("5 clusters are few: intervals may be too narrow",)
    assert sums.revealed["Sh"] == "1 (real)"


def test_log_likelihoods_with_their_constants():
    for name, expected in (("spector logit", -12.8896342221), ("fair", -3471.4714230567), ("rand", -62419.58856445)):
        table, parties, spec, *_ = MODELS[name]
        sums, found = fitted(frame_of(table), parties, **spec)
        assert likelihood(sums, found) == pytest.approx(expected, rel=1e-11)
    data = frame_of("longley")
    pooled = sm.OLS(data["TOTEMP"], sm.add_constant(np.column_stack([data[name] for name in (
        "GNPDEFL", "GNP", "UNEMP", "ARMED", "POP", "YEAR")]))).fit()
    sums, found = fitted(data, 4, formula=LONGLEY)
    assert likelihood(sums, found) == pytest.approx(pooled.llf, rel=1e-10)


def test_the_negative_binomial():
    sums, found = fitted(frame_of("randhie"), 5, formula=RAND, family="negative-binomial")
    close(found, [0.6635560897, -0.05794695303, -0.2677877149, 0.04120607605, -0.03813767993, 0.2689157704,
                  0.03816374436, -0.04413388208, 0.01725218371, 0.1779607944],
          [0.02477117908, 0.006089727536, 0.02269308794, 0.004146990559, 0.003399513592, 0.02994500724, 0.001463229411,
           0.02005228116, 0.0361450169, 0.07426120526])
    assert (found.alpha, found.alpha_se) == pytest.approx((1.2929533441, 0.0186097594), rel=2e-9)
    assert likelihood(sums, found) == pytest.approx(-43383.66207654, rel=1e-12)
    assert found.fit.iterations == 8


def test_counts_without_overdispersion_are_poisson():
    draw = np.random.default_rng(8)
    x = draw.standard_normal(300)
    y = np.rint(np.exp(0.5 + 0.3 * x))  # less spread than a Poisson distribution has
    data = {"y": y, "x": x}
    _, found = fitted(data, 3, formula="y ~ x", family="negative-binomial")
    assert (found.alpha, found.notes) == (0.0, ("no overdispersion: the Poisson model is reported",))
    assert np.array_equal(found.coefficients, fitted(data, 3, formula="y ~ x", family="poisson")[1].coefficients)


def test_intercepts_of_sites_equal_those_of_dummies():
    data = frame_of("fair")
    held = [np.flatnonzero(data["occupation"] == site) for site in range(1, 7)]
    short = "I(affairs > 0) ~ rate_marriage + yrs_married + religious"
    sums, found = fitted(data, held, formula=short, family="binomial", sites="fixed")
    close(found, [-0.70707796254, 0.059186526043, -0.378150030977], [0.03127538318, 0.004054157748, 0.034614414709])
    assert found.fit.iterations == 5  # 6 where intercepts take one step per iteration: here each party finds its own
    assert likelihood(sums, found) == pytest.approx(-3476.45681128, rel=1e-11)
    dummies = fitted(data, held, formula=short + " + C(occupation)", family="binomial")
    for kind in ("HC0", "HC2", "HC3"):
        np.testing.assert_allclose(with_errors(sums, found, kind).errors,
                                   with_errors(*dummies, kind).errors[1:4], rtol=1e-7)
    hidden = fitted(data, held, SECURE, formula=short, family="binomial", sites="fixed")[1]
    assert np.array_equal(hidden.coefficients, found.coefficients)


def test_a_site_whose_outcomes_are_all_equal_adds_nothing():
    data = {name: values[::11] for name, values in frame_of("fair").items()}
    data["z"] = (data["affairs"] > 0).astype(float)
    data["z"][1::3] = 1.0
    found = fitted(data, 3, formula="z ~ age + religious", family="binomial", sites="fixed")
    rows = np.arange(len(data["z"]))
    others = [rows[0::3], rows[2::3]]
    alone = fitted(data, others, formula="z ~ age + religious", family="binomial", sites="fixed")
    assert int(found[1].fit.at.extra["flat"]) == 1
    np.testing.assert_allclose(found[1].coefficients, alone[1].coefficients, rtol=1e-9)
    np.testing.assert_allclose(found[1].errors, alone[1].errors, rtol=1e-9)


def test_offsets_and_weights():
    data = frame_of("randhie")
    data = {name: values[:2000] for name, values in data.items()}
    data["t"], data["w"] = 0.5 + (np.arange(2000) % 7) / 3, 1.0 + np.arange(2000) % 3
    x = sm.add_constant(np.column_stack([data["idp"], data["disea"]]))
    pooled = sm.GLM(data["mdvis"], x, sm.families.Poisson(), offset=np.log(data["t"]), var_weights=data["w"]).fit(
        tol=1e-15, maxiter=200)
    _, found = fitted(data, 4, formula="mdvis ~ idp + disea + offset(log(t))", family="poisson", weights="w")
    np.testing.assert_allclose(found.coefficients, pooled.params, rtol=1e-9)
    np.testing.assert_allclose(found.errors, pooled.bse, rtol=1e-9)
    counted = fitted(data, 4, formula="disea ~ idp", weights="w", weights_are="counts")[1]
    repeated = np.repeat(np.arange(2000), data["w"].astype(int))
    whole = sm.OLS(data["disea"][repeated], sm.add_constant(data["idp"][repeated])).fit()
    np.testing.assert_allclose(counted.errors, whole.bse, rtol=1e-10)


def test_the_inverse_link_of_gamma():
    data = frame_of("scotland")
    x = sm.add_constant(np.column_stack([data["COUTAX"], data["UNEMPF"], data["AGE"]]))
    with pytest.warns(UserWarning, match="InversePower"):
        model = sm.GLM(data["YES"], x, sm.families.Gamma())
    pooled = model.fit(tol=1e-15, maxiter=200)
    _, found = fitted(data, 4, formula="YES ~ COUTAX + UNEMPF + AGE", family="gamma", link="inverse")
    np.testing.assert_allclose(found.coefficients, pooled.params, rtol=1e-8)
    np.testing.assert_allclose(found.errors, pooled.bse, rtol=1e-8)


@pytest.mark.parametrize("stages", [(), SECURE], ids=["open", "hidden"])
def test_one_value_of_a_million_million_gives_the_pooled_fit(stages):
    """It outgrows no range: each column has its own, and standardised sums follow."""
    draw = np.random.default_rng(4)
    data = {"x": draw.standard_normal(80), "z": draw.standard_normal(80)}
    data["x"][3] = 1e12
    data["y"] = data["z"] + draw.standard_normal(80)
    pooled = sm.OLS(data["y"], sm.add_constant(np.column_stack([data["x"], data["z"]]))).fit()
    _, found = fitted(data, 4, stages, formula="y ~ x + z")
    np.testing.assert_allclose(found.coefficients, pooled.params, rtol=1e-9)
    np.testing.assert_allclose(found.errors, pooled.bse, rtol=1e-9)


def test_fewer_rows_than_columns_at_each_party_are_enough_together():
    data = {name: values[:12] for name, values in frame_of("longley").items()}
    x = sm.add_constant(np.column_stack([data["UNEMP"], data["ARMED"], data["YEAR"]]))
    pooled = sm.OLS(data["TOTEMP"], x).fit()
    _, found = fitted(data, 6, SECURE, formula="TOTEMP ~ UNEMP + ARMED + YEAR")
    np.testing.assert_allclose(found.coefficients, pooled.params, rtol=1e-7)


def test_splines_have_knots_at_quantiles_of_all_rows():
    data = frame_of("fair")
    _, found = fitted(data, 5, formula="yrs_married ~ rcs(age, 4)", minimum_count=1)
    knots = found.frame.agreed["knots"]["rcs(age)"]
    wanted = np.quantile(data["age"], [0.05, 0.35, 0.65, 0.95], method="inverted_cdf")
    np.testing.assert_allclose(knots, wanted, atol=0.05)
    pooled = sm.OLS(data["yrs_married"], np.column_stack([np.ones(6366), spline(data["age"], knots)])).fit()
    close(found, pooled.params, pooled.bse)
    assert found.frame.names == ("const", "rcs(age)[1]", "rcs(age)[2]", "rcs(age)[3]")
    given = f"yrs_married ~ rcs(age, knots=[{', '.join(map(repr, knots.tolist()))}])"
    assert np.array_equal(fitted(data, 5, SECURE, formula=given)[1].coefficients, found.coefficients)
