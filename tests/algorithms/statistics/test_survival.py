"""Survival against statsmodels, hand-worked cases, and itself under each carrier."""

from __future__ import annotations

import numpy as np
import pytest
from pooled import ONE_SHOT, SECURE, Backwards, dealt

from tequio.algorithms.statistics.cox import Cox
from tequio.algorithms.statistics.kaplan_meier import KaplanMeier, LogRank, compared, survival
from tequio.algorithms.statistics.partial_likelihood import by_cell, concordance, risk, score_residuals, squares_by_cell
from tequio.algorithms.statistics.survival_rows import joined, read_outcome
from tequio.data.dataset import Schema, Target
from tequio.errors import ConfigError, DataError, PartyError

phreg = pytest.importorskip("statsmodels.duration.hazard_regression")
survfunc = pytest.importorskip("statsmodels.duration.survfunc")

RISK_SETS = {"baseline": "common", "minimum_count": 1, "reveal": "risk sets"}


@pytest.fixture(scope="module")
def heart():
    """Stanford's heart transplants, as statsmodels ships them."""
    from statsmodels.datasets import heart

    frame = heart.load_pandas().data
    return {"days": frame["survival"].to_numpy() + 1, "died": frame["censors"].to_numpy(),
            "age": frame["age"].to_numpy(), "old": (frame["age"] > 45).to_numpy().astype(float)}


@pytest.fixture(scope="module")
def weeks():
    """Many ties, three columns, and groups."""
    rng = np.random.default_rng(5)
    number = 400
    age, dose, arm = rng.normal(60, 9, number), rng.exponential(1, number), rng.integers(0, 2, number).astype(float)
    due = rng.exponential(30 * np.exp(-0.03 * (age - 60) - 0.3 * dose + 0.5 * arm))
    censored = rng.uniform(5, 60, number)
    return {"week": np.ceil(np.minimum(due, censored)), "died": (due <= censored).astype(float), "age": age,
            "dose": dose, "arm": arm, "ward": np.array(["east", "north", "south"])[rng.integers(0, 3, number)]}


def found(statistic, table, parties=4, stages=(), **how):
    sums = dealt(table, parties, stages, what=statistic.what, **how)
    return statistic.found(sums, sums.federation), sums


def pooled(table, names, ties="efron", strata=None):
    columns = np.column_stack([table[name] for name in names])
    time, event = (table[name] for name in ("days" if "days" in table else "week", "died"))
    model = phreg.PHReg(time, columns, status=event, ties=ties, strata=strata)
    return model, model.fit(method="newton", disp=0, tol=1e-13, ridge_factor=0.0, maxiter=100)


def same(model, fit, *, within=1e-8):
    np.testing.assert_allclose((model["coefficients"] - fit.params) / fit.bse, 0, atol=within)
    np.testing.assert_allclose(model["standard_errors"], fit.bse, rtol=within)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_one_baseline_equals_pooled_rows_on_two_tables(ties, heart, weeks):
    model = found(Cox(formula="Surv(days, died) ~ age", grid="events", ties=ties, **RISK_SETS), heart)[0]
    same(model, pooled(heart, ["age"], ties)[1])
    model = found(Cox(formula="Surv(week, died) ~ age + dose + arm", step=1, horizon=60, ties=ties, **RISK_SETS),
                  weeks, 7)[0]
    reference, fit = pooled(weeks, ["age", "dose", "arm"], ties)
    same(model, fit)
    about = {row["quantity"]: row["value"] for row in model["tables"]["fit"]}
    assert about["log partial likelihood"] == pytest.approx(fit.llf, abs=1e-9)
    assert about["null log partial likelihood"] == pytest.approx(reference.loglike(np.zeros(3)), abs=1e-9)
    assert about["events"] == weeks["died"].sum()


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("parties", [1, 3])
def test_baselines_by_site_equal_the_stratified_model_of_pooled_rows(ties, parties, weeks):
    model = found(Cox(formula="Surv(week, died) ~ age + dose + arm", ties=ties), weeks, parties)[0]
    same(model, pooled(weeks, ["age", "dose", "arm"], ties, np.arange(400) % parties)[1])


