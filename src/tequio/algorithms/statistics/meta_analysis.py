"""Meta-analysis: one estimate from the estimates and variances of several studies, with how far the studies disagree.

Fixed effect (inverse variance); random effects by DerSimonian and Laird (1986) or by restricted maximum likelihood,
with the standard error of Hartung and Knapp (2001) on request; I2 of Higgins and Thompson (2002); limits of the
variance between studies by the Q-profile of Viechtbauer (2007); prediction intervals of Higgins, Thompson and
Spiegelhalter (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import DataError, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Between = Literal["fixed", "dl", "reml"]
"""How the variance between studies is found: taken to be 0, by DerSimonian and Laird, or by restricted likelihood."""

_ITERATIONS, _TOLERANCE = 100, 1e-12


@dataclass(frozen=True)
class Study:
    """What one study found: an estimate on a scale on which it is about normal, and its variance."""

    name: str
    estimate: float
    variance: float

    @property
    def usable(self) -> bool:
        """Whether it can be weighed: a finite estimate with a finite variance above 0."""
        return isfinite(self.estimate) and isfinite(self.variance) and self.variance > 0


@dataclass(frozen=True)
class Pooled:
    """The pooled estimate with its interval and test (`df` is inf for the normal distribution), and heterogeneity.

    `tau2` is the variance between studies with its limits, `q` Cochran's statistic with its p-value, `i2` the share of
    the spread, in percent, that is between studies. `prediction` is where the effect of a further study is expected.
    `weights` are shares of `studies`; `left_out` could not be weighed. What sums over studies do not show is `nan`.
    """

    method: Between
    estimate: float
    std_error: float
    statistic: float
    df: float
    p_value: float
    low: float
    high: float
    level: float
    tau2: float
    tau2_low: float
    tau2_high: float
    q: float
    q_p_value: float
    i2: float
    prediction: tuple[float, float]
    studies: tuple[Study, ...] = ()
    weights: tuple[float, ...] = ()
    left_out: tuple[str, ...] = ()
    hartung_knapp: bool = False


@dataclass(frozen=True)
class PowerSums:
    """Sums over studies of w, w y, w y^2 and w^2 with w = 1 / variance: what a hidden sum shows of them."""

    studies: int
    w: float
    wy: float
    wyy: float
    ww: float

    @property
    def mean(self) -> float:
        """The fixed-effect estimate."""
        return self.wy / self.w

    @property
    def q(self) -> float:
        """Cochran's statistic."""
        return max(self.wyy - self.wy ** 2 / self.w, 0.0)


def meta_analysis(studies: Sequence[Study], method: Between = "reml", *, hartung_knapp: bool = False,
                  adhoc: bool = False, level: float = 0.95) -> Pooled:
    """Pool studies. With `adhoc` the correction of Hartung and Knapp never narrows an interval."""
    used = tuple(study for study in studies if study.usable)
    left_out = tuple(study.name for study in studies if not study.usable)
    _require_two(len(used))
    y = np.array([study.estimate for study in used])
    v = np.array([study.variance for study in used])
    k, w = len(used), 1 / v
    q = _q(0.0, y, v)
    tau2 = 0.0 if method == "fixed" else _dersimonian_laird(q, k, w.sum(), np.square(w).sum())
    if method == "reml":
        tau2 = _reml(tau2, y, v)
    weights = 1 / (v + tau2)
    mean = float(weights @ y / weights.sum())
    error = 1 / sqrt(float(weights.sum()))
    if hartung_knapp:
        scale = float(weights @ np.square(y - mean)) / (k - 1)
        error *= sqrt(max(scale, 1.0) if adhoc else scale)
    typical = (k - 1) * w.sum() / (w.sum() ** 2 - np.square(w).sum())
    i2 = 100 * tau2 / (tau2 + typical) if method == "reml" else _i2(q, k)
    low, high = (nan, nan) if method == "fixed" else _profile_limits(y, v, level)
    return _concluded(method, mean, error, k, tau2, (low, high), q, float(i2), level, hartung_knapp, used,
                      tuple((weights / weights.sum()).tolist()), left_out)


def meta_of_sums(method: Literal["fixed", "dl"], first: PowerSums, second: tuple[float, float] | None = None, *,
                 level: float = 0.95) -> Pooled:
    """The same from sums over studies. `second` are the sums of w and w y once more, with the variance between studies
    that `between` gives in each w."""
    _require_two(first.studies)
    tau2 = 0.0 if method == "fixed" else between(first)
    w, wy = (first.w, first.wy) if second is None else second
    return _concluded(method, wy / w, 1 / sqrt(w), first.studies, tau2, (nan, nan), first.q,
                      _i2(first.q, first.studies), level, False, (), (), ())


