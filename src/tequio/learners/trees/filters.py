"""Filters: which local trees are good enough to be fused. A filter sets a bar for each metric; ours are those of the
source (mean, percentile, median, mode), everybody, and a function of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import numpy as np
from annotated_types import Interval

from tequio.errors import DataError
from tequio.registry import named_function, register

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RELAXED = 0.989  # of the bar, when no tree is above it in all metrics
_ROUNDING = 1e-12  # the mean of equal numbers may differ from them by this


@runtime_checkable
class Filter(Protocol):
    """Sets the bar that a tree has to reach."""

    def bar(self, scores: NDArray[np.float64]) -> float:
        """The least score that is good enough, given those of all trees by one metric."""
        ...


@register("filter", "mean", paper="Argente-Garrido et al., 2025")
@dataclass(frozen=True)
class MeanFilter:
    """Trees that are at least as good as the mean of all."""

    def bar(self, scores: NDArray[np.float64]) -> float:
        """The mean."""
        return float(scores.mean())


@register("filter", "percentile", paper="Argente-Garrido et al., 2025")
@dataclass(frozen=True)
class PercentileFilter:
    """Trees that are at least as good as a percentile of all.

    Parameters:
        percent: 0 keeps all trees, 50 is the median, 100 keeps the best
    """

    percent: Annotated[float, Interval(ge=0, le=100)] = 75.0

    def bar(self, scores: NDArray[np.float64]) -> float:
        """The percentile, between neighbours by linear interpolation."""
        return float(np.percentile(scores, self.percent))


@register("filter", "median", paper="Argente-Garrido et al., 2025")
@dataclass(frozen=True)
class MedianFilter:
    """Trees that are at least as good as the median of all."""

    def bar(self, scores: NDArray[np.float64]) -> float:
        """The median."""
        return float(np.median(scores))


@register("filter", "mode", paper="Argente-Garrido et al., 2025")
@dataclass(frozen=True)
class ModeFilter:
    """Trees that are at least as good as the most frequent score, of equally frequent ones the lowest.

    Parameters:
        digits: decimal places that scores are rounded to before they are counted
    """

    digits: Annotated[int, Interval(ge=0, le=12)] = 2

    def bar(self, scores: NDArray[np.float64]) -> float:
        """The lowest mode of the rounded scores; never above the best score, which rounding up could make it."""
        values, counts = np.unique(scores.round(self.digits), return_counts=True)
        return min(float(values[counts.argmax()]), float(scores.max()))


@register("filter", "none")
@dataclass(frozen=True)
class NoFilter:
    """All trees, however good."""

    def bar(self, scores: NDArray[np.float64]) -> float:
        """As low as it can be."""
        return float("-inf")


@register("filter", "custom", example='[algorithm]\nname = "icdta4fl"\nfilter = {name = "custom", '
          'function = "my_rules:lowest_fifth"}\n\n[learner]\nname = "cart"\n')
@dataclass(frozen=True)
class CustomFilter:
    """Ask your own function `(scores of all trees by one metric) -> the least that is good enough`.

    Parameters:
        function: the function, or where it is: 'package.module:function'
    """

    function: str | Callable[..., float]

    def bar(self, scores: NDArray[np.float64]) -> float:
        """What the function says."""
        bar = float(named_function(self.function, "filter's function")(scores))
        if np.isnan(bar):
            raise DataError("the filter's function returned something that is not a number",
                            remedy="return the least score that is good enough")
        return bar


def surviving(scores: NDArray[np.float64], filter: Filter, least: int = 1) -> NDArray[np.intp]:
    """Numbers of the trees that reach the bar in every metric, best first; `scores` is (trees, metrics).

    Where none does, the bar is lowered a little once. Where fewer than `least` do, the best by the sum of their scores
    are kept instead, so there is always one.
    """
    bars = np.array([filter.bar(by_metric) for by_metric in scores.T])
    kept = _above(scores, bars)
    if not kept.any():
        kept = _above(scores, _RELAXED * bars)
    best_first = np.argsort(-scores.sum(axis=1), kind="stable")
    kept[best_first[~kept[best_first]][:max(least - int(kept.sum()), 0)]] = True
    return best_first[kept[best_first]]


def _above(scores: NDArray[np.float64], bars: NDArray[np.float64]) -> NDArray[np.bool_]:
    above: NDArray[np.bool_] = np.all(scores >= bars - _ROUNDING, axis=1)
    return above