@pytest.mark.parametrize("of", [{"step": 1, "horizon": 60, **RISK_SETS}, {"minimum_count": 1}])
@pytest.mark.parametrize("errors", ["model", "robust", "cluster"])
def test_every_carrier_gives_the_same_bits(of, errors, weeks):
    cox = Cox(formula="Surv(week, died) ~ age + dose", errors=errors, **of)
    plain = found(cox, weeks, 5)[0]
    for how in ({"engine": Backwards()}, {"stages": SECURE}):
        other = found(cox, weeks, 5, **how)[0]
        assert np.array_equal(other["coefficients"], plain["coefficients"])
        assert np.array_equal(other["covariance"], plain["covariance"])
        assert other["tables"] == plain["tables"]
    curves = KaplanMeier(formula="Surv(week, died) ~ ward", step=5, horizon=60, minimum_count=1)
    assert found(curves, weeks, 5, ONE_SHOT)[0]["tables"] == found(curves, weeks, 5)[0]["tables"]


def test_a_tiny_case_by_hand():
    """The case of the tests of R's package survival: its coefficient and score test are known in closed form."""
    table = {"week": np.array([9.0, 1, 1, 6, 6, 8]), "died": np.array([1.0, 1, 0, 1, 1, 0]),
             "x": np.array([0.0, 1, 1, 1, 0, 0])}
    model = found(Cox(formula="Surv(week, died) ~ x", ties="breslow", grid="events", **RISK_SETS), table, 2)[0]
    assert model["coefficients"][0] == pytest.approx(np.log((3 + 33 ** 0.5) / 2), abs=1e-12)
    assert model["tables"]["proportional hazards"][0]["chi2"] == pytest.approx(0.3004974386, abs=1e-10)


def dense(table, names, weights):
    """Cells, sums and residuals of pooled rows, at the pooled fit of weighted rows (Newton, no standardising)."""
    z = np.column_stack([table[name] for name in names])
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    event, (times, cells) = table["died"] == 1, np.unique(table["week"], return_inverse=True)
    b, number = np.zeros(len(names)), len(times)
    d = np.bincount(cells[event], minlength=number)
    for _ in range(30):
        r = weights * np.exp(z @ b)
        sums = [(by_cell(cells[some], number, r[some]), by_cell(cells[some], number, r[some, None] * z[some]),
                 squares_by_cell(cells[some], number, r[some], z[some])) for some in (np.full(len(r), True), event)]
        parts = risk(d, by_cell(cells[event], number, weights[event]), *sums, "efron")
        b = b + np.linalg.solve(parts.information, (weights * event) @ z - parts.expected.sum(axis=0))
    return b, parts, score_residuals(parts, cells, event, weights, weights * np.exp(z @ b), z)


def test_score_residuals_are_the_derivatives_by_the_rows_weights(weeks):
    table = {name: values[:60] for name, values in weeks.items()}
    names, ones = ("age", "dose"), np.ones(60)
    _, parts, residuals = dense(table, names, ones)
    for row in (0, 7, 31, 59):
        more, less = ones.copy(), ones.copy()
        more[row], less[row] = 1 + 1e-5, 1 - 1e-5
        slope = (dense(table, names, more)[0] - dense(table, names, less)[0]) / 2e-5
        np.testing.assert_allclose(np.linalg.solve(parts.information, residuals[row]), slope, atol=1e-8)
    np.testing.assert_allclose(residuals.sum(axis=0), 0, atol=1e-9)


def test_robust_errors_are_made_of_score_residuals(weeks):
    _, parts, residuals = dense(weeks, ("age", "dose"), np.ones(400))
    turn = np.linalg.inv(parts.information) / np.array([weeks["age"].std(), weeks["dose"].std()])
    for errors, meat in (("robust", residuals.T @ residuals), ("cluster", sum(
            np.outer(own, own) for own in (residuals[party::4].sum(axis=0) for party in range(4))))):
        model = found(Cox(formula="Surv(week, died) ~ age + dose", step=1, horizon=60, errors=errors, **RISK_SETS),
                      weeks)[0]
        np.testing.assert_allclose(model["covariance"], turn.T @ meat @ turn, rtol=1e-8)


