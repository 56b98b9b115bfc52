"""Histogram gradient boosting. Trees grow from sums of gradients by bin, whoever summed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.learners.trees.bins import Bins, RowHistograms, quantile_cuts
from tequio.learners.trees.boosted import BoostedTrees, RegressionTree, base_margins, gradients, objective_for
from tequio.learners.trees.learner import Scoring, checked_weights, numeric_rows
from tequio.learners.trees.tree import LEAF
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.trees.bins import HistogramOf, Pair

_ROUNDING = 1e-9  # share of a gain that may come from the order in which sums were taken


@dataclass(frozen=True)
class Growth:
    """How a tree grows: its depth, the pull of its values to 0, what a split has to earn, and how far values go."""

    depth: int = 6
    l2: float = 1.0
    min_gain: float = 0.0
    min_child_weight: float = 1.0
    learning_rate: float = 0.1


@register("learner", "boosted-trees", paper="Friedman, 2001; Chen and Guestrin, 2016")
@dataclass(frozen=True)
class Boosting(Scoring):
    """Gradient-boosted trees on histograms of numeric columns, for classes or numbers.

    Parameters:
        trees: rounds of boosting; with more than two classes a round adds a tree a class
        depth: most conditions from a root to a leaf
        learning_rate: share of its best values that each tree adds
        bins: most bins a column
        l2: pull of the leaves' values towards 0 (lambda)
        min_gain: what a split has to lower the loss by (gamma)
        min_child_weight: least sum of second derivatives on either side of a split
        columns: share of the columns that each tree looks at
    """

    trees: Annotated[int, Ge(1)] = 100
    depth: Annotated[int, Ge(1)] = 6
    learning_rate: Annotated[float, Gt(0)] = 0.1
    bins: Annotated[int, Interval(ge=2, le=65_535)] = 255
    l2: Annotated[float, Ge(0)] = 1.0
    min_gain: Annotated[float, Ge(0)] = 0.0
    min_child_weight: Annotated[float, Ge(0)] = 1.0
    columns: Annotated[float, Interval(gt=0, le=1)] = 1.0

    @property
    def growth(self) -> Growth:
        """How each tree grows."""
        return Growth(self.depth, self.l2, self.min_gain, self.min_child_weight, self.learning_rate)

    def fit(self, data: Dataset, rng: np.random.Generator, *, weights: NDArray[np.float64] | None = None,
            start: BoostedTrees | None = None) -> BoostedTrees:
        """The ensemble of these rows, or `start` with `trees` more rounds; the rng draws columns."""
        rows, target = numeric_rows(data, "boosted-trees"), data.target
        weights = checked_weights(weights, len(rows))
        model = start or starting_model(data, weights)
        histograms = RowHistograms(rows, Bins(quantile_cuts(rows, self.bins)))
        margins, grown = model.margins(rows), []
        for _ in range(self.trees):
            gradient, curvature = weighted(gradients(model.objective, margins, target), weights)
            for output in range(margins.shape[1]):
                tree = grow_tree(histograms.of(gradient[:, output], curvature[:, output]), histograms.bins, self.growth,
                                 columns=drawn_columns(rows.shape[1], self.columns, rng))
                margins[:, output] += tree.predict(rows)
                grown.append(tree)
        return model.plus(grown)


def starting_model(data: Dataset, weights: NDArray[np.float64] | None = None) -> BoostedTrees:
    """An ensemble without trees, which predicts the same for every row: the class shares or the mean."""
    target, objective = data.schema.target, objective_for(data.schema.target)
    each = np.ones(len(data)) if weights is None else weights
    totals = each @ data.target if objective == "squared" else np.bincount(data.target, each, minlength=target.size)
    return BoostedTrees(objective, base_margins(objective, totals, each.sum()))


def weighted(derivatives: Pair, weights: NDArray[np.float64] | None) -> Pair:
    """First and second derivatives of rows that count more than once."""
    if weights is None:
        return derivatives
    return derivatives[0] * weights[:, None], derivatives[1] * weights[:, None]


def drawn_columns(columns: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_] | None:
    """Which columns a tree may look at; None for all of them, without a draw."""
    if share >= 1:
        return None
    chosen = np.zeros(columns, dtype=bool)
    chosen[rng.permutation(columns)[:max(round(share * columns), 1)]] = True
    return chosen


def grow_tree(histogram_of: HistogramOf, bins: Bins, growth: Growth, *,
              columns: NDArray[np.bool_] | None = None) -> RegressionTree:
    """Grow a tree level by level from histograms, of one party's rows or summed over many parties.

    `histogram_of(tree, nodes)` gives the sums of gradients and of second derivatives, both (nodes, places of `bins`),
    of the rows that the tree, as far as it has grown, takes to these nodes. It is asked once a level: for the root,
    then for the lighter child of each split, because the other one is what remains of their parent.
    """
    tree = _Growing(bins, growth, columns)
    nodes = np.zeros(1, dtype=np.int64)
    gradient, curvature = histogram_of(tree.so_far(), nodes)
    tree.start(gradient[0], curvature[0])
    for level in range(1, growth.depth + 1):
        split = tree.split(nodes, gradient, curvature)
        if level == growth.depth or not split.any():
            break
        light, heavy = tree.last_pairs()
        below = histogram_of(tree.so_far(), light)
        gradient = np.concatenate([below[0], gradient[split] - below[0]])
        curvature = np.concatenate([below[1], curvature[split] - below[1]])
        nodes = np.concatenate([light, heavy])
    return tree.so_far()


class _Growing:
    """The arrays of a tree that is still growing."""

    def __init__(self, bins: Bins, growth: Growth, columns: NDArray[np.bool_] | None) -> None:
        self.bins, self.growth = bins, growth
        self.allowed = np.isfinite(bins.threshold) & (True if columns is None else columns[bins.column])
        self.place: list[int] = [LEAF]
        self.children: list[tuple[int, int]] = [(LEAF, LEAF)]
        self.sums: list[tuple[float, float]] = [(0.0, 0.0)]
        self.gain: list[float] = [0.0]
        self.pairs: list[int] = []

    def start(self, gradient: NDArray[np.float64], curvature: NDArray[np.float64]) -> None:
        """The root's sums, by the bins of the first column."""
        first = slice(0, int(self.bins.sizes[0]))
        self.sums[0] = (float(gradient[first].sum()), float(curvature[first].sum()))

    def so_far(self) -> RegressionTree:
        """The tree as far as it has grown."""
        place, sums = np.array(self.place), np.array(self.sums)
        inner = place != LEAF
        weight = sums[:, 1] + self.growth.l2
        value = -self.growth.learning_rate * np.divide(sums[:, 0], weight, out=np.zeros(len(sums)), where=weight > 0)
        return RegressionTree(np.where(inner, self.bins.column[place], LEAF).astype(np.int32),
                              np.where(inner, self.bins.threshold[place], 0.0),
                              np.array(self.children, dtype=np.int32), value, np.array(self.gain))

    def split(self, nodes: NDArray[np.int64], gradient: Array, curvature: Array) -> NDArray[np.bool_]:
        """Split the nodes where that earns enough; says which were."""
        self.pairs = []
        done = [self._split_one(int(node), *sums) for node, *sums in zip(nodes, gradient, curvature, strict=True)]
        return np.array(done)

    def last_pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The children of the nodes that were split last, the lighter one of each pair first."""
        left = np.array(self.pairs)
        heavier = np.array([self.sums[node][1] > self.sums[node + 1][1] for node in self.pairs], dtype=np.int64)
        return left + heavier, left + 1 - heavier

    def _split_one(self, node: int, gradient: NDArray[np.float64], curvature: NDArray[np.float64]) -> bool:
        left, right = self._sides(gradient)
        left_weight, right_weight = self._sides(curvature)
        gain, tolerance = self._gains(node, (left, left_weight), (right, right_weight))
        best = gain.max()
        if not best > tolerance:
            return False
        place = int((gain >= best - tolerance).argmax())
        self.place[node], self.gain[node] = place, float(gain[place])
        self.children[node] = (len(self.place), len(self.place) + 1)
        self.pairs.append(len(self.place))
        self.sums += [(float(left[place]), float(left_weight[place])),
                      (float(right[place]), float(right_weight[place]))]
        self.place += [LEAF, LEAF]
        self.children += [(LEAF, LEAF), (LEAF, LEAF)]
        self.gain += [0.0, 0.0]
        return True

    def _sides(self, sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sums up to each bin, and above it, within its column."""
        totals = np.add.reduceat(sums, self.bins.starts)
        changed = sums.copy()
        # What a column adds up to is taken off where the next one starts. Columns' totals differ by rounding, so it has
        # to be each one's own: the differences would add up.
        changed[self.bins.starts[1:]] -= totals[:-1]
        below = changed.cumsum()
        return below, totals[self.bins.column] - below

    def _gains(self, node: int, left: Pair, right: Pair) -> tuple[NDArray[np.float64], float]:
        """What splitting above each place would lower the loss by, and how much of that may be rounding."""
        l2, (total, weight) = self.growth.l2, self.sums[node]
        smallest = max(self.growth.min_child_weight * (1 - _ROUNDING), _ROUNDING * weight, 1e-12)
        usable = self.allowed & (left[1] >= smallest) & (right[1] >= smallest)
        now = total ** 2 / (weight + l2) / 2 if weight + l2 > 0 else 0.0
        gain = np.full(len(self.allowed), -np.inf)
        gain[usable] = sum(side[0][usable] ** 2 / (side[1][usable] + l2) / 2 for side in (left, right)) - now
        return gain - self.growth.min_gain, _ROUNDING * max(now, float(gain.max(initial=0.0)))
