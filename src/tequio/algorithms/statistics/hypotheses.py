"""Tests of hypotheses from sums: what is computed once moments, counts or cross products of all rows are known.

A test on too little gives `nan` and a note that says why, and never a number that pooled rows would not give.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import atanh, inf, isfinite, nan, sqrt, tanh
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Floats = NDArray[np.float64]
Correction = Literal["none", "bonferroni", "holm", "hommel", "bh", "by"]


@dataclass(frozen=True)
class Tested:
    """A statistic with its degrees of freedom and p-value, and, where a test has one, an estimate with its interval.

    `df` is empty where the test has none, such as Fisher's. `error` bounds how far the statistic may be off.
    """

    test: str
    statistic: float
    p_value: float
    df: tuple[float, ...] = ()
    estimate: float = nan
    low: float = nan
    high: float = nan
    error: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Rows of one group: how many, their mean, and the sum of squares around it."""

    name: str
    rows: int
    mean: float
    squares: float

    @property
    def variance(self) -> float:
        """The sample variance; `nan` of one row."""
        return self.squares / (self.rows - 1) if self.rows > 1 else nan


def require_rows(names: Sequence[str], rows: Sequence[int]) -> None:
    """Refuse a group that no party has rows of."""
    for name, number in zip(names, rows, strict=True):
        if not number:
            raise DataError(f"group '{name}' has no rows at any party", remedy="leave the group out, or merge it with "
                                                                             "another")


def t_test(one: Group, other: Group, *, equal_variances: bool = False, level: float = 0.95) -> Tested:
    """Student's test of two means, or Welch's (1947) where variances may differ; estimates the difference."""
    from scipy.stats import t

    require_rows((one.name, other.name), (one.rows, other.rows))
    name = "t" if equal_variances else "welch"
    difference, df = one.mean - other.mean, float(one.rows + other.rows - 2)
    if equal_variances:
        error = sqrt((one.squares + other.squares) / df * (1 / one.rows + 1 / other.rows)) if df > 0 else nan
    else:
        parts = [group.variance / group.rows for group in (one, other)]
        error = sqrt(sum(parts))
        spread = sum(part ** 2 / max(group.rows - 1, 1) for part, group in zip(parts, (one, other), strict=True))
        df = error ** 4 / spread if spread > 0 else nan
    if not error > 0:
        return Tested(name, nan, nan, (df,), difference, notes=("the groups have no variance",))
    statistic, half = difference / error, float(t.ppf((1 + level) / 2, df)) * error
    return Tested(name, statistic, float(2 * t.sf(abs(statistic), df)), (df,), difference, difference - half,
                  difference + half)


def anova(groups: Sequence[Group], *, equal_variances: bool = True) -> Tested:
    """One-way analysis of variance, or Welch's (1951) where variances may differ."""
    from scipy.stats import f

    require_rows([group.name for group in groups], [group.rows for group in groups])
    rows = np.array([group.rows for group in groups], dtype=np.float64)
    means, k = np.array([group.mean for group in groups]), len(groups)
    if equal_variances:
        name, df = "anova", (float(k - 1), float(rows.sum() - k))
        within = sum(group.squares for group in groups) / df[1] if df[1] > 0 else nan
        top = float(rows @ np.square(means - rows @ means / rows.sum())) / df[0]
        bottom = within
    else:
        name = "welch-anova"
        variances = np.array([group.variance for group in groups])
        if not (variances > 0).all():
            return Tested(name, nan, nan, (float(k - 1), nan), notes=("a group has no variance",))
        weights = rows / variances
        total = weights.sum()
        spread = float((np.square(1 - weights / total) / (rows - 1)).sum())
        df = float(k - 1), (k * k - 1) / (3 * spread)
        top = float(weights @ np.square(means - weights @ means / total)) / df[0]
        bottom = 1 + 2 * (k - 2) / (k * k - 1) * spread
    if not bottom > 0:
        return Tested(name, nan, nan, df, notes=("the groups have no variance",))
    return Tested(name, top / bottom, float(f.sf(top / bottom, *df)), df)


