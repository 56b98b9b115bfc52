"""Statistics of methods on the same rows: ranks and tests of many, how two differ, and how probable a difference is.

Demšar: Statistical comparisons of classifiers over multiple data sets, JMLR 2006.
Benavoli, Corani, Demšar, Zaffalon: Time for a change: a tutorial for comparing multiple classifiers through Bayesian
analysis, JMLR 2017.

A matrix has one row a problem (a dataset, or a dataset and a seed) and one column a method. Seeds of one dataset are
not independent problems: where there are several, look at the tests over dataset means as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods (1 is best), and whether they differ by more than chance.

    `statistic` and `p` are Friedman's, without correction for ties. `critical_difference` is Nemenyi's: mean ranks that
    lie at least so far apart differ. `problems` is the number of rows.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    problems: int
    statistic: float
    p: float
    critical_difference: float
    alpha: float

    @property
    def differ(self) -> bool:
        """Whether Friedman's test rejects that all methods are alike."""
        return self.p <= self.alpha

    def groups(self) -> list[tuple[str, ...]]:
        """The largest sets of methods, best first, that do not differ from each other: the bars of a diagram."""
        order = np.argsort(self.ranks, kind="stable")
        ranks = np.array(self.ranks)[order]
        ends = [int(np.flatnonzero(ranks < rank + self.critical_difference)[-1]) for rank in ranks]
        return [tuple(self.methods[order[place]] for place in range(start, end + 1))
                for start, end in enumerate(ends) if end > start and (start == 0 or end > ends[start - 1])]


def rank_methods(values: ArrayLike, methods: Sequence[str], *, higher_is_better: bool = True,
                 alpha: float = 0.05) -> Ranking:
    """Rank methods on every problem, ties sharing their ranks, and test whether the mean ranks differ."""
    matrix = _checked(values, methods)
    problems, count = matrix.shape
    ranks = row_ranks(-matrix if higher_is_better else matrix).mean(axis=0)
    statistic = friedman_statistic(ranks, problems)
    return Ranking(tuple(methods), tuple(float(rank) for rank in ranks), problems, statistic,
                   chi_squared_tail(statistic, count - 1), critical_difference(count, problems, alpha), alpha)


def row_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks inside each row, the smallest value first; equal values share the mean of their ranks."""
    below = (values[:, :, None] > values[:, None, :]).sum(axis=2)
    equal = (values[:, :, None] == values[:, None, :]).sum(axis=2)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks


def friedman_statistic(ranks: ArrayLike, problems: int) -> float:
    """Friedman's statistic from the mean ranks of k methods on some problems."""
    means = np.asarray(ranks, dtype=np.float64)
    count = len(means)
    return float(12 * problems / (count * (count + 1)) * ((means - (count + 1) / 2) ** 2).sum())


@dataclass(frozen=True)
class Friedman:
    """Friedman's test in its three forms.

    `statistic` and `p` are as in the textbook; `corrected` and `corrected_p` take ties into account, which is the same
    where there are none; `f` and `f_p` are those of Iman and Davenport (1980), less conservative, from the corrected
    statistic. `f` is infinite where every row ranks the methods alike.
    """

    statistic: float
    p: float
    corrected: float
    corrected_p: float
    f: float
    f_p: float


def friedman(values: ArrayLike, *, higher_is_better: bool = True) -> Friedman:
    """Whether methods (columns) differ by more than chance over problems (rows)."""
    matrix = np.asarray(values, dtype=np.float64)
    problems, count = matrix.shape
    ranks = row_ranks(-matrix if higher_is_better else matrix)
    statistic = friedman_statistic(ranks.mean(axis=0), problems)
    unique = [np.unique(row, return_counts=True)[1] for row in ranks]
    ties = sum(float((sizes ** 3 - sizes).sum()) for sizes in unique)
    untied = 1 - ties / (problems * (count ** 3 - count))
    corrected = statistic / untied if untied > 0 else 0.0
    rest = problems * (count - 1) - corrected
    f = (problems - 1) * corrected / rest if rest > 1e-9 else inf
    return Friedman(statistic, chi_squared_tail(statistic, count - 1), corrected,
                    chi_squared_tail(corrected, count - 1), f, _f_tail(f, count - 1, (count - 1) * (problems - 1)))