def test_a_weight_of_two_is_a_row_twice(weeks):
    heavy = {**weeks, "heavy": np.where(np.arange(400) % 3, 1.0, 2.0)}
    twice = np.concatenate([np.arange(400), np.flatnonzero(heavy["heavy"] == 2)])
    held = [np.flatnonzero(twice % 4 == party) for party in range(4)]
    doubled = {name: values[twice] for name, values in weeks.items()}
    for of in ({"step": 1, "horizon": 60, **RISK_SETS}, {}):
        cox = {"formula": "Surv(week, died) ~ age + dose", "ties": "breslow", **of}
        np.testing.assert_allclose(found(Cox(weights="heavy", **cox), heavy)[0]["coefficients"],
                                   found(Cox(**cox), doubled, held)[0]["coefficients"], rtol=1e-9)


def test_concordance_counts_each_pair():
    rng = np.random.default_rng(2)
    time, event, risks = rng.integers(1, 9, 60).astype(float), rng.random(60) < 0.6, rng.integers(0, 6, 60) / 2
    counted = [0, 0, 0]
    for early in range(60):
        for late in range(60):
            if event[early] and (time[early] < time[late] or (time[early] == time[late] and not event[late])):
                counted[0 if risks[early] > risks[late] else 1 if risks[early] < risks[late] else 2] += 1
    assert concordance(time, event, risks) == tuple(counted)


def test_curves_equal_statsmodels(weeks):
    model = found(KaplanMeier(formula="Surv(week, died) ~ ward", step=1, horizon=60, minimum_count=1), weeks, 6)[0]
    for group in ("east", "north", "south"):
        some = weeks["ward"] == group
        curve = survfunc.SurvfuncRight(weeks["week"][some], weeks["died"][some])
        rows = {row["time"]: row for row in model["tables"]["survival"] if row["group"] == group}
        for time, alive, error, at_risk in zip(curve.surv_times, curve.surv_prob, curve.surv_prob_se, curve.n_risk,
                                               strict=True):
            assert rows[time]["survival"] == pytest.approx(alive, abs=1e-12)
            assert rows[time]["se"] == pytest.approx(error, abs=1e-12)
            assert rows[time]["at risk"] == at_risk
        summary = next(row for row in model["tables"]["groups"] if row["group"] == group)
        assert summary["median"] == curve.quantile(0.5)


@pytest.mark.parametrize(("weights", "theirs"), [
    ({}, {}), ({"weights": "wilcoxon"}, {"weight_type": "gb"}),
    ({"weights": "fleming-harrington", "rho": 1.0}, {"weight_type": "fh", "fh_p": 1})])
@pytest.mark.parametrize("stratify", [False, True])
def test_comparisons_equal_statsmodels(weights, theirs, stratify, weeks):
    cut = {} if stratify else {"step": 1, "horizon": 60}
    model = found(LogRank(formula="Surv(week, died) ~ ward", stratify=stratify, minimum_count=1, **weights, **cut),
                  weeks, 3)[0]
    strata = {"strata": np.arange(400) % 3} if stratify else {}
    chi2, p = survfunc.survdiff(weeks["week"], weeks["died"], weeks["ward"], **theirs, **strata)
    test = model["tables"]["test"][0]
    assert (test["chi2"], test["p"], test["df"]) == (pytest.approx(chi2, rel=1e-9), pytest.approx(p, rel=1e-8), 2)