def between(sums: PowerSums) -> float:
    """The variance between studies by DerSimonian and Laird."""
    return _dersimonian_laird(sums.q, sums.studies, sums.w, sums.ww)


def _concluded(method: Between, mean: float, error: float, k: int, tau2: float, limits: tuple[float, float], q: float,
               i2: float, level: float, hartung_knapp: bool, studies: tuple[Study, ...], weights: tuple[float, ...],
               left_out: tuple[str, ...]) -> Pooled:
    from scipy.stats import chi2, norm, t

    df = float(k - 1) if hartung_knapp else inf
    spread = t(df) if hartung_knapp else norm
    half = float(spread.ppf((1 + level) / 2)) * error
    statistic = mean / error if error else inf * np.sign(mean)
    wide = nan
    if method != "fixed" and k >= 3:
        wide = float(t.ppf((1 + level) / 2, k - 1 if hartung_knapp else k - 2)) * sqrt(tau2 + error ** 2)
    return Pooled(method, mean, error, float(statistic), df, float(2 * spread.sf(abs(statistic))), mean - half,
                  mean + half, level, tau2, *limits, q, float(chi2.sf(q, k - 1)), i2, (mean - wide, mean + wide),
                  studies, weights, left_out, hartung_knapp)


def _require_two(studies: int) -> None:
    if studies < 2:
        raise DataError("one study is no meta-analysis", remedy="ask at least two parties whose fits succeed, or "
                                                               "report the one fit as it is")


def _q(tau2: float, y: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    """Weighted squares around the weighted mean."""
    w = 1 / (v + tau2)
    return float(w @ np.square(y - w @ y / w.sum()))


def _i2(q: float, k: int) -> float:
    return 100 * max(0.0, (q - (k - 1)) / q) if q > 0 else 0.0


def _dersimonian_laird(q: float, k: int, w: float, ww: float) -> float:
    return float(max(0.0, (q - (k - 1)) / (w - ww / w)))


def _reml(start: float, y: NDArray[np.float64], v: NDArray[np.float64]) -> float:
    """Newton's method, by Fisher's information where the observed one is not positive. A step below 0, or one by which
    the likelihood falls, is halved."""

    def likelihood(tau2: float) -> float:
        w = 1 / (v + tau2)
        return float(np.log(w).sum() - np.log(w.sum()) - _q(tau2, y, v)) / 2

    tau2 = start
    for _ in range(_ITERATIONS):
        w = 1 / (v + tau2)
        s1, s2, s3 = float(w.sum()), float(np.square(w).sum()), float((w ** 3).sum())
        off = y - w @ y / s1
        score = (-s1 + s2 / s1 + float(np.square(w * off).sum())) / 2
        expected = (s2 - 2 * s3 / s1 + (s2 / s1) ** 2) / 2
        observed = float((w ** 3) @ np.square(off) - np.square(w) @ off * (np.square(w) @ off) / s1) - s2 / 2 - \
            (s2 / s1) ** 2 / 2 + s3 / s1
        step = score / (observed if observed > 0 else expected)
        least = likelihood(tau2) - 1e-13 * len(y)
        while abs(step) > _TOLERANCE and (tau2 + step < 0 or likelihood(tau2 + step) < least):
            step /= 2
        tau2 = max(tau2 + step, 0.0)
        if abs(step) <= _TOLERANCE * (1 + tau2):
            return tau2
    raise RunError(f"the variance between studies did not settle in {_ITERATIONS} iterations",
                   remedy="set algorithm.method = 'dl'")


def _profile_limits(y: NDArray[np.float64], v: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Where the weighted squares meet the quantiles of their chi-square distribution; they fall as tau2 grows."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    def limit(quantile: float) -> float:
        if _q(0.0, y, v) <= quantile:
            return 0.0
        largest = float(np.square(y - y.mean()).sum() / quantile) + float(v.max())
        while _q(largest, y, v) > quantile:
            largest *= 2
        return float(brentq(lambda tau2: _q(tau2, y, v) - quantile, 0.0, largest, xtol=1e-14, rtol=1e-14))

    upper, lower = chi2.ppf([(1 - level) / 2, (1 + level) / 2], len(y) - 1)
    return limit(float(lower)), limit(float(upper))
