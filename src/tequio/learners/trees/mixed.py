"""Trees on numbers, categories and missing values together, grown level by level from sums by node and place.

A number is split at a threshold, and missing values go to whichever side earns more. Categories are split in one of two
ways. *Multiway* (ID3): a child for each category, and one for missing values where there are any. *Binary* (CART): two
sets of categories, of which missing is one. For two classes, and for numbers as targets, the best of all sets is among
those that start a list of the categories in the order of their mean target (Breiman et al., 1984); for more classes the
list is made for each class against the rest, and each category is tried alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tequio.learners.trees.learner import class_codes, smallest_split
from tequio.learners.trees.places import Places, RowSums
from tequio.learners.trees.pruning import without_weak_branches
from tequio.learners.trees.tree import EVERY_NUMBER, LEAF, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.learners.trees.places import SumsOf

Impurity = Literal["gini", "entropy", "squared"]

_SAME_GAIN = 1e-10  # gains closer than this share of a node's impurity differ by rounding only
_SUM_CELLS = 1 << 23  # 64 MB of sums at a time


@dataclass(frozen=True)
class MixedGrowth:
    """How a tree grows.

    multiway:   a child for each category, which a column then is out of categories for
    impurity:   of classes (gini, entropy), or of numbers (squared: what is summed are 1, numbers and their squares)
    observed:   with `multiway`, only categories met at a node have a child
    drawn:      how many columns each node looks at, drawn at random (0: all)
    ccp_alpha:  what each leaf more has to take off the impurity, or its branch is cut off again
    """

    depth: int
    min_split: float = 2
    min_leaf: float = 1
    multiway: bool = False
    observed: bool = False
    impurity: Impurity = "gini"
    drawn: int = 0
    ccp_alpha: float = 0.0


class MixedRows:
    """A party's rows, from which mixed trees grow; each row counts by its weight."""

    def __init__(self, data: Dataset, rows: Array, learner: str) -> None:
        self.places = Places.of(data, rows)
        self._sums, self.mean = RowSums(rows, self.places), 0.0
        if data.schema.target.kind == "number":
            # Squares of numbers that lie far from 0 would drown what they differ by.
            self.mean = float(np.mean(data.target))
            away = data.target.astype(np.float64) - self.mean
            self._values = np.stack([np.ones(len(away)), away, away ** 2], axis=1)
        else:
            self._values = np.eye(data.schema.target.size)[class_codes(data, learner)]

    def grow(self, how: MixedGrowth, weights: NDArray[np.float64] | None,
             rng: np.random.Generator | None = None) -> Tree:
        """The tree of these rows, by squared error where the target is a number."""
        values = self._values if weights is None else self._values * weights[:, None]
        tree = grow_mixed(self._sums.of(values), self.places, values.shape[1], how, rng)
        return tree if tree.value is None else replace(tree, value=tree.value + self.mean)


