"""Which of two versions is better, how surely, and for whom: the test that fits, an interval, and plain words.

Two versions answer different ids, so their outcomes are two samples: shares are compared by the score test (Fisher's
exact test where counts are small) with Newcombe's interval (1998), means by Welch's test. Where both have answered the
same rows, these are pairs: McNemar's exact test with the interval of Agresti and Min (2005) for shares, Wilcoxon's
signed-rank test with Student's interval for means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import asin, sqrt
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, DataError, nearest
from tequio.models.outcomes import HIGHER_IS_BETTER, outcomes_offline, read_outcomes
from tequio.models.statistics import cohen_d, estimate, holm, normal_quantile, rank_biserial, wilcoxon_p, wilson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tequio.models.outcomes import Outcome
    from tequio.models.registry import ModelRegistry

    Numbers = NDArray[np.float64]

FEWEST = 30
_FEWEST_EXPECTED = 5.0
_EFFECTS = ((0.2, "tiny"), (0.5, "small"), (0.8, "medium"), (float("inf"), "large"))


@dataclass(frozen=True)
class Side:
    """One version: its number, how many outcomes it has, their mean and the interval of that."""

    version: int
    rows: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Versus:
    """Two versions by one metric, of everybody or of one group.

    `difference` is the second minus the first, turned so that more is better, as `low` and `high` are. `p` is that of
    the test by itself, `adjusted` after Holm's correction for all groups that are shown.
    """

    first: Side
    second: Side
    difference: float
    low: float
    high: float
    p: float
    adjusted: float
    effect: float
    effect_name: str
    test: str
    group: str = ""

    def better(self, alpha: float) -> int:
        """The version that is better, or 0 where chance could make the difference."""
        if self.adjusted > alpha or self.difference == 0:
            return 0
        return self.second.version if self.difference > 0 else self.first.version


@dataclass(frozen=True)
class VersionComparison:
    """Everything that a comparison of two versions says."""

    metric: str
    higher_is_better: bool
    confidence: float
    paired: bool
    overall: Versus
    groups: tuple[Versus, ...]
    verdict: str
    cautions: tuple[str, ...]


def compare_versions(registry: ModelRegistry, first: int, second: int, *, metric: str = "", confidence: float = 0.95,
                     data: Path | None = None, truth: str = "", by: Sequence[str] = (), party: str = ""
                     ) -> VersionComparison:
    """Compare two versions by the outcomes that were added, or by the rows of a table with the truth in it."""
    if first == second:
        raise ConfigError(f"version {first} is compared with itself", remedy="name two versions")
    numbers = (first, second)
    versions = [registry.version(number) for number in numbers]
    if data is not None:
        models = [version.load().of(party) if party else version.load() for version in versions]
        sides = [outcomes_offline(model, data, truth=truth, groups=by) for model in models]
    else:
        known = read_outcomes(registry)
        sides = [[one for one in known if one.version == version.sha256] for version in versions]
    for number, side in zip(numbers, sides, strict=True):
        if not side:
            raise DataError(f"there is no outcome of version {number}",
                            remedy=f"add some: tequio models outcomes {registry.name} FILE; or compare on rows whose "
                                   "truth is known: --data FILE")
    chosen = chosen_metric(metric, sides)
    paired = [one.id for one in _by_id(sides[0])] == [one.id for one in _by_id(sides[1])]
    sides = [_by_id(side) for side in sides] if paired else sides

    def contest(parts: Sequence[Sequence[Outcome]], group: str = "") -> Versus:
        values = [np.array([one.values[chosen] for one in part]) for part in parts]
        return replace(versus(values[0], values[1], higher_is_better=HIGHER_IS_BETTER[chosen], confidence=confidence,
                              paired=paired, versions=(first, second)), group=group)

    overall = contest(sides)
    groups = [contest(parts, name) for name, parts in _groups(sides, by, paired)]
    adjusted = holm([one.p for one in groups])
    groups = [replace(one, adjusted=p) for one, p in zip(groups, adjusted, strict=True)]
    cautions = tuple(_cautions(sides, paired, data is not None, overall))
    return VersionComparison(chosen, HIGHER_IS_BETTER[chosen], confidence, paired, overall, tuple(groups),
                             verdict_of(overall, chosen, confidence), cautions)


def chosen_metric(metric: str, sides: Sequence[Sequence[Outcome]]) -> str:
    """The metric that was asked for, if all outcomes have it, or the first that they have."""
    known = [name for name in HIGHER_IS_BETTER if all(name in one.values for side in sides for one in side[:1])]
    if not known:
        raise DataError("the versions predict different things", remedy="compare versions with the same target")
    if metric and metric not in known:
        raise ConfigError(f"outcomes of this model have no '{metric}'", remedy=nearest(metric, known))
    return metric or known[0]


def versus(first: Numbers, second: Numbers, *, higher_is_better: bool = True, confidence: float = 0.95,
           paired: bool = False, versions: tuple[int, int] = (1, 2)) -> Versus:
    """Test whether two versions differ, from a value per outcome; pairs stand at the same places."""
    shares = bool(np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all())
    turn = 1.0 if higher_is_better else -1.0
    sides = [_side(version, values, shares, confidence) for version, values in zip(versions, (first, second),
                                                                                   strict=True)]
    kind = (_paired_shares if shares else _paired_means) if paired else (_shares if shares else _means)
    low, high, p, effect, name, test = kind(first, second, confidence)
    low, high = (low, high) if turn > 0 else (-high, -low)
    difference = turn * (sides[1].mean - sides[0].mean)
    return Versus(sides[0], sides[1], difference, low, high, p, p, turn * effect, name, test)


def verdict_of(found: Versus, metric: str, confidence: float) -> str:
    """The comparison in a sentence or two."""
    first, second = found.first, found.second
    numbers = (f"{metric} {second.mean:.4g} against {first.mean:.4g}; in favour of version {second.version} "
               f"{found.difference:+.4f}, with {confidence:.0%} confidence between {found.low:+.4f} and "
               f"{found.high:+.4f}; p = {found.p:.2g} ({found.test})")
    better = found.better(1 - confidence)
    if not better:
        return f"The versions cannot be told apart: {numbers}."
    size = next(word for most, word in _EFFECTS if abs(found.effect) < most)
    return f"Version {better} is better: {numbers}. The effect is {size} ({found.effect_name} {found.effect:+.2f})."


def _side(version: int, values: Numbers, shares: bool, confidence: float) -> Side:
    if shares:
        low, high = wilson(float(values.sum()), len(values), confidence)
        return Side(version, len(values), float(values.mean()), low, high)
    found = estimate(values, confidence=confidence)
    nan = float("nan")
    return Side(version, len(values), found.mean, nan if found.low is None else found.low,
                nan if found.high is None else found.high)


_Answer = tuple[float, float, float, float, str, str]
"""Interval of the difference (second minus first), p, effect size, its name, and the name of the test."""


def _shares(first: Numbers, second: Numbers, confidence: float) -> _Answer:
    from scipy.stats import fisher_exact, norm

    one, other = (float(values.mean()) for values in (first, second))
    (low1, high1), (low2, high2) = (wilson(float(values.sum()), len(values), confidence) for values in (first, second))
    low = other - one - sqrt((other - low2) ** 2 + (high1 - one) ** 2)
    high = other - one + sqrt((high2 - other) ** 2 + (one - low1) ** 2)
    effect = 2 * asin(sqrt(other)) - 2 * asin(sqrt(one))
    wrong, pooled = float((first == 0).sum() + (second == 0).sum()), float(np.concatenate([first, second]).mean())
    expected = min(pooled, 1 - pooled) * min(len(first), len(second))
    if expected < _FEWEST_EXPECTED:
        table = [[int(values.sum()), len(values) - int(values.sum())] for values in (first, second)]
        p = float(fisher_exact(table).pvalue) if 0 < wrong < len(first) + len(second) else 1.0
        return low, high, p, effect, "Cohen's h", "Fisher's exact test"
    error = sqrt(pooled * (1 - pooled) * (1 / len(first) + 1 / len(second)))
    return low, high, float(2 * norm.sf(abs(other - one) / error)), effect, "Cohen's h", "score test of two shares"


def _means(first: Numbers, second: Numbers, confidence: float) -> _Answer:
    from scipy.stats import ttest_ind

    if min(len(first), len(second)) < 2:
        return float("nan"), float("nan"), 1.0, 0.0, "Cohen's d", "none: one outcome has no spread"
    if not (first.std() or second.std()):
        difference = float(second[0] - first[0])
        return difference, difference, float(difference == 0), cohen_d(second, first), "Cohen's d", "no value varies"
    found = ttest_ind(second, first, equal_var=False)
    bounds = found.confidence_interval(confidence)
    return float(bounds.low), float(bounds.high), float(found.pvalue), cohen_d(second, first), "Cohen's d", \
        "Welch's test of two means"


def _paired_shares(first: Numbers, second: Numbers, confidence: float) -> _Answer:
    from scipy.stats import binomtest

    won, lost, rows = int((second > first).sum()), int((second < first).sum()), len(first)
    p = float(binomtest(won, won + lost).pvalue) if won + lost else 1.0
    # Half a row more in each of the four cells keeps the interval honest where few rows differ.
    total, gain = rows + 2, (won - lost) / (rows + 2)
    half = normal_quantile((1 + confidence) / 2) * sqrt((won + lost + 1) / total - gain ** 2) / sqrt(total)
    return max(gain - half, -1.0), min(gain + half, 1.0), p, rank_biserial(second - first), \
        "rank-biserial correlation", "McNemar's exact test of pairs"


def _paired_means(first: Numbers, second: Numbers, confidence: float) -> _Answer:
    found = estimate(second - first, confidence=confidence)
    low, high = (found.mean if bound is None else bound for bound in (found.low, found.high))
    return low, high, wilcoxon_p(second, first), rank_biserial(second - first), "rank-biserial correlation", \
        "Wilcoxon's signed-rank test of pairs"


def _by_id(side: Sequence[Outcome]) -> list[Outcome]:
    return sorted(side, key=lambda one: one.id)


def _groups(sides: Sequence[Sequence[Outcome]], by: Sequence[str], paired: bool
            ) -> Iterator[tuple[str, list[list[Outcome]]]]:
    names = list(by) or sorted({name for side in sides for one in side for name in one.groups})
    for name in names:
        levels = [sorted({one.groups[name] for one in side if name in one.groups}) for side in sides]
        if not any(levels):
            raise ConfigError(f"the outcomes have no column '{name}'",
                              remedy=f"add them again with it: tequio models outcomes NAME FILE --group {name}")
        for level in sorted(set(levels[0]) & set(levels[1])):
            yield f"{name} = {level}", [[one for one in side if one.groups.get(name) == level] for side in sides]


def _cautions(sides: Sequence[Sequence[Outcome]], paired: bool, offline: bool, overall: Versus) -> Iterator[str]:
    for side in (overall.first, overall.second):
        if side.rows < FEWEST:
            yield f"Version {side.version} has {side.rows} outcomes only; intervals of so few are rough."
    if offline:
        return
    if not paired:
        begins, ends = [min(one.time for one in side) for side in sides], [max(one.time for one in side)
                                                                          for side in sides]
        inside = [sum(max(begins) <= one.time <= min(ends) for one in side) / len(side) for side in sides]
        if min(inside) < 0.5:
            yield ("Most outcomes of one version are from a time when the other did not answer: what differs may be "
                   "the time rather than the version.")
    yield ("Looking again and again until a difference shows finds one too often; promote --if-better corrects for "
           "that, this page does not.")
