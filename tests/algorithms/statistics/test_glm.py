"""`glm` as a user meets it: tables that equal statsmodels, errors that say what to type, and parties' policies."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from pooled import SECURE, dealt
from rich.console import Console

import tequio
from tequio.algorithms.statistics.fitting import ModelSpec, fit, prepare, with_errors
from tequio.algorithms.statistics.newton import Aliased, Point, inverted, newton
from tequio.errors import ConfigError, DataError, PartyError, RunError, TequioError
from tequio.experiments.showing.statistics import cell_text, statistics_of, statistics_table
from tequio.views.report import report_page

sm = pytest.importorskip("statsmodels.api")
OPEN = {"minimum_rows": 1, "minimum_count": 1, "saturation": 10.0}
HOSPITAL = {"minimum_rows": 20, "minimum_count": 5, "tell_rows": "hundreds"}


def fair(rows=None):
    data = sm.datasets.fair.load_pandas().data.iloc[slice(None) if rows is None else slice(0, None, 6366 // rows)]
    columns = {name: data[name].to_numpy(float) for name in data.columns}
    return {**columns, "affair": np.where(columns["affairs"] > 0, "yes", "no")}


def run(folder, formula, data=None, *, family="binomial", parties=5, stages=(), split=0.0, policy=None, privacy=None,
        **algorithm):
    return tequio.run(rounds=1, stages=list(stages), engine={"workers": 1}, output={"folder": str(folder)},
                      algorithm={"name": "glm", "formula": formula, "family": family, **algorithm},
                      data={"name": fair(1200) if data is None else data, "target": "affair" if data is None else "y",
                            "test": 0.0, "prepare": [], "split": {"validation": split, "test": 0.0},
                            "partition": {"name": "iid", "parties": parties}},
                      **{name: table for name, table in (("policy", policy), ("privacy", privacy)) if table})


FAIR = "affair ~ rate_marriage + age + yrs_married + children + religious + educ + occupation + occupation_husb"


def quantities(model):
    return {row["quantity"]: row["value"] for row in model["tables"]["fit"]}


def test_tables_of_a_whole_run_equal_statsmodels(tmp_path):
    result = run(tmp_path, FAIR, {**(data := fair()), "y": data["age"]}, tests=[["occupation", "occupation_husb"]])
    tables, found = result.model["tables"], quantities(result.model)
    exact = {"deviance": 6942.9428461134, "log-likelihood": -3471.4714230567, "null log-likelihood": -4002.5299658404,
             "AIC": 6960.9428461134, "BIC": 7021.7713855839, "McFadden R2": 0.1326807163, "Cox-Snell R2": 0.1536668000}
    assert {name: found[name] for name in exact} == pytest.approx(exact, rel=1e-9)
    rows = {row["term"]: row for row in tables["coefficients"]}
    assert {name: rows[name]["p"] for name in ("age", "children", "educ", "occupation")} == pytest.approx(
        {"age": 3.97645702e-09, "children": 0.89347877668, "educ": 0.011293705167, "occupation": 2.3958466889e-06},
        rel=1e-8)
    assert rows["age"]["odds ratio"] == pytest.approx(np.exp(-0.060487680697), rel=1e-10)
    assert "odds ratio" not in rows["const"]
    test, = tables["tests"]
    assert (test["LR"], test["score"], test["Wald"]) == pytest.approx(
        (23.6819192145, 23.7099482025, 23.6114918000), rel=1e-9)
    assert test["LR p"] == pytest.approx(7.20338e-06, rel=1e-5)
    assert [row["factor"] for row in tables["variance inflation"]] == pytest.approx(
        [1.034798171909, 5.454115881337, 7.142949417966, 2.528972488823, 1.036905817599, 1.296241694559,
         1.206863449725, 1.082876148907], rel=1e-9)


def test_hidden_runs_have_the_hash_of_open_ones(tmp_path):
    formula = "affair ~ rate_marriage + C(occupation, ref=3) + age:religious"
    assert "levels of 'occupation' are not declared" in refusal(tmp_path, formula, stages=["secure-sum"])
    formula = "affair ~ rate_marriage + log(age):religious"
    runs = [run(tmp_path, formula, stages=stages, errors="HC3") for stages in ([], ["secure-sum"], ["one-shot-sum"])]
    assert len({one.summary["model_sha256"] for one in runs}) == 1
    assert runs[0].model["notes"] == ["the event is affair = 'yes'"]
    assert runs[0].model["revealed"]["M"] == "6 (real)"


def refusal(folder, formula, *args, **more):
    with pytest.raises(TequioError) as cause:
        run(folder, formula, *args, **more)
    return f"{cause.value.message}; {cause.value.remedy}"


def test_gaussian_tests_are_f_tests(tmp_path):
    data = {**(columns := fair(1200)), "y": columns["yrs_married"]}
    model = run(tmp_path, "y ~ age + children + educ", data, family="gaussian", tests=[["children", "educ"]]).model
    x = sm.add_constant(np.column_stack([data[name] for name in ("age", "children", "educ")]))
    pooled = sm.OLS(data["y"], x).fit()
    wanted = pooled.f_test(np.eye(4)[2:])
    test, = model["tables"]["tests"]
    assert test["Wald"] / 2 == pytest.approx(float(wanted.fvalue), rel=1e-9)
    assert (test["Wald p"], test["LR p"]) == pytest.approx((float(wanted.pvalue),) * 2, rel=1e-8)
    found = quantities(model)
    assert (found["R2"], found["adjusted R2"], found["AIC"], found["BIC"]) == pytest.approx(
        (pooled.rsquared, pooled.rsquared_adj, pooled.aic, pooled.bic), rel=1e-10)
    rows = model["tables"]["coefficients"]
    np.testing.assert_allclose([[row["low"], row["high"]] for row in rows], pooled.conf_int(), rtol=1e-8)
    assert [row["p"] for row in rows] == pytest.approx(pooled.pvalues.tolist(), rel=1e-7)


def test_a_factor_has_one_inflation_of_all_its_columns(tmp_path):
    data = fair(1200)
    model = run(tmp_path, "affair ~ C(occupation) + educ", minimum_count=1).model
    term, other = model["tables"]["variance inflation"]
    assert (term["columns"], term["term"]) == (5, "occupation")
    # With two terms both have the same generalised factor: the determinants are swapped.
    assert term["factor"] == pytest.approx(other["factor"], rel=1e-10)
    dummies = np.column_stack([data["occupation"] == level for level in range(2, 7)]).astype(float)
    pooled = sm.OLS(data["educ"], sm.add_constant(dummies)).fit()
    assert other["factor"] == pytest.approx(1 / (1 - pooled.rsquared), rel=1e-9)


def separated(kind, rows=200):
    draw = np.random.default_rng(5)
    x, z = draw.standard_normal(rows), draw.standard_normal(rows)
    y = (x > 0).astype(float) if kind == "complete" else np.where(x > 1, 1.0, draw.integers(0, 2, rows))
    return {"y": y, "x": x if kind == "complete" else (x > 1).astype(float), "z": z}


@pytest.mark.parametrize(("kind", "word"), [("complete", "separated"), ("quasi", "quasi-separated")])
@pytest.mark.parametrize("stages", [(), SECURE], ids=["open", "hidden"])
def test_separation_is_refused_by_the_name_of_the_column(kind, word, stages):
    sums = dealt(separated(kind), 4, stages)
    spec = ModelSpec(formula="y ~ x + z", family="binomial")
    with pytest.raises(DataError, match=f"^the outcome is {word}: no row speaks against 'x' growing") as cause:
        fit(sums, prepare(sums, sums.federation.schema, spec))
    assert cause.value.remedy.startswith("drop the term, merge levels")


def test_there_is_no_false_alarm_of_separation():
    draw = np.random.default_rng(6)
    fits = 0
    for _ in range(60):
        x = draw.standard_normal((40, 2))
        y = (draw.random(40) < 1 / (1 + np.exp(-x @ [1.0, -0.5]))).astype(float)
        sums = dealt({"y": y, "a": x[:, 0], "b": x[:, 1]}, 3)
        fits += fit(sums, prepare(sums, sums.federation.schema, ModelSpec(formula="y ~ a + b", family="binomial"))
                    ).fit.iterations < 20
    assert fits == 60


def collinear():
    draw = np.random.default_rng(7)
    a, b = draw.standard_normal((2, 90))
    return {"y": draw.standard_normal(90), "a": a, "b": b, "sum": a + 2 * b, "one": np.full(90, 3.0)}


def test_aliased_columns_are_refused_by_name_or_dropped():
    sums = dealt(collinear(), 3)
    for formula, name in (("y ~ a + b + sum", "sum"), ("y ~ a + one", "one")):
        with pytest.raises(Aliased, match=f"^column '{name}' is a linear combination of the columns before") as cause:
            fit(sums, prepare(sums, sums.federation.schema, ModelSpec(formula=formula)))
        assert cause.value.remedy == 'leave it out, or set aliased = "drop"'
        found = fit(sums, prepare(sums, sums.federation.schema, ModelSpec(formula=formula, aliased="drop")))
        assert found.notes == (f"without '{name}', a linear combination of the columns before it",)
        assert name not in found.frame.names


def test_few_clusters_are_refused_where_they_would_show_sites():
    sums = dealt(separated("none"), 4, SECURE)
    found = fit(sums, prepare(sums, sums.federation.schema, ModelSpec(formula="z ~ x")))
    with pytest.raises(ConfigError, match="need at least 5 parties here, and there are 4") as cause:
        with_errors(sums, found, "cluster")
    assert cause.value.remedy == "use HC3: algorithm.errors = 'HC3'"


def test_leverages_add_up_and_a_row_of_its_own_column_is_noted():
    draw = np.random.default_rng(8)
    data = {"y": draw.standard_normal(50), "x": draw.standard_normal(50), "own": np.arange(50) == 7}
    sums = dealt(data, 3)
    found = with_errors(sums, fit(sums, prepare(sums, sums.federation.schema, ModelSpec(formula="y ~ x + own"))), "HC3")
    assert found.notes == ("1 rows have a leverage of 1, for which HC3 is not defined",)


def test_newton_halves_a_step_that_goes_too_far():
    """The score of atan leads Newton's method away from anywhere beyond 1.39."""
    asked = []

    def evaluate(b):
        asked.append(float(b[0]))
        return Point(np.array([[1 / (1 + b[0] ** 2)]]), -np.arctan(b), 2 * (b[0] * np.arctan(b[0])
                                                                            - np.log1p(b[0] ** 2) / 2))

    found = newton("atan", ("x",), evaluate, np.array([3.0]))
    assert abs(found.coefficients[0]) < 1e-9
    assert asked[1:3] == pytest.approx([3 - np.arctan(3) * 10, 3 - np.arctan(3) * 5])
    with pytest.raises(RunError, match=r"'atan' did not converge in 3 iterations \(lambda .*\)"):
        newton("atan", ("x",), evaluate, np.array([3.0]), most=3)