def grow_mixed(sums_of: SumsOf, places: Places, values: int, how: MixedGrowth,
               rng: np.random.Generator | None = None) -> Tree:
    """Grow a tree from sums of so many values a place, whoever summed them. It is asked for once a level."""
    growing = _Growing(places, values, how, rng)
    nodes = np.zeros(1, dtype=np.int64)
    for _ in range(how.depth):
        parts = np.array_split(nodes, -(-len(nodes) * places.total * values // _SUM_CELLS))
        nodes = np.concatenate([growing.split(part, sums_of(growing.tree(), part)) for part in parts])
        if not len(nodes):
            break
    if not how.ccp_alpha:
        return growing.tree()
    cost = weighted_impurity(growing.sums, how.impurity) / rows_in(growing.sums[:1], how.impurity)
    return without_weak_branches(growing.tree(), how.ccp_alpha, cost)


class _Best(NamedTuple):
    """The best split of each of some nodes on one column, and which place of the column goes to which branch.

    gain:    (nodes,) what it takes off the impurity; minus infinity where there is none
    branch:  (nodes, places of the column) the number of the branch
    cut:     (nodes,) the threshold, NaN for categories
    """

    gain: NDArray[np.float64]
    branch: NDArray[np.int64]
    cut: NDArray[np.float64]

    def of(self, node: int) -> _Best:
        """That of one node."""
        return _Best(self.gain[node], self.branch[node], self.cut[node])


class _Growing:
    """The arrays of a tree that is still growing, and which columns are used up above each node."""

    def __init__(self, places: Places, values: int, how: MixedGrowth, rng: np.random.Generator | None) -> None:
        self.places, self.how, self.rng = places, how, rng
        self.width = max(2, *places.categories)
        self.feature, self.threshold = np.full(1, LEAF), np.full(1, np.nan)
        self.children, self.missing = np.full((1, self.width), LEAF), np.full(1, LEAF)
        self.sums, self.used = np.zeros((1, values)), np.zeros((1, len(places.sizes)), dtype=bool)
        self.mean = np.zeros(1)

    def tree(self) -> Tree:
        """The tree so far."""
        is_regression = self.how.impurity == "squared"
        counts = self.sums[:, :1] if is_regression else self.sums
        width = max([2, *(self.places.categories[column] for column in set(self.feature.tolist()) if column != LEAF)])
        return Tree("mixed", self.feature.astype(np.int32), self.threshold.copy(),
                    self.children[:, :width].astype(np.int32), counts.copy(), self.missing.astype(np.int32),
                    self.mean.copy() if is_regression else None)

    def split(self, nodes: NDArray[np.int64], table: NDArray[np.float64]) -> NDArray[np.int64]:
        """Split the nodes where that earns anything; gives the new nodes."""
        if len(self.feature) == 1:
            self.sums[:] = table[:, :self.places.sizes[0] + 1].sum(axis=1)
            self.mean[:] = means_of(self.sums, self.mean, self.how.impurity)
        whole = self.sums[nodes]
        impurity, rows = weighted_impurity(whole, self.how.impurity), rows_in(whole, self.how.impurity)
        root = float(weighted_impurity(self.sums[:1], self.how.impurity)[0])
        smallest = smallest_split(self.how.min_split, float(rows_in(self.sums[:1], self.how.impurity)[0]))
        splittable = (rows >= smallest) & (impurity > _SAME_GAIN * root)
        nodes, table, whole, impurity = nodes[splittable], table[splittable], whole[splittable], impurity[splittable]
        if not len(nodes):
            return nodes
        found = [self._on_column(column, table, whole, impurity) for column in range(len(self.places.sizes))]
        gain = self._looked_at(np.where(self.used[nodes], -np.inf, np.stack([best.gain for best in found], axis=1)))
        most = gain.max(axis=1, keepdims=True)
        column = (gain >= most - _SAME_GAIN * impurity[:, None]).argmax(axis=1)
        worth = np.flatnonzero(most[:, 0] > _SAME_GAIN * impurity)
        children = [self._add_children(int(nodes[index]), int(column[index]), found[column[index]].of(index),
                                       self._sums_on(int(column[index]), table[index])) for index in worth.tolist()]
        return np.concatenate([np.zeros(0, dtype=np.int64), *children])

    def _sums_on(self, column: int, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., places of a column, values) of a table."""
        start = int(self.places.starts[column])
        return table[..., start:start + int(self.places.sizes[column]) + 1, :]

    def _looked_at(self, gain: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gains of the columns that each node draws, among those that can be split at all."""
        if self.rng is None or not self.how.drawn:
            return gain
        order = np.where(np.isfinite(gain), self.rng.random(gain.shape), np.inf)
        return np.where(order.argsort(axis=1).argsort(axis=1) < self.how.drawn, gain, -np.inf)

    def _on_column(self, column: int, table: NDArray[np.float64], whole: NDArray[np.float64],
                   impurity: NDArray[np.float64]) -> _Best:
        sums = self._sums_on(column, table)
        if not self.places.categories[column]:
            return self._on_number(sums, whole, impurity, self.places.cuts[column])
        return self._by_category(sums, impurity) if self.how.multiway else self._in_two(sums, whole, impurity)

    def _on_number(self, sums: NDArray[np.float64], whole: NDArray[np.float64], impurity: NDArray[np.float64],
                   cuts: NDArray[np.float64]) -> _Best:
        """x <= cut, with missing values on either side, and missing values against all numbers."""
        below, bins = sums[:, :-1].cumsum(axis=1), sums.shape[1] - 1
        left = np.concatenate([below, below[:, :-1] + sums[:, -1:]], axis=1)
        gain = self._gains(left, whole, impurity)
        best = _first_best(gain)
        missing_left, cut = best >= bins, np.where(best >= bins, best - bins, best)
        branch = (np.arange(bins + 1) > cut[:, None]).astype(np.int64)
        branch[:, -1] = ~missing_left
        return _Best(np.take_along_axis(gain, best[:, None], axis=1)[:, 0], branch,
                     np.append(cuts, EVERY_NUMBER)[cut])

    def _in_two(self, sums: NDArray[np.float64], whole: NDArray[np.float64], impurity: NDArray[np.float64]) -> _Best:
        """Two sets of categories: starts of lists by mean target, and for more than two classes each one alone."""
        count, values = sums.shape[1], sums.shape[2]
        rows = rows_in(sums, self.how.impurity)
        wanted = [1] if self.how.impurity == "squared" or values == 2 else list(range(values))
        chosen: list[NDArray[np.bool_]] = []
        shares = np.divide(sums, rows[:, :, None], out=np.zeros(sums.shape), where=rows[:, :, None] > 0)
        for value in wanted:
            # Where a class is equally frequent the others decide, so that the order of categories does not.
            share = shares[:, :, value] + (_SAME_GAIN * shares @ np.arange(values) if len(wanted) > 1 else 0.0)
            rank = np.where(rows > 0, share, np.inf).argsort(axis=1, kind="stable").argsort(axis=1)
            chosen.append(rank[:, None, :] <= np.arange(count - 1)[:, None])
        if len(wanted) > 1:
            chosen.append(np.broadcast_to(np.eye(count, dtype=bool), (len(sums), count, count)))
        sets = np.concatenate(chosen, axis=1)
        gain = self._gains(sets.astype(np.float64) @ sums, whole, impurity)
        best = _first_best(gain)
        inside = np.take_along_axis(sets, best[:, None, None], axis=1)[:, 0]
        # Categories that nobody has here go to the side with more rows.
        heavy = (rows * inside).sum(axis=1) >= (rows * ~inside).sum(axis=1)
        inside = np.where(rows > 0, inside, heavy[:, None])
        # The side of the first category that occurs is the first child, however the sets were found.
        flip = ~np.take_along_axis(inside, (rows > 0).argmax(axis=1)[:, None], axis=1)
        return _Best(np.take_along_axis(gain, best[:, None], axis=1)[:, 0], (inside == flip).astype(np.int64),
                     np.full(len(sums), np.nan))

    def _by_category(self, sums: NDArray[np.float64], impurity: NDArray[np.float64]) -> _Best:
        """A branch a category. Missing values have one of their own where there are any."""
        rows = rows_in(sums, self.how.impurity)
        gain = impurity - weighted_impurity(sums, self.how.impurity).sum(axis=1)
        usable = ((rows > 0).sum(axis=1) > 1) & np.where(rows > 0, rows >= self.how.min_leaf, True).all(axis=1)
        branch = np.broadcast_to(np.arange(sums.shape[1]), sums.shape[:2])
        return _Best(np.where(usable, gain, -np.inf), branch, np.full(len(sums), np.nan))

    def _gains(self, left: NDArray[np.float64], whole: NDArray[np.float64],
               impurity: NDArray[np.float64]) -> NDArray[np.float64]:
        """(nodes, candidates) what a split in two takes off the impurity, minus infinity where a side is too small."""
        right = whole[:, None] - left
        least = np.minimum(rows_in(left, self.how.impurity), rows_in(right, self.how.impurity))
        gain = impurity[:, None] - weighted_impurity(left, self.how.impurity) - \
            weighted_impurity(right, self.how.impurity)
        return np.where(least >= max(self.how.min_leaf * (1 - _SAME_GAIN), _SAME_GAIN), gain, -np.inf)

    def _add_children(self, node: int, column: int, best: _Best, sums: NDArray[np.float64]) -> NDArray[np.int64]:
        """Split a node; the new nodes are numbered by their branches."""
        rows, branch, number = rows_in(sums, self.how.impurity), best.branch, len(self.feature)
        gaps, is_number = bool(rows[-1] > 0), not np.isnan(best.cut)
        kept = np.append(np.ones(len(branch) - 1, dtype=bool), gaps)
        if not is_number and self.how.multiway and self.how.observed:
            kept = rows > 0
        known, numbered = np.unique(branch[kept], return_inverse=True)
        ways = np.full(len(branch), LEAF)
        ways[kept] = number + numbered.reshape(-1)
        self.feature[node], self.threshold[node], self.missing[node] = column, best.cut, ways[-1]
        if is_number:
            self.children[node, :2] = number, number + 1
        else:
            self.children[node, :len(ways) - 1] = ways[:-1]
        below = np.zeros((len(known), sums.shape[1]))
        np.add.at(below, ways[kept] - number, sums[kept])
        self._append(below, self.mean[node], self._used_below(node, column))
        return number + np.arange(len(known))

    def _append(self, sums: NDArray[np.float64], mean: float, used: NDArray[np.bool_]) -> None:
        """Leaves of these sums; one without rows has the mean of its parent."""
        new = len(sums)
        self.feature = np.concatenate([self.feature, np.full(new, LEAF)])
        self.threshold = np.concatenate([self.threshold, np.full(new, np.nan)])
        self.children = np.concatenate([self.children, np.full((new, self.width), LEAF)])
        self.missing = np.concatenate([self.missing, np.full(new, LEAF)])
        self.sums, self.used = np.concatenate([self.sums, sums]), np.concatenate([self.used, np.tile(used, (new, 1))])
        self.mean = np.concatenate([self.mean, means_of(sums, np.full(new, mean), self.how.impurity)])

    def _used_below(self, node: int, column: int) -> NDArray[np.bool_]:
        used: NDArray[np.bool_] = self.used[node].copy()
        used[column] = self.how.multiway and bool(self.places.categories[column])
        return used


def _first_best(gain: NDArray[np.float64]) -> NDArray[np.int64]:
    """The first of the candidates that are best up to rounding."""
    most = gain.max(axis=1, keepdims=True)
    tolerance = _SAME_GAIN * np.maximum(np.abs(np.where(np.isfinite(most), most, 0.0)), 1.0)
    best: NDArray[np.int64] = (gain >= most - tolerance).argmax(axis=1)
    return best


def rows_in(sums: NDArray[np.float64], impurity: Impurity) -> NDArray[np.float64]:
    """Rows behind sums."""
    rows: NDArray[np.float64] = sums[..., 0] if impurity == "squared" else sums.sum(axis=-1)
    return rows


def means_of(sums: NDArray[np.float64], otherwise: NDArray[np.float64], impurity: Impurity) -> NDArray[np.float64]:
    """The mean target behind sums of numbers; `otherwise` where there are no rows, or no numbers."""
    means = otherwise.copy()
    if impurity == "squared":
        np.divide(sums[:, 1], sums[:, 0], out=means, where=sums[:, 0] > 0)
    return means


def weighted_impurity(sums: NDArray[np.float64], impurity: Impurity) -> NDArray[np.float64]:
    """Rows times their impurity."""
    rows = rows_in(sums, impurity)
    if impurity == "entropy":
        entropy: NDArray[np.float64] = _times_log(rows) - _times_log(sums).sum(axis=-1)
        return entropy
    squares = sums[..., 1] ** 2 if impurity == "squared" else (sums ** 2).sum(axis=-1)
    mean = np.divide(squares, rows, out=np.zeros(rows.shape), where=rows > 0)
    weighted: NDArray[np.float64] = (sums[..., 2] if impurity == "squared" else rows) - mean
    return weighted


def _times_log(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    product: NDArray[np.float64] = counts * np.log2(np.where(counts > 0, counts, 1.0))
    return product