def test_the_ends_of_a_curve():
    """All of a group die, or nobody does: limits are those of a certain event."""
    table = {"week": np.array([1.0, 1, 2, 2, 3, 3]), "died": np.array([1.0, 0, 1, 0, 1, 0]),
             "arm": np.array(["a", "b", "a", "b", "a", "b"])}
    rows = found(KaplanMeier(formula="Surv(week, died) ~ arm", step=1, horizon=3, minimum_count=1), table, 2)[0][
        "tables"]
    last = [row for row in rows["survival"] if row["time"] == 3]
    assert [(row["survival"], row["low"], row["high"], row["se"]) for row in last] == [(0, 0, 0, 0), (1, 1, 1, 0)]
    assert rows["groups"][0]["median"] == 2
    assert np.isnan(rows["groups"][1]["median"])


def test_small_cells_are_joined_and_none_is_seen(weeks):
    """With at least 5 rows and 5 events in each cell at each party, whatever the declared grid."""
    model, sums = found(KaplanMeier(formula="Surv(week, died) ~ C(arm)", step=1, horizon=60), weeks, 3)
    plain = found(KaplanMeier(formula="Surv(week, died) ~ arm", step=1, horizon=60), weeks, 3)[0]
    assert np.array_equal(plain["leaving"], model["leaving"])
    table = {**weeks, "arm": weeks["arm"]}
    edges = model["edges"]
    assert 2 <= len(edges) < 60
    assert any("cells in place of 60" in note for note in sums.notes)
    for party in range(3):
        cells = np.minimum(np.searchsorted(edges, table["week"][party::3]), len(edges) - 1)
        within = (table["died"][party::3] == 1) & (table["week"][party::3] <= edges[-1])
        for arm in (0, 1):
            some = table["arm"][party::3] == arm
            for counted in (np.bincount(cells[some], minlength=1), np.bincount(cells[some & within], minlength=1)):
                assert not ((counted > 0) & (counted < 5)).any()
    cox = found(Cox(formula="Surv(week, died) ~ age", baseline="common", step=1, horizon=60), weeks, 3)
    assert cox[0]["coefficients"][0] == pytest.approx(pooled(weeks, ["age"])[1].params[0], abs=0.02)


def test_joined_cells():
    assert joined(np.array([True, False, True, True, True])) == [0, 2, 4 - 1]
    assert joined(np.array([False, True])) == [0]


@pytest.mark.parametrize(("changes", "says"), [
    ({"formula": "week ~ age"}, "write Surv\\(time, event\\)"),
    ({"baseline": "common"}, "how time is cut is not declared"),
    ({"baseline": "common", "edges": (3.0, 2.0)}, "have to grow"),
    ({"baseline": "common", "step": 5.0}, "how time is cut"),
    ({"step": 5.0, "horizon": 50.0}, "algorithm.step would do nothing"),
    ({"trend": "km"}, "needs times that all parties share"),
    ({"grid": "events"}, "algorithm.grid would do nothing"),
    ({"reveal": "risk sets"}, "algorithm.reveal would do nothing"),
    ({"baseline": "common", "step": 1.0, "horizon": 60.0, "minimum_count": 1}, "hold a single event")])
def test_what_would_do_nothing_or_show_too_much_is_refused(changes, says, weeks):
    with pytest.raises(ConfigError, match=says):
        found(Cox(**{"formula": "Surv(week, died) ~ age", **changes}), weeks)


def test_faults_in_the_rows_are_refused_by_name(weeks):
    with pytest.raises(DataError, match="there is no column 'dead'"):
        found(Cox(formula="Surv(week, dead) ~ age"), weeks)
    with pytest.raises(DataError, match="events neither 0 nor 1"):
        found(Cox(formula="Surv(week, died) ~ age"), {**weeks, "died": weeks["died"] * 2})
    with pytest.raises(DataError, match="some times are negative"):
        found(Cox(formula="Surv(week, died) ~ age"), {**weeks, "week": weeks["week"] - 2})
    with pytest.raises(DataError, match="there is no event"):
        found(Cox(formula="Surv(week, died) ~ age"), {**weeks, "died": weeks["died"] * 0})
    with pytest.raises(DataError, match="column 'twice' is a linear combination"):
        found(Cox(formula="Surv(week, died) ~ age + twice"), {**weeks, "twice": 2 * weeks["age"]})
    with pytest.raises(DataError, match=r"the events are separated: .* 'gone'"):
        found(Cox(formula="Surv(week, died) ~ gone"), {**weeks, "gone": weeks["died"]})
    with pytest.raises(ConfigError, match="times of events cross in the open"):
        found(Cox(formula="Surv(week, died) ~ age", grid="events", **RISK_SETS), weeks, 4, SECURE)
    with pytest.raises(ConfigError, match="makes no groups"):
        found(KaplanMeier(formula="Surv(week, died) ~ age + arm", step=1, horizon=60), weeks)
    with pytest.raises(PartyError, match="write it as a factor"):
        found(KaplanMeier(formula="Surv(week, died) ~ age", step=1, horizon=60), weeks)


