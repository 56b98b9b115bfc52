"""Paths equal scikit-learn's, at every lambda and in the errors of every fold."""

from __future__ import annotations

import numpy as np
import pytest
from pooled import SECURE, dealt
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

from tequio.algorithms.statistics.penalised import PenalisedGlm, descended
from tequio.errors import ConfigError, DataError


def found(table, parties, stages=(), **given):
    sums = dealt(table, parties, stages)
    return PenalisedGlm(**given).found(sums, sums.federation)


def diabetes():
    data = load_diabetes(scaled=False)
    rows = np.arange(len(data.target))
    return {"y": data.target, **{f"x{place}": data.data[:, place] for place in range(10)}, "fold": rows // 5 % 5}


ALL = "y ~ " + " + ".join(f"x{place}" for place in range(10))


def test_the_lasso_path_of_diabetes():
    model = found(diabetes(), 5, formula=ALL, fold_column="fold")
    assert model["lambdas"][0] == pytest.approx(45.1600300205, rel=1e-10)
    assert (model["chosen"], model["lambda"]) == (25, pytest.approx(1.3308894336, rel=1e-10))
    assert model["tables"]["path"][25]["error"] == pytest.approx(3002.23286943, rel=1e-10)
    np.testing.assert_allclose(model["standardised"][1:], [
        0, -8.739898746517, 24.762456314721, 13.787499364338, -4.13678343512, 0, -10.434424632946, 0, 23.999707712743,
        2.273504024511], atol=1e-9)
    assert model["tables"]["path"][25]["columns"] == 7
    assert len(model["tables"]["path"]) == 50


def test_a_gaussian_path_takes_three_asks():
    """For totals, for spreads, and for all folds; each finds its range first."""
    sums = dealt(diabetes(), 5)
    PenalisedGlm(formula=ALL, fold_column="fold").found(sums, sums.federation)
    assert sums.asks == 6


def test_hidden_paths_have_the_same_bits():
    plain, hidden = (found(diabetes(), 5, stages, formula=ALL, fold_column="fold") for stages in ((), SECURE))
    for name in ("path", "errors", "lambdas"):
        assert np.array_equal(plain[name], hidden[name])


@pytest.mark.parametrize("mix", [1.0, 0.5, 0.0])
def test_every_point_of_a_path_equals_scikit_learns(mix):
    data = diabetes()
    x = np.column_stack([data[f"x{place}"] for place in range(10)])
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    lambdas = (10.0, 1.0, 0.1)
    model = found(data, 3, formula=ALL, mix=mix, penalties=lambdas, fold_column="fold")
    for place, penalty in enumerate(lambdas):
        if mix:
            pooled = ElasticNet(penalty, l1_ratio=mix, tol=1e-14, max_iter=10**6).fit(z, data["y"])
            wanted = np.append(pooled.intercept_, pooled.coef_)
        else:
            ridge = np.linalg.solve(z.T @ z / len(z) + penalty * np.eye(10), z.T @ data["y"] / len(z))
            wanted = np.append(data["y"].mean(), ridge)
        np.testing.assert_allclose(model["path"][place], wanted, atol=1e-6)
        for fold in range(5):
            train = data["fold"] != fold
            if mix == 1.0:
                part = Lasso(penalty, tol=1e-14, max_iter=10**6).fit(z[train], data["y"][train])
                error = np.square(data["y"][~train] - part.predict(z[~train])).mean()
                assert model["errors"][place, fold] == pytest.approx(error, rel=1e-8)


def cancer():
    data = load_breast_cancer()
    return {"y": data.target.astype(float), **{f"x{place}": data.data[:, place] for place in range(10)}}


def test_ridge_logistic_regression():
    rows = 569
    model = found(cancer(), 4, formula=ALL, family="binomial", mix=0.0, penalties=(1 / rows,), folds=2)
    np.testing.assert_allclose(model["standardised"], [
        0.594264467349, -0.997605938302, -1.399154015858, -0.912434873474, -1.297513392812, -0.97454251637,
        0.293499269169, -1.057989005705, -1.587090165209, -0.427995801119, 0.40211555116], atol=1e-9)


def test_lasso_logistic_regression():
    data = cancer()
    x = np.column_stack([data[f"x{place}"] for place in range(10)])
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    model = found(data, 4, formula=ALL, family="binomial", penalties=(0.05, 0.01), folds=2)
    for place, penalty in enumerate((0.05, 0.01)):
        pooled = LogisticRegression(C=1 / penalty / 569, l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=10**5)
        pooled.fit(z, data["y"])
        np.testing.assert_allclose(model["path"][place][1:], pooled.coef_[0], atol=1e-4)
    assert (model["path"][0] == 0).sum() > (model["path"][1] == 0).sum()


def test_the_largest_lambda_leaves_nothing():
    model = found(cancer(), 4, formula=ALL, family="binomial", steps=4, folds=2)
    assert model["tables"]["path"][0]["columns"] == 0
    assert model["tables"]["path"][1]["columns"] > 0


def test_within_one_standard_error_there_is_a_larger_lambda():
    best, careful = (found(diabetes(), 5, formula=ALL, fold_column="fold", choice=choice) for choice in ("best", "1se"))
    assert careful["chosen"] < best["chosen"]
    errors = [row["error"] for row in best["tables"]["path"]]
    own, rows = best["errors"][25], np.bincount(diabetes()["fold"])
    limit = errors[25] + (rows @ np.square(own - errors[25]) / 442 / 4) ** 0.5
    assert errors[careful["chosen"]] <= limit < errors[careful["chosen"] - 1]


def test_a_party_with_small_folds_puts_all_rows_in_one():
    rules = {"minimum_rows": 20, "minimum_count": 5, "saturation": 0.33}
    rows = np.arange(442)
    held = [rows[:40], rows[40:240], rows[240:]]
    sums = dealt(diabetes(), held, cells=rules)
    path = PenalisedGlm(formula="y ~ x2 + x8", folds=5).found(sums, sums.federation)
    assert path["errors"].shape == (50, 5)
    alone = dealt({name: values[:80] for name, values in diabetes().items()}, [rows[:40], rows[40:80]], cells=rules)
    with pytest.raises(DataError, match="a fold has no rows"):
        PenalisedGlm(formula="y ~ x2", folds=5).found(alone, alone.federation)


def test_descent_finds_the_minimum_of_a_quadratic():
    draw = np.random.default_rng(0)
    half = draw.standard_normal((6, 6))
    h, u, at = half @ half.T + np.eye(6), draw.standard_normal(6), draw.standard_normal(6)
    nothing = np.zeros(6)
    np.testing.assert_allclose(descended(h, u, at, nothing, nothing, nothing), at + np.linalg.solve(h, u), rtol=1e-9)


def test_what_has_no_path_is_refused():
    for given, match in (({"formula": "y ~ x2 - 1"}, "needs a constant"), ({"formula": "y ~ 1"}, "a column beside it")):
        with pytest.raises(ConfigError, match=match):
            found(diabetes(), 3, **given)
    sums = dealt(diabetes(), 3)
    with pytest.raises(ConfigError, match="has no path: alpha"):
        PenalisedGlm(formula=ALL, family="negative-binomial").start(sums.federation)
    with pytest.raises(DataError, match="there is no column 'folds'"):
        PenalisedGlm(formula=ALL, fold_column="folds").start(sums.federation)
