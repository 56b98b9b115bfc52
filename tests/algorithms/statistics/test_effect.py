"""Treatment effects against statsmodels and plain numpy on the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from pooled import ONE_SHOT, SECURE, Backwards, dealt

from tequio.algorithms.statistics.effect import Effect
from tequio.errors import ConfigError, DataError, PartyError

sm = pytest.importorskip("statsmodels.api")
effects = pytest.importorskip("statsmodels.treatment.treatment_effects")

FORMULA = "score ~ age + dose"


@pytest.fixture(scope="module")
def trial():
    """Older rows are treated more often, and score less; the treatment adds 2."""
    rng, number = np.random.default_rng(8), 500
    age, dose = rng.normal(0, 1, number), rng.exponential(1, number)
    drug = (rng.random(number) < 1 / (1 + np.exp(-0.8 * age + 0.3 * dose))).astype(float)
    score = 2 * drug - age + 0.5 * dose + rng.normal(0, 1, number)
    return {"age": age, "dose": dose, "drug": drug, "score": score, "well": (score > 1).astype(float),
            "fold": (np.arange(number) // 7 % 3).astype(float)}


def found(table, parties=4, stages=(), cells=None, engine=None, formula=FORMULA, **parameters):
    effect = Effect(**{"formula": formula, "treatment": "drug", "bounds": (0.0, 1.0), **parameters})
    sums = dealt(table, parties, stages, what="effect", cells=cells, engine=engine)
    effect.start(sums.federation)
    return effect.found(sums, sums.federation)


def columns(table):
    return np.column_stack([np.ones(len(table["age"])), table["age"], table["dose"]])


def test_weighting_equals_statsmodels_standard_error_and_all(trial):
    chosen = sm.Logit(trial["drug"], columns(trial)).fit(disp=0, method="newton", tol=1e-14)
    theirs = effects.TreatmentEffect(sm.OLS(trial["score"], columns(trial)), trial["drug"], results_select=chosen)
    result = theirs.ipw(return_results=True)
    model = found(trial, method="ipw")
    assert model["effect"] == pytest.approx(float(np.ravel(result.effect)[0]), abs=1e-9)
    assert model["standard_error"] == pytest.approx(result.results_gmm.bse[0], rel=1e-5)


def nuisances(table, train, outcome):
    """Propensities and both outcomes of all rows, by models fitted on some."""
    x, drug = columns(table), table["drug"]
    e = sm.Logit(drug[train], x[train]).fit(disp=0, method="newton", tol=1e-14).predict(x)
    model = sm.OLS if outcome == "score" else sm.Logit
    fit = {} if outcome == "score" else {"disp": 0, "method": "newton", "tol": 1e-14}
    both = [model(table[outcome][train & (drug == arm)], x[train & (drug == arm)]).fit(**fit).predict(x)
            for arm in (1, 0)]
    return e, both[0], both[1]


@pytest.mark.parametrize(("outcome", "family"), [("score", "gaussian"), ("well", "binomial")])
@pytest.mark.parametrize("folds", [1, 3])
def test_augmented_weighting_equals_pooled_rows(outcome, family, folds, trial):
    drug, y, number = trial["drug"], trial[outcome], len(trial["drug"])
    e, q1, q0 = np.zeros((3, number))
    for fold in range(folds):
        own = trial["fold"] == fold if folds > 1 else np.full(number, True)
        answers = nuisances(trial, ~own if folds > 1 else own, outcome)
        e[own], q1[own], q0[own] = (answer[own] for answer in answers)
    phi = q1 - q0 + drug * (y - q1) / e - (1 - drug) * (y - q0) / (1 - e)
    model = found(trial, formula=f"{outcome} ~ age + dose", family=family, folds=folds,
                  fold_column="fold" if folds > 1 else "")
    assert model["effect"] == pytest.approx(phi.mean(), abs=1e-9)
    assert model["standard_error"] == pytest.approx(phi.std() / number ** 0.5, rel=1e-8)


def test_strata_are_differences_among_rows_of_similar_propensity(trial):
    model = found(trial, method="strata", strata=4)
    e, drug, y = nuisances(trial, np.full(500, True), "score")[0], trial["drug"] == 1, trial["score"]
    ends, below = [], np.cumsum(np.bincount(np.minimum((e * 20).astype(int), 19), minlength=20))
    ends = sorted({(int(np.searchsorted(below, 500 * place / 4)) + 1) / 20 for place in (1, 2, 3)})
    difference = variance = 0.0
    for stratum in range(len(ends) + 1):
        some = np.searchsorted(ends, e, side="right") == stratum
        arms = [y[some & drug], y[some & ~drug]]
        difference += some.mean() * (arms[0].mean() - arms[1].mean())
        variance += some.mean() ** 2 * sum(arm.var(ddof=1) / len(arm) for arm in arms)
    assert model["effect"] == pytest.approx(difference, abs=1e-9)
    assert model["standard_error"] == pytest.approx(variance ** 0.5, rel=1e-9)


@pytest.mark.parametrize("method", [{"method": "ipw"}, {"folds": 3}, {"method": "strata"}])
def test_every_carrier_gives_the_same_bits(method, trial):
    plain = found(trial, 5, **method)
    for how in ({"engine": Backwards()}, {"stages": SECURE}, {"stages": ONE_SHOT}):
        assert found(trial, 5, **how, **method)["tables"] == plain["tables"]


def test_balance_and_positivity_are_those_of_pooled_rows(trial):
    model = found(trial, method="ipw")
    e, drug = nuisances(trial, np.full(500, True), "score")[0], trial["drug"] == 1
    w = np.where(drug, 1 / e, 1 / (1 - e))
    row = next(row for row in model["tables"]["balance"] if row["term"] == "age")
    spread = ((trial["age"][drug].var(ddof=1) + trial["age"][~drug].var(ddof=1)) / 2) ** 0.5
    plain = trial["age"][drug].mean() - trial["age"][~drug].mean()
    weighted = np.average(trial["age"][drug], weights=w[drug]) - np.average(trial["age"][~drug], weights=w[~drug])
    assert (row["before"], row["after"]) == (pytest.approx(plain / spread), pytest.approx(weighted / spread))
    cells = {round(20 * row["propensity from"]): (row["treated"], row["not treated"])
             for row in model["tables"]["positivity"]}
    for cell, counts in cells.items():
        some = (e * 20).astype(int) == cell
        assert counts == ((some & drug).sum(), (some & ~drug).sum())
    fit = {row["quantity"]: row["value"] for row in model["tables"]["fit"]}
    assert fit["effective rows treated"] == pytest.approx(w[drug].sum() ** 2 / (w[drug] ** 2).sum())


def test_cut_propensities_are_counted(trial):
    model = found(trial, method="ipw", bounds=(0.3, 0.7))
    e = nuisances(trial, np.full(500, True), "score")[0]
    assert f"{((e < 0.3) | (e > 0.7)).sum()} propensities were cut to 0.3 or 0.7" in model["notes"]


def test_small_cells_of_propensities_are_not_sent(trial):
    cells = {"minimum_rows": 1, "minimum_count": 5, "saturation": 1.0, "maximum_levels": 40}
    seen, whole = (found(trial, 4, cells=some)["tables"]["positivity"] for some in (cells, None))
    assert sum(row["treated"] for row in seen) < sum(row["treated"] for row in whole) == trial["drug"].sum()
    assert all(row["treated"] == 0 or row["treated"] >= 5 for row in seen)


@pytest.mark.parametrize(("changes", "says"), [
    ({"treatment": "age"}, "the treatment 'age' stands in the formula"),
    ({"method": "ipw", "folds": 2}, "'ipw' has no model of the outcome"),
    ({"fold_column": "fold"}, "there is one fold"),
    ({"bounds": (0.6, 0.4)}, "leave no propensity between them")])
def test_what_would_do_nothing_is_refused(changes, says, trial):
    with pytest.raises(ConfigError, match=says):
        found(trial, **changes)


def test_faults_in_the_rows_are_refused_by_name(trial):
    with pytest.raises(DataError, match="there is no column 'pill'"):
        found(trial, treatment="pill")
    with pytest.raises(DataError, match=r"no party has a row in arm 0|all outcomes are 1"):
        found({**trial, "drug": np.ones(500)})
    with pytest.raises(DataError, match=r"other values than 0 and 1|outcome has values"):
        found({**trial, "drug": trial["drug"] * 2})
    # Nobody old goes without the drug.
    only = np.where(trial["age"] > 0.6, 1.0, trial["drug"])
    with pytest.raises(DataError, match=r"nobody with a propensity from [\d.]+ to [\d.]+ is in arm 0"):
        found({**trial, "drug": only}, method="strata", strata=8)
    few = {"minimum_rows": 1, "minimum_count": 12, "saturation": 1.0, "maximum_levels": 40}
    with pytest.raises(PartyError, match="a stratum holds too few rows"):
        found(trial, 4, cells=few, method="strata", strata=8)


def test_rows_without_a_value_are_left_out(trial):
    holes = {**trial, "drug": np.where(np.arange(500) < 5, np.nan, trial["drug"]),
             "score": np.where(np.arange(500) > 492, np.nan, trial["score"])}
    some = {name: values[5:493] for name, values in trial.items()}
    held = [np.arange(488)[(np.arange(5, 493) % 4) == party] for party in range(4)]
    assert found(holes)["effect"] == pytest.approx(found(some, held)["effect"], abs=1e-9)
    fit = {row["quantity"]: row["value"] for row in found(holes)["tables"]["fit"]}
    assert (fit["rows"], fit["rows left out"]) == (488, 12)