def test_the_inverse_keeps_scales_apart():
    scale = np.array([1.0, 1e9, 1e-9])
    matrix = np.outer(scale, scale) * (np.eye(3) + 0.3)
    np.testing.assert_allclose(inverted(matrix) * np.outer(scale, scale), np.linalg.inv(np.eye(3) + 0.3), rtol=1e-12)


@pytest.mark.parametrize(("formula", "more", "match"), [
    ("affair ~ income", {}, "there is no column 'income'"),
    ("affair ~ age", {"link": "log"}, "the family 'binomial' has no link 'log'; set algorithm.link = 'logit'"),
    ("affair ~ age", {"weights_are": "counts"}, "weights_are would do nothing"),
    ("age ~ educ", {}, "the outcome has values that the family 'binomial' does not have"),
    ("affair ~ age + educ", {"tests": [["agee"]]}, "there is no term 'agee'"),
    ("affair ~ age - 1", {"tests": [["age"]]}, "nothing would be left of the model"),
    ('affair ~ I(affair == "maybe")', {}, "'maybe' is no level of 'affair'"),
    ("affair ~ age", {"family": "gaussian"}, "has 2 levels, and the family 'gaussian' wants a number"),
    ("age ~ log(affair)", {"family": "gaussian"}, "column 'affair' has levels, and a number is wanted; compare it"),
    ("age ~ educ + offset(affair)", {"family": "poisson"}, "column 'affair' has levels, and a number is wanted"),
    ("age ~ I(2 * age)", {"family": "gaussian"}, "leave nothing of the outcome unexplained"),
    ("I(age - age) ~ educ", {"family": "gaussian"}, "all outcomes are 0, so that there is nothing to fit"),
    ("affair ~ age", {"stages": ["dp-sums"], "privacy": {"epsilon": 1.0}}, "")])
