"""Tests from sums give what scipy and statsmodels give of the rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tequio.algorithms.statistics import hypotheses as h
from tequio.errors import DataError


def group(values, name="x"):
    values = np.asarray(values, float)
    return h.Group(name, len(values), values.mean(), np.square(values - values.mean()).sum())


def table(x, y):
    """Joint counts by the distinct values of both columns."""
    first, second = (np.unique(one, return_inverse=True)[1] for one in (x, y))
    counts = np.zeros((first.max() + 1, second.max() + 1), dtype=np.int64)
    np.add.at(counts, (first, second), 1)
    return counts


def products(*columns):
    matrix = np.array(columns, float)
    matrix = matrix - matrix.mean(axis=1, keepdims=True)
    return matrix @ matrix.T


def iris():
    from sklearn.datasets import load_iris

    loaded = load_iris()
    return loaded.data, loaded.target


def test_numbers_of_iris():
    data, species = iris()
    groups = [group(data[species == one, 1]) for one in range(3)]
    t, welch = h.t_test(*groups[:2], equal_variances=True), h.t_test(*groups[:2])
    assert [t.statistic, t.p_value, welch.df[0], welch.p_value, h.anova(groups).statistic] == pytest.approx(
        [9.4549758481, 1.845259945e-15, 94.6977736612, 2.484227896e-15, 49.1600400896], rel=2e-10)
    x, y = data[:, 0], data[:, 2]
    ranks = [stats.rankdata(one) for one in (x, y)]
    assert [h.correlation(150, products(x, y)).estimate, h.correlation(150, products(*ranks)).estimate,
            h.kendall(table(x, y)).estimate] == pytest.approx([0.8717537759, 0.8818981264, 0.7185159275], abs=6e-11)


def test_numbers_of_spector_and_fair():
    import statsmodels.api as sm

    rows = sm.datasets.spector.load_pandas().data
    found = h.fisher(table(rows.PSI, rows.GRADE))
    assert [found.p_value, found.estimate] == pytest.approx([0.0265032806, 6.6666666667], abs=6e-11)
    fair = sm.datasets.fair.load_pandas().data
    found = h.independence(table(fair.rate_marriage, fair.affairs > 0))
    assert found.statistic == pytest.approx(718.8381984755, abs=6e-11)
    assert found.df == (4.0,)


def test_numbers_of_breast_cancer():
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    found = h.mann_whitney(table(data.target, data.data[:, 0]))
    assert min(found.statistic, 212 * 357 - found.statistic) == 212 * 357 - 70955
    assert abs(float(found.notes[0].removeprefix("z = "))) == pytest.approx(17.4642818832, rel=1e-5)
    edges = np.linspace(data.data[:, 0].min(), data.data[:, 0].max(), 65)
    bins = np.clip(np.searchsorted(edges, data.data[:, 0], side="left"), 1, 64)
    binned = h.mann_whitney(table(data.target, bins), exact_bins=False)
    assert max(binned.statistic, 212 * 357 - binned.statistic) == 70944
    assert binned.error == 545
    assert abs(binned.statistic - found.statistic) <= binned.error


values = st.lists(st.integers(0, 6), min_size=4, max_size=25)


@settings(max_examples=60, deadline=None)
@given(values, values, values)
def test_scipy_gives_the_same(x, y, z):
    import statsmodels.stats.oneway as oneway

    groups = [group(one) for one in (x, y, z)]
    samples = [np.array(one, float) for one in (x, y, z)]
    spread = [one.std() > 0 for one in samples]
    if any(spread[:2]):
        for equal in (True, False):
            theirs, ours = stats.ttest_ind(x, y, equal_var=equal), h.t_test(*groups[:2], equal_variances=equal)
            assert [ours.statistic, ours.p_value] == pytest.approx([theirs.statistic, theirs.pvalue],
                                                                       rel=1e-8, abs=1e-11)
            limits = theirs.confidence_interval()
            assert [ours.low, ours.high] == pytest.approx([limits.low, limits.high], rel=1e-8, abs=1e-11)
    if any(spread):
        theirs, ours = stats.f_oneway(*samples), h.anova(groups)
        assert [ours.statistic, ours.p_value] == pytest.approx([theirs.statistic, theirs.pvalue], rel=1e-8, abs=1e-11)
    if all(spread):
        theirs, ours = oneway.anova_oneway(samples, use_var="unequal"), h.anova(groups, equal_variances=False)
        assert [ours.statistic, ours.p_value, ours.df[1]] == pytest.approx(
            [theirs.statistic, theirs.pvalue, theirs.df_denom], rel=1e-8, abs=1e-11)
    together = np.concatenate(samples)
    counts = table(np.repeat([0, 1, 2], [len(x), len(y), len(z)]), together)
    if together.std() > 0:
        theirs, ours = stats.kruskal(*samples), h.kruskal(counts)
        assert [ours.statistic, ours.p_value] == pytest.approx([theirs.statistic, theirs.pvalue], rel=1e-8, abs=1e-10)
    if np.concatenate(samples[:2]).std() > 0:
        theirs = stats.mannwhitneyu(x, y, use_continuity=False, method="asymptotic")
        ours = h.mann_whitney(counts[:2])
        assert [ours.statistic, ours.p_value] == pytest.approx([theirs.statistic, theirs.pvalue], rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=6, max_size=40))
def test_scipy_gives_the_same_of_pairs(pairs):
    x, y = np.array(pairs).T
    counts = table(x, y)
    if min(counts.shape) < 2:
        assert np.isnan(h.independence(counts).statistic)
        assert np.isnan(h.kendall(counts).statistic)
        return
    for name, kind in (("chi2", "pearson"), ("g", "log-likelihood")):
        theirs, ours = stats.chi2_contingency(counts, correction=False, lambda_=kind), h.independence(counts, name)
        assert [ours.statistic, ours.p_value, ours.df[0]] == pytest.approx(
            [theirs.statistic, theirs.pvalue, theirs.dof], rel=1e-9, abs=1e-11)
        theirs = stats.contingency.association(counts, method="cramer")
        assert ours.estimate == pytest.approx(theirs, rel=1e-9, abs=1e-9)
    if counts.shape == (2, 2):
        theirs = stats.chi2_contingency(counts, correction=True)
        assert h.independence(counts, yates=True).statistic == pytest.approx(theirs.statistic, abs=1e-11)
        assert h.fisher(counts).p_value == pytest.approx(stats.fisher_exact(counts).pvalue, rel=1e-9)
    theirs, ours = stats.kendalltau(x, y, method="asymptotic"), h.kendall(counts)
    assert [ours.estimate, ours.p_value] == pytest.approx([theirs.statistic, theirs.pvalue], rel=1e-9, abs=1e-12)
    theirs, ours = stats.spearmanr(x, y), h.correlation(len(x), products(stats.rankdata(x), stats.rankdata(y)))
    assert ours.estimate == pytest.approx(theirs.statistic, abs=1e-12)
    theirs, ours = stats.pearsonr(x, y), h.correlation(len(x), products(x, y))
    limits = theirs.confidence_interval()
    assert [ours.estimate, ours.p_value] == pytest.approx([theirs.statistic, theirs.pvalue], rel=1e-7, abs=1e-10)
    assert [ours.low, ours.high] == pytest.approx([limits.low, limits.high], rel=1e-7, abs=1e-9)


def test_partial_correlation_is_that_of_residuals():
    rng = np.random.default_rng(3)
    given = rng.normal(size=(80, 2))
    x, y = given @ [1, 2] + rng.normal(size=80), given @ [2, -1] + rng.normal(size=80)
    design = np.column_stack([np.ones(80), given])
    rest = [one - design @ np.linalg.lstsq(design, one, rcond=None)[0] for one in (x, y)]
    found = h.correlation(80, products(x, y, *given.T))
    assert found.estimate == pytest.approx(np.corrcoef(rest)[0, 1], rel=1e-12)
    assert found.df == (76.0,)
    with pytest.raises(DataError, match="linear combination"):
        h.correlation(80, products(x, y, given[:, 0], 2 * given[:, 0]))


def test_corrections_for_many_tests():
    p = dict(enumerate([.001, .008, .039, .041, .042, .06, .074, .205]))
    assert list(h.adjusted(p, "holm").values())[:3] == pytest.approx([.008, .056, .234])
    assert list(h.adjusted(p, "bh").values()) == pytest.approx(
        [.008, .032, .0672, .0672, .0672, .08, .0845714286, .205], abs=6e-11)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_statsmodels_corrects_alike(given):
    from statsmodels.stats.multitest import multipletests

    p = {str(index): value for index, value in enumerate(given)}
    for ours, theirs in (("bonferroni", "bonferroni"), ("holm", "holm"), ("hommel", "hommel"), ("bh", "fdr_bh"),
                         ("by", "fdr_by")):
        wanted = multipletests(given, method=theirs)[1]
        assert list(h.adjusted(p, ours).values()) == pytest.approx(wanted, rel=1e-9, abs=1e-300), ours


def test_a_group_without_rows_is_refused_and_one_without_variance_has_no_statistic():
    with pytest.raises(DataError, match="group 'x' has no rows at any party"):
        h.t_test(h.Group("x", 0, 0.0, 0.0), group([1, 2]))
    for found in (h.t_test(group([1, 1]), group([2, 2])), h.anova([group([1, 1]), group([2, 2])]),
                  h.anova([group([1, 1]), group([2, 3])], equal_variances=False),
                  h.correlation(3, products([1, 1, 1], [1, 2, 3]), ("a", "b"))):
        assert np.isnan(found.statistic)
        assert "no variance" in found.notes[0]
    assert np.isnan(h.adjusted({"a": float("nan"), "b": 0.01}, "holm")["a"])
