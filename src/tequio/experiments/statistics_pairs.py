"""Two methods on the same rows: how far apart, how surely, how often which is ahead."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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
