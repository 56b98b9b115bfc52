"""Where a node that holds rules can be split, and what each branch would hold, for all candidates at once.

Each rule stands in a sparse table (rules x places) at the places of its bounds; a place is a cut of a column, or one of
its categories. A product of the table with whatever is to be summed over rules, and running sums over the places of a
column, give the sums over the rules that lie in one branch alone. All other rules reach into every branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.trees.rules import Rules

    Box = tuple[NDArray[np.float64], NDArray[np.float64]]
    """Where the rows of a node lie: above the first and up to the second on every column."""


class Candidates(Protocol):
    """The splits of rules of one kind."""

    def inside(self, box: Box) -> NDArray[np.intp]:
        """Numbers of the candidates that split a node that lies there; by column, then by cut."""
        ...

    def only(self, which: NDArray[np.intp], parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> \
            NDArray[np.float64]:
        """(candidates, branches, parts): sums over those of the rules that lie in one branch alone."""
        ...

    def place(self, candidate: int) -> tuple[int, float]:
        """Column and cut (NaN for categories)."""
        ...

    def reaching(self, which: NDArray[np.intp], candidate: int, branch: int) -> NDArray[np.bool_]:
        """Which of the rules reach into a branch."""
        ...

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """Where the rows of a branch lie."""
        ...


def candidates_of(rules: Rules) -> Candidates:
    """The splits of these rules."""
    return Cuts(rules) if rules.kind == "binary" else Categories(rules)


class Cuts:
    """Branch 0 is x <= cut, branch 1 is x > cut."""

    def __init__(self, rules: Rules) -> None:
        self._low, self._high = rules.low, rules.high
        bounds = zip(_finite(rules.low), _finite(rules.high), strict=True)
        rule, column, value = (np.concatenate(part) for part in bounds)
        places, place = np.unique(np.stack([column, value], axis=1), axis=0, return_inverse=True)
        self._column, self._cut = places[:, 0].astype(np.intp), places[:, 1]
        self._first = np.searchsorted(self._column, self._column, side="left")
        self._after = np.searchsorted(self._column, self._column, side="right")
        lows, shape = int(np.isfinite(rules.low).sum()), (len(rules), len(places))
        self._starts = _table(rule[:lows], place.reshape(-1)[:lows], shape)
        self._ends = _table(rule[lows:], place.reshape(-1)[lows:], shape)

    def inside(self, box: Box) -> NDArray[np.intp]:
        """The cuts strictly inside."""
        return np.flatnonzero((self._cut > box[0][self._column]) & (self._cut < box[1][self._column]))

    def only(self, which: NDArray[np.intp], parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> \
            NDArray[np.float64]:
        """Sums over the rules that end at the cut or before, and over those that start at the cut or after."""
        starts, ends = (_running(table[which].T @ parts) for table in (self._starts, self._ends))
        left = ends[candidates + 1] - ends[self._first[candidates]]
        right = starts[self._after[candidates]] - starts[candidates]
        return np.stack([left, right], axis=1)

    def place(self, candidate: int) -> tuple[int, float]:
        """Column and cut."""
        return int(self._column[candidate]), float(self._cut[candidate])

    def reaching(self, which: NDArray[np.intp], candidate: int, branch: int) -> NDArray[np.bool_]:
        """Rules that start before the cut, or end after it."""
        column, cut = self.place(candidate)
        reaches: NDArray[np.bool_] = self._high[which, column] > cut if branch else self._low[which, column] < cut
        return reaches

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """The box cut in two."""
        column, cut = self.place(candidate)
        low, high = box[0].copy(), box[1].copy()
        (low if branch else high)[column] = cut
        return low, high


class Categories:
    """Branch c is category c of the column."""

    def __init__(self, rules: Rules) -> None:
        self._codes = rules.codes
        self._columns, self._width = self._codes.shape[1], int(self._codes.max(initial=0)) + 1
        rule, column = np.nonzero(rules.bound)
        self._table = _table(rule, column * self._width + self._codes[rule, column],
                             (len(rules), self._columns * self._width))

    def inside(self, box: Box) -> NDArray[np.intp]:
        """All columns: one that was split on above tells nothing more."""
        return np.arange(self._columns)

    def only(self, which: NDArray[np.intp], parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> \
            NDArray[np.float64]:
        """Sums over the rules that ask for a category."""
        sums: NDArray[np.float64] = (self._table[which].T @ parts).reshape(self._columns, self._width, -1)
        return sums[candidates]

    def place(self, candidate: int) -> tuple[int, float]:
        """The column; there is no cut."""
        return candidate, float("nan")

    def reaching(self, which: NDArray[np.intp], candidate: int, branch: int) -> NDArray[np.bool_]:
        """Rules that ask for the category or for none."""
        codes = self._codes[which, candidate]
        reaches: NDArray[np.bool_] = (codes == branch) | (codes < 0)
        return reaches

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """Not needed to tell candidates from others."""
        return box


def _finite(bounds: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Rule, column and value of every finite bound."""
    rule, column = np.nonzero(np.isfinite(bounds))
    return rule, column, bounds[rule, column]


def _table(rule: NDArray[Any], place: NDArray[Any], shape: tuple[int, int]) -> Any:
    return sparse.csr_array((np.ones(len(rule)), (rule, place)), shape=shape)


def _running(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over all before a place; one more place than values."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
