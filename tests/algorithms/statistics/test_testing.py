"""`test` over parties: the acceptance numbers, in the open and hidden, and what is refused."""

import numpy as np
import pytest
from pooled import SECURE, dealt

from tequio.algorithms.statistics.testing import Asked, HypothesisTests
from tequio.errors import ConfigError, DataError


def outcome(table, parties, *tests, **more):
    stages, cells = more.pop("stages", ()), more.pop("cells", None)
    sums = dealt(table, parties, stages, cells=cells, what="test")
    algorithm = HypothesisTests(tests=tests, stages=tuple(stages), **more)
    return algorithm.round(sums.federation, algorithm.start(sums.federation)).model


def iris():
    from sklearn.datasets import load_iris

    data = load_iris()
    names = ("sepal_length", "sepal_width", "petal_length", "petal_width")
    return {**dict(zip(names, data.data.T, strict=True)), "species": data.target_names[data.target]}


SCALES = {"sepal_length": (4.0, 8.0, 0.1), "petal_length": (1.0, 7.0, 0.1)}


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_numbers_of_iris(parties):
    table = iris()
    pair = {name: values[:100] for name, values in table.items()}
    t, welch = outcome(pair, parties, "t(sepal_width by species)", "welch(sepal_width by species)")["estimates"]
    assert [t["statistic"], t["p.value"], welch["p.value"]] == pytest.approx(
        [9.4549758481, 1.845259945e-15, 2.484227896e-15], rel=1e-9)
    assert welch["parameter"] == "94.6978"
    found = outcome(table, parties, "anova(sepal_width by species)", "pearson(sepal_length, petal_length)",
                   "spearman(sepal_length, petal_length)", "kendall(sepal_length, petal_length)", scales=SCALES)
    assert [row["statistic"] for row in found["estimates"]] == pytest.approx(
        [49.1600400896, 0.8717537759, 0.8818981264, 0.7185159275], rel=1e-9)
    assert found["notes"] == []


def test_numbers_of_breast_cancer_and_spector():
    import statsmodels.api as sm
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    values = data.data[:, 0]
    step = (values.max() - values.min()) / 64
    table = {"radius": values, "target": data.target_names[data.target]}
    row = outcome(table, 5, "mann-whitney(radius by target)",
                 scales={"radius": (values.min(), values.max(), step)})["estimates"][0]
    assert abs(max(row["statistic"], 212 * 357 - row["statistic"]) - 70955) <= row["error"] < 700
    rows = sm.datasets.spector.load_pandas().data
    text = {name: np.where(rows[name] > 0, "yes", "no") for name in ("PSI", "GRADE")}
    row = outcome(text, 4, "fisher(PSI, GRADE)")["estimates"][0]
    assert [row["p.value"], row["estimate"]] == pytest.approx([0.0265032806, 6.6666666667], rel=1e-8)


def test_a_hidden_sum_gives_the_same_bits():
    tests = ("welch-anova(sepal_width by species)", "kruskal(petal_length by species)",
             "pearson(sepal_length, petal_length given petal_width)", "spearman(sepal_length, petal_length)")
    one, other = (outcome(iris(), 4, *tests, stages=stages, scales=SCALES, correction="holm")
                  for stages in ((), SECURE))
    assert [one["estimates"], one["notes"]] == [other["estimates"], other["notes"]]
    assert all(row["p.adjusted"] >= row["p.value"] for row in one["estimates"])


def test_missing_values_leave_rows_out_and_bins_say_what_they_cost():
    from scipy import stats

    rng = np.random.default_rng(2)
    x, y = rng.normal(50, 10, 300), rng.normal(50, 10, 300)
    y += x
    x[rng.random(300) < 0.1] = np.nan
    there = np.isfinite(x)
    scales = {"x": (0, 100, 1), "y": (0, 200, 1)}
    found = outcome({"x": x, "y": y}, 3, "pearson(x, y)", "spearman(x, y)", scales=scales)
    pearson, spearman = found["estimates"]
    assert pearson["estimate"] == pytest.approx(stats.pearsonr(x[there], y[there]).statistic, rel=1e-10)
    assert spearman["estimate"] == pytest.approx(stats.spearmanr(x[there], y[there]).statistic, abs=2e-3)
    assert found["notes"] == ["spearman(x, y): values in one bin count as tied"]


def test_small_cells_refuse_the_test_and_name_nobody():
    table = {"a": np.repeat(["x", "y"], 40), "b": np.array((["u"] * 38 + ["v", "u"]) + ["v"] * 40)}
    with pytest.raises(DataError, match=r"1 of 2 parties have too few rows for this test \(rule c\)"):
        outcome(table, [range(0, 80, 2), range(1, 80, 2)], "chi2(a, b)", cells={"minimum_count": 2})
    with pytest.raises(DataError, match="group 'v' has no rows at any party"):
        outcome({"a": np.arange(4.0), "b": np.array(["u", "u", "u", "v"])}, [range(3)], "welch(a by b)")


@pytest.mark.parametrize(("text", "said"), [
    ("welch(sepal_width)", "other columns than"), ("welch(sepal_width, species)", "other columns than"),
    ("wlch(sepal_width by species)", "no test 'wlch'"), ("mean", "is no test"), ("pearson(a, a)", "twice"),
    ("welch(sepal_width by species)", "write welch-anova"),
    ("fisher(species, petal_width)", "numbers and no categories"),
    ("pearson(species, petal_width)", "categories and no numbers"), ("chi2(specie, species)", "no column 'specie'"),
    ("kruskal(petal_width by species)", "has no declared steps")])
def test_what_does_not_fit_is_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        outcome(iris(), 2, text)


def test_without_tests_every_column_is_held_against_the_target():
    assert Asked.read('anova("my column" by "the groups")').columns == ("my column", "the groups")
