"""Splits of the rules of mixed trees, with each column in a few cells.

Between two neighbouring bounds that any rule has on a number no rule changes its mind, so these intervals are the cells
of the column; the categories of a column are cells as they are; missing values are the last cell. A rule, and where a
node lies, is then a set of cells of each column, and a candidate deals the cells of one column to branches.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.trees.best_first import Place
from tequio.learners.trees.tree import EVERY_NUMBER, LEAF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.learners.trees.best_first import Box, Node
    from tequio.learners.trees.rules import Rules

    Cellwise = NDArray[np.bool_]


class Cells:
    """Candidates in the order of columns. Categories whose rules name one category each have a branch a category."""

    def __init__(self, rules: Rules) -> None:
        assert rules.allowed is not None
        assert rules.gaps is not None
        self._columns = [_Column(rules, column) for column in np.flatnonzero(rules.bound.any(axis=0)).tolist()]
        self._by_category = all(column.names_one for column in self._columns)
        deals = [list(column.deals(by_category=self._by_category)) for column in self._columns]
        self._places = [place for place, _ in chain.from_iterable(deals)]
        self._branches = [branch for _, branch in chain.from_iterable(deals)]
        self._of = np.repeat(np.arange(len(deals)), [len(found) for found in deals])
        self._width = max((int(branch.max()) + 1 for branch in self._branches), default=2)

    def everywhere(self) -> Box:
        """All cells."""
        return tuple(np.ones(column.rules.shape[1], dtype=bool) for column in self._columns)

    def inside(self, box: Box) -> NDArray[np.intp]:
        """Those that deal the cells of the node to two branches or more."""
        inside = [len(np.unique(branch[box[of]])) > 1 for of, branch in zip(self._of, self._branches, strict=True)]
        return np.flatnonzero(inside)

    def only(self, node: Node, parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> NDArray[np.float64]:
        """Sums over the rules whose cells, where the node lies, all belong to one branch."""
        sums = np.zeros((len(candidates), self._width, parts.shape[1]))
        for of in np.unique(self._of[candidates]).tolist():
            here = np.flatnonzero(self._of[candidates] == of)
            cells = self._columns[of].rules[node.which] & node.box[of]
            if self._by_category and self._columns[of].gaps and not self._columns[of].is_number:
                # A category's rule that takes in missing values too is still that category's.
                cells[:, -1] &= ~cells[:, :-1].any(axis=1)
            cells = cells.astype(np.float32)
            branches = np.stack([self._branches[candidate] for candidate in candidates[here].tolist()])
            size = cells.sum(axis=1)[:, None]
            for branch in range(int(branches.max()) + 1):
                alone = cells @ (branches == branch).T.astype(np.float32) == size
                sums[here, branch] = alone.T.astype(np.float64) @ parts
        return sums

    def place(self, candidate: int) -> Place:
        """Column, cut, and the branch of each category."""
        return self._places[candidate]

    def reaching(self, node: Node, candidate: int, branch: int) -> Cellwise:
        """Rules that have a cell of the branch, where the node lies."""
        of = self._of[candidate]
        cells = self._columns[of].rules[node.which] & node.box[of]
        reaches: Cellwise = cells[:, self._branches[candidate] == branch].any(axis=1)
        return reaches

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """The cells of the branch."""
        of = int(self._of[candidate])
        return (*box[:of], box[of] & (self._branches[candidate] == branch), *box[of + 1:])


class _Column:
    """The cells of a column, and which of them each rule has: (rules, cells), the last for missing values if met."""

    def __init__(self, rules: Rules, column: int) -> None:
        assert rules.allowed is not None
        assert rules.gaps is not None
        low, high, allowed = rules.low[:, column], rules.high[:, column], rules.allowed[:, column]
        bounds = np.unique(np.concatenate([low, high]))
        self.column, self.gaps, self.categories = column, bool(rules.gaps[column]), allowed.shape[1] - 1
        self.cuts = bounds[np.abs(bounds) <= EVERY_NUMBER]
        self.is_number = bool(allowed[:, :-1].all()) and not any(of == column for of, _ in rules.sets)
        self.sets = sorted(codes for of, codes in rules.sets if of == column)
        if self.is_number:
            ends = np.concatenate([[-np.inf], self.cuts, [np.inf]])
            known = (low[:, None] <= ends[:-1]) & (high[:, None] >= ends[1:])
        else:
            known = allowed[:, :-1]
        self.rules = np.concatenate([known, allowed[:, -1:]], axis=1) if self.gaps else known

    @property
    def names_one(self) -> bool:
        """Whether each rule on categories has a single one of them, or all."""
        known = self.rules[:, :self.categories]
        return self.is_number or bool((known.all(axis=1) | (known.sum(axis=1) <= 1)).all())

    def deals(self, *, by_category: bool) -> Iterator[tuple[Place, NDArray[np.int64]]]:
        """Where the column can be split, and the branch of each cell."""
        size = self.rules.shape[1]
        if self.is_number:
            for index, cut in enumerate(self.cuts.tolist()):
                right = (np.arange(size) > index).astype(np.int64)
                for missing in ((1, 0) if self.gaps and cut < EVERY_NUMBER else (1,)):
                    if self.gaps:
                        right[-1] = missing
                    yield Place(self.column, cut, (0, 1, missing if self.gaps else LEAF)), right.copy()
        elif by_category:
            branch = np.arange(size)
            yield self._on_categories(branch), branch
        else:
            for codes in self.sets:
                for missing in ((0, 1) if self.gaps else (0,)):
                    branch = np.isin(np.arange(size), codes).astype(np.int64)
                    if self.gaps:
                        branch[-1] = missing
                    yield self._on_categories(branch), branch

    def _on_categories(self, branch: NDArray[np.int64]) -> Place:
        ways = branch.tolist()
        return Place(self.column, float("nan"), tuple(ways if self.gaps else [*ways, LEAF]))
