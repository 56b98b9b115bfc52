"""Growing a tree from rules node by node, those first whose split tells most.

Where a node that holds rules can be split, and what each branch would hold, is worked out for all candidates at once.
Each rule stands in a sparse table (rules x places) at the places of its bounds; a place is a cut of a column, or one of
its categories. A product of the table with whatever is to be summed over rules, and running sums over the places of a
column, give the sums over the rules that lie in one branch alone. All other rules reach into every branch.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from tequio.learners.trees.tree import LEAF, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Kind

    Box = tuple[Array, ...]
    """Where the rows of a node lie: above the first and up to the second on every column, or in which cells of each."""


@dataclass(frozen=True)
class Node:
    """A node that is not split yet: the rules that reach it, where it lies, and how many rows it is thought to have.

    `masses` are rows by rule, for those who care.
    """

    which: NDArray[np.intp] = field(repr=False)
    box: Box = field(repr=False)
    rows: float
    depth: int = 0
    masses: NDArray[np.float64] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Split:
    """How a node is split, and how much that tells. Child k is at place `branches[k]`."""

    gain: float
    place: Place
    branches: tuple[int, ...]
    children: tuple[Node, ...] = field(repr=False)


class Place(NamedTuple):
    """Where a candidate splits: the column, the cut (NaN for categories), and for mixed trees each category's branch.

    The last of the `ways` is the branch of missing values, -1 where nobody has met any.
    """

    column: int
    cut: float
    ways: tuple[int, ...] = ()


class Splitter(Protocol):
    """Knows what a node says and how it is split best."""

    def counts(self, node: Node) -> NDArray[np.float64]:
        """Rows of each class that the node is thought to have; of numbers its rows and their mean."""
        ...

    def split(self, node: Node) -> Split | None:
        """The best split of a node, or nothing where it should be a leaf."""
        ...


def everywhere(columns: int) -> Box:
    """Where the root lies."""
    return np.full(columns, -np.inf), np.full(columns, np.inf)


def grow_best_first(splitter: Splitter, root: Node, kind: Kind, *, depth: int | None = None,
                    leaves: int | None = None, means: bool = False) -> tuple[Tree, int]:
    """The tree below a root, and how many of its leaves would have been split had more of them been allowed.

    Nodes are numbered as they are made, so a tree of fewer leaves is its start.
    """
    growth = _Growth(splitter, depth)
    growth.add(root)
    ends, unsplit = 1, 0
    while growth.waiting:
        _, number, split = heapq.heappop(growth.waiting)
        if leaves is not None and ends + len(split.branches) - 1 > leaves:
            unsplit += 1
            continue
        ends += len(split.branches) - 1
        growth.made[number] = split
        growth.first_child[number] = len(growth.counts)
        for child in split.children:
            growth.add(child)
    return growth.tree(kind, means), unsplit


class _Growth:
    """The nodes so far: what they say, how those that were split were split, and whose split is waiting."""

    def __init__(self, splitter: Splitter, depth: int | None) -> None:
        self._splitter, self._depth = splitter, depth
        self.counts: list[NDArray[np.float64]] = []
        self.made: dict[int, Split] = {}
        self.first_child: dict[int, int] = {}
        self.waiting: list[tuple[float, int, Split]] = []

    def add(self, node: Node) -> None:
        """A new node, with its best split put in line."""
        self.counts.append(self._splitter.counts(node))
        split = self._splitter.split(node) if self._depth is None or node.depth < self._depth else None
        if split is not None:
            heapq.heappush(self.waiting, (-split.gain, len(self.counts) - 1, split))

    def tree(self, kind: Kind, means: bool) -> Tree:
        """The nodes as arrays."""
        widest = max((split.branches[-1] + 1 for split in self.made.values()), default=1)
        widest = max([widest, *(len(split.place.ways) - 1 for split in self.made.values())])
        size, width = len(self.counts), 2 if kind == "binary" else max(widest, 2) if kind == "mixed" else widest
        feature, threshold = np.full(size, LEAF, dtype=np.int32), np.full(size, np.nan)
        children, missing = np.full((size, width), LEAF, dtype=np.int32), np.full(size, LEAF, dtype=np.int32)
        for number, split in self.made.items():
            feature[number], threshold[number] = split.place.column, split.place.cut
            first = self.first_child[number]
            if not split.place.ways:
                children[number, list(split.branches)] = first + np.arange(len(split.branches))
                continue
            # Branches without a child of their own lead nowhere; the last entry stands for them.
            numbers = np.full(max(split.place.ways) + 2, LEAF, dtype=np.int32)
            numbers[list(split.branches)] = first + np.arange(len(split.branches))
            ways = numbers[list(split.place.ways)]
            missing[number] = ways[-1]
            if np.isnan(split.place.cut):
                children[number, :len(ways) - 1] = ways[:-1]
            else:
                children[number, :2] = first, first + 1
        counts = np.stack(self.counts)
        return Tree(kind, feature, threshold, children, counts[:, :1] if means else counts,
                    missing if kind == "mixed" else None, counts[:, 1] if means else None)


class Candidates(Protocol):
    """The splits of rules of one kind."""

    def everywhere(self) -> Box:
        """Where the root lies."""
        ...

    def inside(self, box: Box) -> NDArray[np.intp]:
        """Numbers of the candidates that split a node that lies there; by column, then by cut."""
        ...

    def only(self, node: Node, parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> NDArray[np.float64]:
        """(candidates, branches, parts): sums over those of the node's rules that lie in one branch alone."""
        ...

    def place(self, candidate: int) -> Place:
        """Where it splits."""
        ...

    def reaching(self, node: Node, candidate: int, branch: int) -> NDArray[np.bool_]:
        """Which of the node's rules reach into a branch."""
        ...

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """Where the rows of a branch lie."""
        ...