def test_missing_values_leave_rows_out_and_are_counted(weeks):
    table = {**weeks, "died": np.where(np.arange(400) < 8, np.nan, weeks["died"]),
             "age": np.where(np.arange(400) >= 395, np.nan, weeks["age"])}
    model = found(Cox(formula="Surv(week, died) ~ age"), table)[0]
    about = {row["quantity"]: row["value"] for row in model["tables"]["fit"]}
    assert (about["rows"], about["rows left out"]) == (387, 13)


def test_a_party_with_a_few_events_refuses_by_the_rule_and_without_a_number(weeks):
    table = {name: values[:60] for name, values in weeks.items()}
    table["died"] = np.where(np.arange(60) % 2, table["died"], (np.arange(60) < 5).astype(float))
    with pytest.raises(DataError, match=r"1 of 2 parties have too few rows for this model \(rule c\)"):
        found(Cox(formula="Surv(week, died) ~ age"), table, 2)


def test_a_party_holds_cells_against_its_own_rules_whatever_the_coordinator_asks(weeks):
    cells = {"minimum_rows": 1, "minimum_count": 5, "saturation": 1.0, "maximum_levels": 40}
    cox = Cox(formula="Surv(week, died) ~ age", step=1, horizon=60, **RISK_SETS)
    assert len(found(cox, weeks, 4, cells=cells)[0]["tables"]["baseline hazard"]) < 20
    from tequio.algorithms.statistics.cox_tasks import CoxSettings, scores_here, scores_layout

    sums = dealt(weeks, 4, cells=cells, what="cox")
    settings = CoxSettings(formula="week ~ age", event="died", weights="", drop_unknown=False, least=0,
                           between="next", columns=1, cells=3, ties="breslow", baseline="common")
    payload = {"levels": {}, "knots": {}, "kept": np.array([1]), "mean": np.zeros(1), "sd": np.ones(1),
               "coefficients": np.zeros(1), "edges": np.array([1.0, 1.5, 2.0]), "tied": np.zeros(0, dtype=np.int64)}
    with pytest.raises(PartyError, match="a cell of time holds too few rows here"):
        sums.ask(scores_here, scores_layout(settings), payload, settings)


def test_a_formula_with_quoted_names():
    schema = Schema.of_numbers(["days to", "is dead", "a"], Target("none"))
    assert read_outcome("Surv(`days to`, `is dead`) ~ a", schema) == ("`days to` ~ a", "is dead")
    assert read_outcome("Surv(log1p(a), a) ~ 1", schema) == ("log1p(a) ~ 1", "a")


def test_plain_arithmetic():
    alive, greenwood = survival(np.array([1, 0, 2]), np.array([4, 3, 2]))
    assert alive.tolist() == pytest.approx([0.75, 0.75, 0.0])
    assert greenwood[:2].tolist() == pytest.approx([1 / 12, 1 / 12])
    leaving = np.array([[[0, 1], [1, 0]], [[0, 1], [0, 1]]])  # one event each: a row of group 0 first
    difference, covariance = compared(leaving, "log-rank", 0.0, 0.0)
    assert difference.tolist() == pytest.approx([1 - 2 / 4 - 1 / 3, -(1 - 2 / 4 - 1 / 3)])
    assert covariance[0, 0] == pytest.approx(1 / 4 + 2 / 9)
