"""Taking many rows down a tree at once: a few table look-ups a level, no branch a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAF = -1
"""Stands for "no feature" at a leaf and for "no child"."""

_ROWS_AT_A_TIME = 8192  # keeps the working arrays in the cache
_LEVELS_AT_A_TIME = 4  # how often rows that have arrived are set aside


@dataclass(frozen=True, eq=False)
class Walk:
    """Look-up tables of a tree. At a leaf, and where there is no child, the way on leads back to the node itself.

    column:     (nodes,) column that a node looks at; 0 at leaves, where it does not matter
    threshold:  (nodes,) where a binary node splits; None in a multiway tree
    onward:     (nodes * width,) the next node; multiway trees have one more place a node, for categories never met
    """

    column: NDArray[np.intp]
    threshold: NDArray[np.float64] | None = field(repr=False)
    onward: NDArray[np.intp] = field(repr=False)
    width: int
    levels: int
    leaf: NDArray[np.bool_] = field(repr=False)

    @classmethod
    def of(cls, feature: NDArray[Any], children: NDArray[Any], threshold: NDArray[np.float64] | None) -> Walk:
        """The tables of a tree of which children come after their parents."""
        width = children.shape[1] + (threshold is None)
        onward = np.repeat(np.arange(len(feature), dtype=np.intp)[:, None], width, axis=1)
        node, place = np.nonzero(children != LEAF)
        onward[node, place] = children[node, place]
        return cls(np.maximum(feature, 0).astype(np.intp), threshold, onward.reshape(-1), width,
                   int(node_depths(children).max()), feature == LEAF)

    def find(self, features: NDArray[Any]) -> NDArray[np.intp]:
        """The node where each row ends."""
        found = np.zeros(len(features), dtype=np.intp)
        for start in range(0, len(features), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            self._descend(np.ascontiguousarray(features[part]), found[part])
        return found

    def step(self, here: NDArray[np.intp], flat: NDArray[Any], row_starts: NDArray[np.intp]) -> NDArray[np.intp]:
        """One level down from node `here`, for rows that start at these places of the flattened features."""
        values = flat.take(row_starts + self.column.take(here))
        if self.threshold is not None:
            # A missing value compares false, so it goes right; `values > threshold` would send it left.
            return self.onward.take(2 * here + ~(values <= self.threshold.take(here)))
        known = (values >= 0) & (values < self.width - 1)
        return self.onward.take(here * self.width + np.where(known, values, self.width - 1).astype(np.intp))

    def _descend(self, features: NDArray[Any], found: NDArray[np.intp]) -> None:
        flat, rows = features.reshape(-1), np.arange(len(features))
        for top in range(0, self.levels, _LEVELS_AT_A_TIME):
            here, row_starts = found[rows], rows * features.shape[1]
            for _ in range(min(_LEVELS_AT_A_TIME, self.levels - top)):
                here = self.step(here, flat, row_starts)
            found[rows] = here
            rows = rows[~self.leaf.take(here)]
            if not len(rows):
                return


def node_depths(children: NDArray[Any]) -> NDArray[np.int64]:
    """Edges from the root to each node, of a tree of which children come after their parents."""
    depths = np.zeros(len(children), dtype=np.int64)
    level = np.zeros(1, dtype=np.int64)
    for depth in range(len(children)):
        depths[level] = depth
        below = children[level]
        level = below[below != LEAF]
        if not len(level):
            break
    return depths
