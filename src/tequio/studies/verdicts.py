"""A published number is compared with the mean over our seeds, by one rule. Every interval is the 90 % interval of
Student's t over seeds, so that each of its two ends is passed by chance in 5 % of cases at most; the **margin** says
how close is close enough.

- *agrees*: the whole interval lies within the margin around the published value. This is an equivalence test: two
  one-sided tests at 5 % each.
- *better* and *worse*: the whole interval lies beyond the margin, on the better or on the worse side. A seed that never
  reached the target makes a cell *worse*.
- *differs*: the same of a two-sided quantity, of which neither more nor less is better.
- *cannot tell*: the interval crosses an end of the margin; or there is one seed, and the quantity depends on it.
- *other data*: the number comes from other data or is another quantity than the published one. It is not judged.
- *not run*: no seed is finished.

What these words rest on:

- **Margin.** Two points for shares such as accuracy and F1, which is the median standard deviation between seeds of one
  cell in these tables, but at most half the way from the published value to 0 or 1, so that no cell passes whatever
  comes out; 5 % of the published value for all else, such as losses, times and counts. A study may state a margin of
  its own, with its reason.
- **The published value** counts as exact where its source prints no spread. Its own luck is then not in the interval,
  so that the number of a single run may be *worse* or *better* by chance. Where a source gives spread and number of
  seeds, they widen the interval (Welch's test).
- **Direction.** That of the metric. Two-sided are quantities that follow from a model of time, and all numbers of
  methods without a defence under attack: an attack that is weaker than published is no better result. For a method with
  a defence, the success of an attack is better low.
- **One seed** decides nothing, except of a quantity that no seed changes.
- **Repeats.** A number that a source prints twice, or that we answer by two readings of the source, is shown twice and
  counted once.
- **Requirements** are bounds of our own. They are *met* if the whole interval keeps the bound, *not met* if none of it
  does, and they count nowhere as published.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from tequio.experiments.comparing.pairing import curve_metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALPHA = 0.05
POINTS, RELATIVE, LEAST = 0.02, 0.05, 0.001

_SHARES = ("accuracy", "f1", "agreement", "auc", "jaccard", "success", "precision", "recall", "route.")

Direction = Literal["higher", "lower", "both"]
Verdict = Literal["agrees", "better", "worse", "differs", "cannot tell", "other data", "not run", "no published number",
                  "met", "not met"]


@dataclass(frozen=True)
class Interval:
    """What the seeds leave open."""

    low: float
    high: float

    def within(self, low: float, high: float) -> bool:
        """Whether all of it lies between two ends; rounding of the last binary digit counts as within."""
        return self.low >= low - 1e-12 and self.high <= high + 1e-12


@dataclass(frozen=True)
class Sample:
    """The numbers of a cell: by seed, or what is left of them. Seeds that never reached a target are infinite.

    `mean` and `sd` are over the seeds that got there; one seed has no `sd`.
    """

    mean: float | None = None
    sd: float | None = None
    seeds: int = 0
    never: int = 0
    values: Mapping[int, float] = field(default_factory=dict)


def sample_of(values: Mapping[int, float]) -> Sample:
    """What the values of some seeds come to."""
    there = [value for value in values.values() if isfinite(value)]
    sd = stdev(there) if len(there) > 1 and len(there) == len(values) else None
    return Sample(fmean(there) if there else None, sd, len(values), len(values) - len(there), dict(values))


def interval(sample: Sample, *, published: Sample | None = None, deterministic: bool = False,
             alpha: float = ALPHA) -> Interval | None:
    """Between which ends the mean lies: each is passed by chance with probability alpha; nothing of one seed.

    With `published`, of which mean and spread are known, the interval is that of the difference, put at our mean.
    """
    if sample.mean is None or sample.never:
        return None
    if deterministic:
        return Interval(sample.mean, sample.mean)
    if sample.sd is None:
        return None
    parts: list[tuple[float, float]] = [(sample.sd ** 2 / sample.seeds, sample.seeds - 1)]
    if published is not None and published.sd is not None:
        parts.append((published.sd ** 2 / published.seeds, published.seeds - 1))
    half = half_width(parts, alpha)
    return Interval(sample.mean - half, sample.mean + half)


def half_width(parts: Sequence[tuple[float, float]], alpha: float = ALPHA) -> float:
    """Student's t times the standard error of a sum of independent means, each with its variance and its degrees of
    freedom (Welch and Satterthwaite)."""
    from scipy.special import stdtrit

    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance ** 2 / sum(part ** 2 / degrees for part, degrees in parts if part)
    return float(stdtrit(freedom, 1 - alpha)) * sqrt(variance)


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1, as accuracy does; of a curve's reading whether its height is read."""
    curve = curve_metric(metric)
    if curve is not None:
        return curve.reading.higher_is_better is None and is_share(curve.metric)
    return any(word in metric for word in _SHARES)


def margin_for(metric: str, published: float) -> float:
    """How far from the published value still counts as the same, unless a study says otherwise."""
    if not is_share(metric):
        return RELATIVE * abs(published)
    return max(LEAST, min(POINTS, published / 2, (1 - published) / 2))


def judge(published: float, margin: float, direction: Direction, found: Interval | None, *,
          never: bool = False) -> Verdict:
    """The verdict on a number that is finished and comparable."""
    if never:
        return "differs" if direction == "both" else "worse"
    if found is None:
        return "cannot tell"
    if found.within(published - margin, published + margin):
        return "agrees"
    above, below = found.low > published + margin, found.high < published - margin
    if not above and not below:
        return "cannot tell"
    if direction == "both":
        return "differs"
    return "better" if above == (direction == "higher") else "worse"


def judge_requirement(bound: float, direction: Direction, found: Interval | None, *, never: bool = False) -> Verdict:
    """Whether a bound of our own is kept."""
    if never:
        return "not met"
    if found is None:
        return "cannot tell"
    low, high = (bound, inf) if direction == "higher" else (-inf, bound) if direction == "lower" else (bound, bound)
    if found.within(low, high):
        return "met"
    return "not met" if found.high < low or found.low > high else "cannot tell"
