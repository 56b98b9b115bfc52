"""Tables of any kind for learners of numbers: a column of 0 and 1 for each category, which is missing where that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Schema


@dataclass(frozen=True, eq=False)
class Indicators:
    """For each new column which one it comes from, and which category it tells from the others (-1: it is a number)."""

    column: NDArray[np.int64] = field(repr=False)
    category: NDArray[np.int64] = field(repr=False)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers, which stay as they are."""
        return bool((self.category < 0).all())

    def apply(self, rows: Array) -> Array:
        """The new columns of some rows."""
        if self.plain:
            return rows
        taken = np.asarray(rows[:, self.column], dtype=np.float32 if rows.dtype == np.float32 else np.float64)
        same = np.where(np.isnan(taken), np.nan, taken == self.category)
        spread: Array = np.where(self.category < 0, taken, same).astype(taken.dtype)
        return spread

    def original(self, feature: Array, left_of: NDArray[np.float64], children: Array,
                 default: Array) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
        """Column, threshold, children and the child for missing values of trees on the columns that were spread.

        `left_of` are the largest numbers that go left, `default` the child for missing values.
        """
        inner = feature != LEAF
        column = np.where(inner, self.column[feature], LEAF).astype(np.int32)
        category = np.where(inner, self.category[feature], -1)
        width = int(np.bincount(self.column[self.category >= 0], minlength=2).max(initial=2)) if not self.plain else 2
        ways = np.full((len(feature), max(width, 2)), LEAF, dtype=np.int32)
        ways[:, :2] = children
        of_category = np.flatnonzero(category >= 0)
        sizes = np.bincount(self.column)
        for node in of_category.tolist():
            others, own = (int(children[node, int(left_of[node] < value)]) for value in (0.0, 1.0))
            ways[node] = LEAF
            ways[node, :sizes[column[node]]] = others
            ways[node, category[node]] = own
        threshold = np.where(inner & (category < 0), left_of, np.nan)
        return column, threshold, ways, np.where(inner, default, LEAF).astype(np.int32)


@lru_cache(maxsize=64)
def indicators_of(schema: Schema) -> Indicators:
    """The indicators for data of a schema."""
    pairs = [(column, category) for column, feature in enumerate(schema.features)
             for category in ([-1] if feature.domain is None else range(len(feature.domain)))]
    column, category = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Indicators(column, category)
