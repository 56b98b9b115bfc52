"""Growing a tree node by node, those first whose split tells most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tequio.learners.trees.tree import LEAF, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.trees.candidates import Box
    from tequio.learners.trees.tree import Kind


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
    column: int
    cut: float
    branches: tuple[int, ...]
    children: tuple[Node, ...] = field(repr=False)


class Splitter(Protocol):
    """Knows what a node says and how it is split best."""

    def counts(self, node: Node) -> NDArray[np.float64]:
        """Rows of each class that the node is thought to have."""
        ...

    def split(self, node: Node) -> Split | None:
        """The best split of a node, or nothing where it should be a leaf."""
        ...


def everywhere(columns: int) -> Box:
    """Where the root lies."""
    return np.full(columns, -np.inf), np.full(columns, np.inf)


def grow_best_first(splitter: Splitter, root: Node, kind: Kind, *, depth: int | None = None,
                    leaves: int | None = None) -> tuple[Tree, int]:
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
    return growth.tree(kind), unsplit


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

    def tree(self, kind: Kind) -> Tree:
        """The nodes as arrays."""
        widest = max((split.branches[-1] + 1 for split in self.made.values()), default=1)
        size, width = len(self.counts), 2 if kind == "binary" else widest
        feature, threshold = np.full(size, LEAF, dtype=np.int32), np.full(size, np.nan)
        children = np.full((size, width), LEAF, dtype=np.int32)
        for number, split in self.made.items():
            feature[number], threshold[number] = split.column, split.cut
            children[number, list(split.branches)] = self.first_child[number] + np.arange(len(split.branches))
        return Tree(kind, feature, threshold, children, np.stack(self.counts))