def independence(counts: NDArray[np.integer], statistic: Literal["chi2", "g"] = "chi2", *,
                 yates: bool = False) -> Tested:
    """Pearson's chi-square test of a table of counts, or the likelihood ratio G; estimates Cramer's V."""
    from scipy.special import xlogy
    from scipy.stats import chi2

    table = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0].astype(np.float64)
    if min(table.shape) < 2:
        return Tested(statistic, nan, nan, (0.0,), notes=("all rows are in one line of the table",))
    n = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    df = float((table.shape[0] - 1) * (table.shape[1] - 1))
    pearson = float((np.square(table - expected) / expected).sum())
    observed = table
    if yates and df == 1:
        observed = table + np.sign(expected - table) * np.minimum(0.5, np.abs(expected - table))
    value = float((np.square(observed - expected) / expected).sum()) if statistic == "chi2" else \
        float(2 * (xlogy(observed, observed) - xlogy(observed, expected)).sum())
    few = int((expected < 5).sum())
    notes = (f"{few} of {table.size} expected counts are below 5",) if few else ()
    return Tested(statistic, value, float(chi2.sf(value, df)), (df,), sqrt(pearson / (n * (min(table.shape) - 1))),
                  notes=notes)


def fisher(counts: NDArray[np.integer]) -> Tested:
    """Fisher's exact test of a 2 x 2 table: all tables with the same margins that are no more likely than this one.

    Estimates the odds ratio of the sample.
    """
    from scipy.stats import hypergeom

    if counts.shape != (2, 2):
        raise DataError(f"Fisher's test is of 2 x 2 tables, and this one is {counts.shape[0]} x {counts.shape[1]}",
                        remedy="set algorithm.test = 'chi2'")
    (a, b), (c, d) = counts.tolist()
    spread = hypergeom(a + b + c + d, a + b, a + c)
    cells = np.arange(max(0, a - d), min(a + b, a + c) + 1)
    chances = spread.pmf(cells)
    odds = a * d / (b * c) if b * c else inf if a * d else nan
    p_value = float(chances[chances <= spread.pmf(a) * (1 + 1e-7)].sum())
    return Tested("fisher", odds, min(p_value, 1.0), (), odds)


def middle_ranks(counts: NDArray[np.integer]) -> Floats:
    """The rank that all rows of a bin share, from the rows in each."""
    up_to = np.cumsum(counts)
    return np.asarray((up_to - counts + 1 + up_to) / 2, dtype=np.float64)


def mann_whitney(counts: NDArray[np.integer], *, exact_bins: bool = True) -> Tested:
    """The rank test of two groups from counts by group and bin. Normal approximation with the variance corrected for
    ties and no correction for continuity; the statistic is U of the first group, the estimate the chance that its
    row is the larger one."""
    from scipy.stats import norm

    first, second = (int(one) for one in counts.sum(axis=1))
    require_rows(("0", "1"), (first, second))
    together, n = counts.sum(axis=0), first + second
    u = float(counts[0] @ middle_ranks(together)) - first * (first + 1) / 2
    variance = first * second / 12 * (n + 1 - _ties(together) / (n * (n - 1)))
    tied = float(counts[0].astype(np.float64) @ counts[1])
    error = 0.0 if exact_bins else tied / 2
    if not variance > 0:
        return Tested("mann-whitney", u, nan, error=error, notes=("all values are equal",))
    z = (u - first * second / 2) / sqrt(variance)
    return Tested("mann-whitney", u, float(2 * norm.sf(abs(z))), (), u / (first * second), error=error,
                  notes=(f"z = {z:.6g}",))


def kruskal(counts: NDArray[np.integer], *, exact_bins: bool = True) -> Tested:
    """The rank test of Kruskal and Wallis (1952) from counts by group and bin, corrected for ties."""
    from scipy.stats import chi2

    rows = counts.sum(axis=1).astype(np.float64)
    require_rows([str(index) for index in range(len(rows))], rows.astype(int).tolist())
    together = counts.sum(axis=0)
    n, ranks = rows.sum(), counts @ middle_ranks(together)
    correction = 1 - _ties(together) / (n ** 3 - n)
    df = float(len(rows) - 1)
    if not correction > 0:
        return Tested("kruskal", nan, nan, (df,), notes=("all values are equal",))
    value = (12 / (n * (n + 1)) * float((np.square(ranks) / rows).sum()) - 3 * (n + 1)) / correction
    notes = () if exact_bins else ("values in one bin count as tied",)
    return Tested("kruskal", value, float(chi2.sf(value, df)), (df,), notes=notes)


def _ties(counts: NDArray[np.integer]) -> float:
    sizes = counts.astype(np.float64)
    return float((sizes ** 3 - sizes).sum())