def test_what_makes_no_sense_is_refused(tmp_path, formula, more, match):
    assert match in refusal(tmp_path, formula, **more)


def test_rows_kept_aside_are_said(tmp_path):
    model = run(tmp_path, "affair ~ age", split=0.2).model
    assert model["notes"][-1].startswith("20% of the rows are kept for validation and testing")


def test_random_intercepts_have_a_table(tmp_path):
    model = run(tmp_path, "affair ~ age + religious", parties=6, sites="random").model
    assert model["approximate"] == "quadrature"
    assert list(quantities(model)) == ["rows", "rows left out", "sites", "log-likelihood", "sd of site intercepts"]
    data = {**(columns := fair(1200)), "y": columns["yrs_married"]}
    model = run(tmp_path, "y ~ age", data, family="gaussian", parties=6, sites="random").model
    assert (model["approximate"], quantities(model)["sites"]) == ("", 6)
    assert 0 <= quantities(model)["intraclass correlation"] < 0.05  # rows were dealt at random
    assert "no tests of groups" in refusal(tmp_path, "affair ~ age", sites="random", errors="HC3")


def test_a_policy_that_hides_rows_wants_a_hidden_sum(tmp_path):
    assert "say how many rows there are" in refusal(tmp_path, "affair ~ age", policy=HOSPITAL)
    hidden = run(tmp_path, "affair ~ age + religious", policy=HOSPITAL, stages=["secure-sum"])
    plain = run(tmp_path, "affair ~ age + religious", policy=OPEN)
    assert hidden.summary["model_sha256"] == plain.summary["model_sha256"]
    cause = refusal(tmp_path, "affair ~ age + I(children > 5)", policy=HOSPITAL, stages=["secure-sum"])
    assert "of 5 parties have too few rows for this model (rule c)" in cause