def _f_tail(f: float, first: int, second: int) -> float:
    from scipy.special import fdtrc

    if f == inf:
        return 0.0
    return float(fdtrc(first, second, f)) if second else 1.0


def chi_squared_tail(statistic: float, freedom: int) -> float:
    """How likely a value at least that large is under a chi-squared distribution."""
    from scipy.special import chdtrc

    return float(chdtrc(freedom, statistic))


def critical_difference(methods: int, problems: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks."""
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / sqrt(2)
    return quantile * sqrt(methods * (methods + 1) / (6 * problems))


def nemenyi_p(rank_difference: float, methods: int, problems: int) -> float:
    """How likely two of some methods lie so far apart in mean rank by chance."""
    from scipy.stats import studentized_range

    distance = abs(rank_difference) / sqrt(methods * (methods + 1) / (6 * problems))
    return float(studentized_range.sf(distance * sqrt(2), methods, np.inf))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted so that all of them together keep the level (Holm, 1979)."""
    count, largest = len(p_values), 0.0
    adjusted = [0.0] * count
    for place, test in enumerate(sorted(range(count), key=lambda test: p_values[test])):
        largest = max(largest, min(1.0, (count - place) * p_values[test]))
        adjusted[test] = largest
    return adjusted


def wilcoxon_p(first: ArrayLike, second: ArrayLike) -> float:
    """Wilcoxon's signed-rank test of two methods on the same problems, both sides; 1 where they never differ."""
    from scipy.stats import wilcoxon

    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return float(wilcoxon(differences).pvalue) if differences.any() else 1.0


def _checked(values: ArrayLike, methods: Sequence[str]) -> NDArray[np.float64]:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != len(methods) or len(methods) < 2:
        raise DataError(f"values of shape {matrix.shape} do not compare {len(methods)} methods",
                        remedy="give one row a problem and one column a method, of which there are two or more")
    if not len(matrix) or not np.isfinite(matrix).all():
        raise DataError("methods can be compared on finite values of at least one problem only",
                        remedy="leave out problems that a method has no value for")
    return matrix


@dataclass(frozen=True)
class Estimate:
    """A mean with its spread; `low` and `high` bound it with the wanted confidence, and are none of a single row."""

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    rows: int


def estimate(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Mean, standard deviation of a sample, and Student's interval of the mean."""
    from scipy.stats import t

    numbers = np.asarray(values, dtype=np.float64)
    mean, count = float(numbers.mean()), len(numbers)
    if count < 2:
        return Estimate(mean, None, None, None, count)
    sd = float(numbers.std(ddof=1))
    half = float(t.ppf((1 + confidence) / 2, count - 1)) * sd / sqrt(count)
    return Estimate(mean, sd, mean - half, mean + half, count)


def wilson(successes: float, rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a share that Wilson gave (1927): it stays between 0 and 1, also for few rows."""
    z = normal_quantile((1 + confidence) / 2)
    share = successes / rows
    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def normal_quantile(share: float) -> float:
    """Below which value this share of a standard normal distribution lies."""
    from scipy.special import ndtri

    return float(ndtri(share))


def always_valid(information: float, scale: float, alpha: float) -> float:
    """How far an estimate may be off to one side, but for a chance of `alpha`, at every one of any number of looks.

    `information` is one over the estimate's variance. A mixture over all slopes of an exponential supermartingale, with
    a half-normal weight whose spread is `scale`, stays below 1 / alpha at all times (Ville); solved for the estimate,
    with 1 - Phi(x) <= exp(-x^2 / 2), this is the one-sided bound of Howard, Ramdas, McAuliffe and Sekhon (Annals of
    Statistics, 2021). It is tightest where the estimate's standard error is a third of `scale`.
    """
    prior = 1 / scale ** 2
    total = information + prior
    return sqrt(2 * total * log(sqrt(total / prior) / (2 * alpha) + 1)) / information


def rank_biserial(differences: ArrayLike) -> float:
    """Matched-pairs rank-biserial correlation (Kerby, 2014): 1 where the first is always ahead, -1 where it never is.

    It is the effect size that belongs to Wilcoxon's test; rows without a difference are left out, as there.
    """
    signed = _nonzero(differences)
    if not len(signed):
        return 0.0
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(signed))
    return float((ranks[signed > 0].sum() - ranks[signed < 0].sum()) / ranks.sum())


def cohen_d(first: ArrayLike, second: ArrayLike) -> float:
    """Difference of means over the pooled standard deviation; infinite where neither method varies but they differ."""
    one, other = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if len(one) < 2:
        return 0.0
    difference = float(one.mean() - other.mean())
    pooled = sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
    if pooled == 0:
        return 0.0 if difference == 0 else inf if difference > 0 else -inf
    return difference / pooled


def wins_ties_losses(differences: ArrayLike) -> tuple[int, int, int]:
    """In how many rows the first is ahead, level, behind."""
    signed = np.asarray(differences, dtype=np.float64)
    return int((signed > 0).sum()), int((signed == 0).sum()), int((signed < 0).sum())


def smallest_wilcoxon_p(rows: int) -> float:
    """The smallest two-sided p that Wilcoxon's exact test can reach with so many rows."""
    return min(1.0, 2.0 ** (1 - rows))


def _nonzero(differences: ArrayLike) -> NDArray[np.float64]:
    signed: NDArray[np.float64] = np.asarray(differences, dtype=np.float64)
    kept: NDArray[np.float64] = signed[signed != 0]
    return kept


PRIOR_STRENGTH = 0.5
SAMPLES = 20_000
_MOST_NUMBERS = 5_000_000


@dataclass(frozen=True)
class Belief:
    """Probabilities that the first method is better, that both are practically alike, and that the second is better."""

    first: float
    alike: float
    second: float


def draw_weights(rows: int, rng: np.random.Generator, *, samples: int = SAMPLES,
                 prior: float = PRIOR_STRENGTH) -> NDArray[np.float64]:
    """Weights of the prior's observation and of so many rows, from their posterior: a Dirichlet distribution.

    All pairs of methods on the same rows share them. Of very many rows fewer samples are drawn.
    """
    strengths = np.ones(rows + 1)
    strengths[0] = prior
    return rng.dirichlet(strengths, max(1, min(samples, _MOST_NUMBERS // (rows + 1))))


def bayesian_signed_rank(differences: ArrayLike, rope: float, weights: NDArray[np.float64]) -> Belief:
    """What differences (first minus second, a row each; more is better) say about the two methods.

    Differences of at most `rope` are of no practical importance. Each draw of weights for the observed differences, and
    for one of zero that stands for the prior, gives the chances that the mean of two differences lies left of, inside,
    or right of the region of no importance. The belief in a region is the share of draws in which it has the largest of
    the three chances.
    """
    observed = np.concatenate([[0.0], np.asarray(differences, dtype=np.float64)])
    sums = observed[:, None] + observed[None, :]
    worse, better = (sums < -2 * rope).astype(np.float64), (sums > 2 * rope).astype(np.float64)
    second = np.einsum("ij,ij->i", weights @ worse, weights)
    first = np.einsum("ij,ij->i", weights @ better, weights)
    shares = _largest(first, second) if rope == 0 else np.bincount(
        np.argmax(np.stack([first, 1 - first - second, second]), axis=0), minlength=3)
    return Belief(*(float(share) for share in shares / len(weights)))


def _largest(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without a region of no importance there are two sides; a draw that favours neither counts half for each."""
    even = (first == second).sum() / 2
    return np.array([(first > second).sum() + even, 0.0, (first < second).sum() + even])