def candidates_of(rules: Rules) -> Candidates:
    """The splits of these rules."""
    if rules.kind == "mixed":
        from tequio.learners.trees.cells import Cells

        return Cells(rules)
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

    def everywhere(self) -> Box:
        """No bounds."""
        return everywhere(self._low.shape[1])

    def inside(self, box: Box) -> NDArray[np.intp]:
        """The cuts strictly inside."""
        return np.flatnonzero((self._cut > box[0][self._column]) & (self._cut < box[1][self._column]))

    def only(self, node: Node, parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> NDArray[np.float64]:
        """Sums over the rules that end at the cut or before, and over those that start at the cut or after."""
        starts, ends = (_running(table[node.which].T @ parts) for table in (self._starts, self._ends))
        left = ends[candidates + 1] - ends[self._first[candidates]]
        right = starts[self._after[candidates]] - starts[candidates]
        return np.stack([left, right], axis=1)

    def place(self, candidate: int) -> Place:
        """Column and cut."""
        return Place(int(self._column[candidate]), float(self._cut[candidate]))

    def reaching(self, node: Node, candidate: int, branch: int) -> NDArray[np.bool_]:
        """Rules that start before the cut, or end after it."""
        column, cut, _ = self.place(candidate)
        low, high = self._low[node.which, column], self._high[node.which, column]
        reaches: NDArray[np.bool_] = high > cut if branch else low < cut
        return reaches

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """The box cut in two."""
        column, cut, _ = self.place(candidate)
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

    def everywhere(self) -> Box:
        """Not needed to tell candidates from others."""
        return everywhere(self._columns)

    def inside(self, box: Box) -> NDArray[np.intp]:
        """All columns: one that was split on above tells nothing more."""
        return np.arange(self._columns)

    def only(self, node: Node, parts: NDArray[np.float64], candidates: NDArray[np.intp]) -> NDArray[np.float64]:
        """Sums over the rules that ask for a category."""
        sums: NDArray[np.float64] = (self._table[node.which].T @ parts).reshape(self._columns, self._width, -1)
        return sums[candidates]

    def place(self, candidate: int) -> Place:
        """The column; there is no cut."""
        return Place(candidate, float("nan"))

    def reaching(self, node: Node, candidate: int, branch: int) -> NDArray[np.bool_]:
        """Rules that ask for the category or for none."""
        codes = self._codes[node.which, candidate]
        reaches: NDArray[np.bool_] = (codes == branch) | (codes < 0)
        return reaches

    def within(self, box: Box, candidate: int, branch: int) -> Box:
        """Not needed to tell candidates from others."""
        return box


def _finite(bounds: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Rule, column and value of every finite bound."""
    rule, column = np.nonzero(np.isfinite(bounds))
    return rule, column, bounds[rule, column]


def _table(rule: Array, place: Array, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((np.ones(len(rule)), (rule, place)), shape=shape)


def _running(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over all before a place; one more place than values."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