def test_tables_are_printed_and_reported(tmp_path):
    result = run(tmp_path, "affair ~ age + C(occupation)", tests=[["occupation"]], minimum_count=1)
    tables = statistics_of(result)
    assert list(tables) == ["coefficients", "fit", "tests", "variance inflation"]
    assert statistics_table("coefficients", tables["coefficients"]).row_count == 7
    named = statistics_table("coefficients", [{"term": "sex[male]", "estimate": 0.5}])
    console = Console(width=60, record=True, file=StringIO())
    console.print(named)
    assert "sex[male]" in console.export_text()
    page = report_page([result.folder])
    assert "occupation[2]" in page
    assert "odds ratio" in page
    cells = [("p", 1e-9), ("p", 0.04567), ("value", 6366.0), ("z", float("nan"))]
    assert [cell_text(*cell) for cell in cells] == ["< 0.001", "0.046", "6,366", "undefined"]


def test_a_party_that_lies_about_the_layout_is_named(tmp_path):
    from tequio.algorithms.statistics import glm_tasks

    honest = glm_tasks.scores_here.run
    object.__setattr__(glm_tasks.scores_here, "run", lambda party, payload, settings: {
        "sums": {"whole": np.zeros(3, dtype=np.uint64)}} if party.index == 2 else honest(party, payload, settings))
    try:
        with pytest.raises(PartyError, match="party '2'"):
            run(tmp_path, "affair ~ age")
    finally:
        object.__setattr__(glm_tasks.scores_here, "run", honest)
