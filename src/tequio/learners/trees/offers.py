"""Splits offered by several holders of columns: what each would earn, and which one is the best.

An offer says no more than what the rows on its left side add up to. Which column and which cut it stands for, only its
holder knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.learners.trees.boosting import Growth
    from tequio.learners.trees.cart import Criterion

ROUNDING = 1e-9
"""Share of a gain below which two offers count as equally good."""


class Gains(NamedTuple):
    """What each offer would earn (minus infinity where it may not be taken), and what of that may be rounding."""

    each: NDArray[np.float64]
    tolerance: float


class Earning(Protocol):
    """How the worth of an offer follows from the sums of its left side and of the whole node."""

    def gains(self, left: NDArray[np.float64], total: NDArray[np.float64]) -> Gains:
        """Of the (offers, values) sums on the left and the (values,) sums of the node."""
        ...


@dataclass(frozen=True)
class LossEarned:
    """What a split lowers the loss of boosted trees by; values are sums of gradients and second derivatives."""

    growth: Growth

    def gains(self, left: NDArray[np.float64], total: NDArray[np.float64]) -> Gains:
        """Half of G^2 / (H + lambda) of both sides minus that of the node, minus gamma (Chen and Guestrin, eq. 7)."""
        how, right = self.growth, total - left
        smallest = max(how.min_child_weight * (1 - ROUNDING), ROUNDING * total[1], 1e-12)
        usable = (left[:, 1] >= smallest) & (right[:, 1] >= smallest)
        now = float(self._score(total[None])[0]) if total[1] + how.l2 > 0 else 0.0
        each = np.full(len(left), -np.inf)
        each[usable] = self._score(left[usable]) + self._score(right[usable]) - now
        largest = float(each.max(initial=0.0))
        return Gains(each - how.min_gain, ROUNDING * max(now, largest))

    def value(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """(nodes,) what leaves of these (nodes, 2) sums add to a margin."""
        weight = sums[:, 1] + self.growth.l2
        best: NDArray[np.float64] = np.divide(sums[:, 0], weight, out=np.zeros(len(sums)), where=weight > 0)
        return -self.growth.learning_rate * best

    def _score(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = sums[:, 0] ** 2 / (sums[:, 1] + self.growth.l2) / 2
        return scores


@dataclass(frozen=True)
class PurityEarned:
    """What a split lowers the impurity by; values are rows of each class."""

    criterion: Criterion = "gini"
    min_split: float = 2
    min_leaf: float = 1

    def gains(self, left: NDArray[np.float64], total: NDArray[np.float64]) -> Gains:
        """Impurity of the node minus that of both sides, each weighted by its rows."""
        right, rows = total - left, float(total.sum())
        usable = (left.sum(axis=1) >= self.min_leaf) & (right.sum(axis=1) >= self.min_leaf) & (rows >= self.min_split)
        now = float(self._impurity(total[None])[0])
        each = np.full(len(left), -np.inf)
        each[usable] = now - self._impurity(left[usable]) - self._impurity(right[usable])
        return Gains(each, ROUNDING * rows)

    def _impurity(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows times gini impurity or entropy."""
        rows = counts.sum(axis=1, keepdims=True)
        if self.criterion == "gini":
            gini: NDArray[np.float64] = (rows[:, 0] ** 2 - (counts ** 2).sum(axis=1)) / rows[:, 0]
            return gini
        logs = np.log2(counts / rows, out=np.zeros_like(counts), where=counts > 0)
        entropy: NDArray[np.float64] = -(counts * logs).sum(axis=1)
        return entropy


class Best(NamedTuple):
    """The offer that won: whose it is, by place among the holders, its place among that holder's, and its gain."""

    holder: int
    offer: int
    gain: float


def best_offer(earning: Earning, offers: Sequence[NDArray[np.float64]], total: NDArray[np.float64]) -> Best | None:
    """The best of all holders' offers for a node; of equally good ones the first. None where none earns anything."""
    found = [earning.gains(left, total) for left in offers]
    best = max((float(gains.each.max(initial=-np.inf)) for gains in found), default=-np.inf)
    tolerance = max((gains.tolerance for gains in found), default=0.0)
    if not best > tolerance:
        return None
    for holder, gains in enumerate(found):
        equal = np.flatnonzero(gains.each >= best - tolerance)
        if len(equal):
            return Best(holder, int(equal[0]), float(gains.each[equal[0]]))
    return None