def correlation(rows: int, products: Floats, names: Sequence[str] = (), *, name: str = "pearson",
                level: float = 0.95) -> Tested:
    """Pearson's correlation of the first two columns from centred cross products, given all further ones (partial).

    Of mid-ranks it is Spearman's. The test uses t, the interval Fisher's z.
    """
    from scipy.stats import norm, t

    scale = np.sqrt(np.diag(products))
    if not (scale > 0).all():
        constant = (*names, *map(str, range(len(scale))))[int(np.argmin(scale))]
        return Tested(name, nan, nan, (nan,), notes=(f"column '{constant}' has no variance",))
    matrix, given = products / np.outer(scale, scale), len(products) - 2
    if given:
        rest = matrix[2:, 2:]
        if np.linalg.matrix_rank(rest) < given:
            raise DataError("one of the columns that the correlation is adjusted for is a linear combination of the "
                            "others", remedy="leave it out of algorithm.given")
        matrix = matrix[:2, :2] - matrix[:2, 2:] @ np.linalg.solve(rest, matrix[2:, :2])
    r = float(np.clip(matrix[0, 1] / sqrt(matrix[0, 0] * matrix[1, 1]), -1, 1))
    df, spread = float(rows - 2 - given), rows - 3 - given
    if df <= 0:
        return Tested(name, r, nan, (df,), r, notes=("there are too few rows for a test",))
    statistic = r * sqrt(df / ((1 - r) * (1 + r))) if abs(r) < 1 else inf
    half = float(norm.ppf((1 + level) / 2)) / sqrt(spread) if spread > 0 else inf
    low, high = (tanh(atanh(r) - half), tanh(atanh(r) + half)) if abs(r) < 1 else (r, r)
    return Tested(name, r, float(2 * t.sf(abs(statistic), df)), (df,), r, low, high)


def kendall(counts: NDArray[np.integer]) -> Tested:
    """Kendall's tau-b from joint counts of two columns in bins; the p-value is that of the normal approximation."""
    from scipy.stats import norm

    table = counts.astype(np.float64)
    n, across, down = table.sum(), table.sum(axis=1), table.sum(axis=0)
    later = np.zeros(np.add(table.shape, 1))
    later[:-1, :-1] = table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    rising = float((table * later[1:, 1:]).sum())
    pairs = n * (n - 1) / 2
    tied_x, tied_y, both = (float((sizes * (sizes - 1) / 2).sum()) for sizes in (across, down, table))
    falling = pairs - tied_x - tied_y + both - rising
    if min(pairs - tied_x, pairs - tied_y) <= 0:
        return Tested("kendall", nan, nan, notes=("a column has no variance",))
    difference = rising - falling
    tau = difference / sqrt((pairs - tied_x) * (pairs - tied_y))
    sums = [(float((s * (s - 1) * (2 * s + 5)).sum()), float((s * (s - 1)).sum()),
             float((s * (s - 1) * (s - 2)).sum())) for s in (across, down)]
    (of_x, two_x, three_x), (of_y, two_y, three_y) = sums
    variance = (n * (n - 1) * (2 * n + 5) - of_x - of_y) / 18 + two_x * two_y / (2 * n * (n - 1)) + (
        three_x * three_y / (9 * n * (n - 1) * (n - 2)) if n > 2 else 0.0)
    return Tested("kendall", tau, float(2 * norm.sf(abs(difference) / sqrt(variance))), (), tau)


def adjusted(p_values: Mapping[str, float], by: Correction) -> dict[str, float]:
    """The p-values of one family of tests, adjusted: Bonferroni, Holm, Hommel, Benjamini-Hochberg or -Yekutieli.

    Tests without a p-value stay as they are and count for nothing.
    """
    known = {name: p for name, p in p_values.items() if isfinite(p)}
    order = sorted(known, key=known.__getitem__)
    p, m = np.array([known[name] for name in order]), len(order)
    ranks = np.arange(1, m + 1)
    if by == "bonferroni":
        found = p * m
    elif by == "holm":
        found = np.maximum.accumulate(p * (m - ranks + 1)) if m else p
    elif by == "hommel":
        found = _hommel(p)
    elif by in ("bh", "by"):
        factor = float((1 / ranks).sum()) if by == "by" else 1.0
        found = np.minimum.accumulate((p * m * factor / ranks)[::-1])[::-1]
    else:
        found = p
    return dict(p_values) | dict(zip(order, np.minimum(found, 1.0).tolist(), strict=True))


def _hommel(p: Floats) -> Floats:
    """Hommel (1988), by the algorithm of Wright (1992): p rises."""
    m = len(p)
    found = np.full(m, (m * p / np.arange(1, m + 1)).min(initial=1.0))
    for size in range(m - 1, 1, -1):
        split = m - size + 1
        later = size * p[split:] / np.arange(2, size + 1)
        least = float(later.min(initial=1.0))
        found[:split] = np.maximum(found[:split], np.minimum(size * p[:split], least))
        found[split:] = np.maximum(found[split:], found[split - 1])
    return np.asarray(np.maximum(found, p))
