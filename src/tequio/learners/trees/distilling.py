"""One small tree straight from the leaves of many trees, without the product of their rules.

A node holds, of every tree, the leaves that reach into it and how many rows of each class each is thought to have there.
It says what the trees' vote says on average over those rows. A split is worth the impurity of the vote that it removes,
weighed by rows, and the node that gains most is split first, so the tree is good at any size.

How many rows of a leaf go which way is known where the leaf lies on one side of a split. For a leaf on both sides it
follows from the other trees: those that tell the sides apart say how many rows of a class each side has (the more rows a
tree can tell apart, the more it counts), and what a side lacks is taken from the leaves on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.trees.best_first import Node, Split, everywhere, grow_best_first
from tequio.learners.trees.candidates import candidates_of
from tequio.learners.trees.growing import with_least
from tequio.learners.trees.rules import stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree

_TRUST = 8  # power of the share of its rows that a tree can tell apart
_DIGITS = 10  # gains a row that differ less differ by rounding only
_LEAST_ROWS = 1e-9  # keeps branches in which no row is thought to be


def distil(lists: Sequence[Rules], *, leaves: int | None = None, depth: int | None = None) -> Tree:
    """The tree of the vote of these trees' rules. Nodes are numbered as they are made, the splits that tell most first."""
    rules, trees = stacked(lists), np.repeat(np.arange(len(lists)), [len(own) for own in lists])
    rows = np.concatenate([with_least(own.covered) for own in lists])
    # Every tree speaks of the same rows.
    by_tree = _sum_by(trees, rows, len(lists))
    whole = by_tree.mean(axis=0)
    rows = rows * _ratio(whole, by_tree)[trees]
    root = Node(np.arange(len(rules)), rows, everywhere(rules.low.shape[1]), float(whole.sum()))
    return grow_best_first(_VoteSplitter(rules, trees), root, rules.kind, leaves=leaves, depth=depth)


@dataclass(frozen=True)
class _Candidate:
    """The best split of a node: which one, what it gains, and how it deals the rows of each class.

    branches:   those that there will be
    shares:     (branches, classes) of the node's rows
    undecided:  (branches, trees, classes) of a tree's rows in leaves that reach into every branch
    """

    number: int
    gain: float
    branches: NDArray[np.intp]
    shares: NDArray[np.float64]
    undecided: NDArray[np.float64]


class _VoteSplitter:
    """Splits nodes of leaves of several trees; the leaves of a tree stand together."""

    def __init__(self, rules: Rules, trees: NDArray[np.intp]) -> None:
        self._candidates, self._trees = candidates_of(rules), trees
        self._votes = rules.decisive / rules.decisive.sum(axis=1, keepdims=True)

    def counts(self, node: Node) -> NDArray[np.float64]:
        """The trees' vote, scaled to the node's rows."""
        votes = _votes(self._table(node).sum(axis=0))
        return votes * (node.rows / votes.sum())

    def split(self, node: Node) -> Split | None:
        """The split that removes most impurity; nothing where all parts of the node vote for the same class."""
        best = None if self._decided(node) else self._best(node)
        if best is None:
            return None
        column, cut = self._candidates.place(best.number)
        reaching = [self._candidates.reaching(node.which, best.number, int(branch)) for branch in best.branches]
        on_every = np.logical_and.reduce(reaching)
        children = tuple(self._child(node, best, int(branch), reaches, on_every)
                         for branch, reaches in zip(best.branches, reaching, strict=True))
        return Split(best.gain, column, cut, tuple(best.branches.tolist()), children)

    def _decided(self, node: Node) -> bool:
        """Whether one class wins wherever in the node the trees' leaves happen to meet."""
        votes, starts = self._votes[node.which], np.flatnonzero(np.diff(self._trees[node.which], prepend=-1))
        winner = int(self.counts(node).argmax())
        lead = np.minimum.reduceat(votes[:, [winner]] - votes, starts).sum(axis=0)
        return bool((lead[:winner] > 0).all() and (lead[winner:] >= 0).all())

    def _best(self, node: Node) -> _Candidate | None:
        table = self._table(node)
        whole = table.sum(axis=0)
        candidates = self._candidates.inside(node.box)
        # The last column counts leaves.
        flat = np.concatenate([table.reshape(len(table), -1), np.ones((len(table), 1))], axis=1)
        only = self._candidates.only(node.which, flat, candidates)
        present = only[:, :, -1] > 0.5
        allowed = np.flatnonzero(present.sum(axis=1) > 1)
        if not len(allowed):
            return None
        only = np.maximum(only[allowed, :, :-1], 0.0).reshape(len(allowed), -1, *whole.shape)
        gain, shares, undecided = _gains(only, whole, present[allowed])
        best = int(np.round(gain / node.rows, _DIGITS).argmax())
        return _Candidate(int(candidates[allowed[best]]), float(gain[best]), np.flatnonzero(present[allowed[best]]),
                          shares[best], undecided[best])

    def _table(self, node: Node) -> NDArray[np.float64]:
        """(leaves, trees, 2 * classes): rows of each class, then votes times rows, at the place of the leaf's tree."""
        trees, of_leaf = np.unique(self._trees[node.which], return_inverse=True)
        classes = node.weights.shape[1]
        table = np.zeros((len(node.which), len(trees), 2 * classes))
        each = np.arange(len(table))
        table[each, of_leaf, :classes] = node.weights
        table[each, of_leaf, classes:] = node.weights.sum(axis=1, keepdims=True) * self._votes[node.which]
        return table

    def _child(self, node: Node, split: _Candidate, branch: int, reaches: NDArray[np.bool_],
               on_every: NDArray[np.bool_]) -> Node:
        trees, of_leaf = np.unique(self._trees[node.which], return_inverse=True)
        weights = np.where(on_every[:, None], split.undecided[branch, of_leaf], 1.0) * node.weights + _LEAST_ROWS ** 2
        rows = split.shares[branch] * self._rows(node) + _LEAST_ROWS
        own = _sum_by(of_leaf[reaches], weights[reaches], len(trees))
        weights = weights[reaches] * _ratio(np.broadcast_to(rows, own.shape), own)[of_leaf[reaches]]
        return Node(node.which[reaches], weights, self._candidates.within(node.box, split.number, branch),
                    float(rows.sum()), node.depth + 1)

    def _rows(self, node: Node) -> NDArray[np.float64]:
        """The node's rows of each class, on which its trees agree."""
        first = self._trees[node.which] == self._trees[node.which[0]]
        rows: NDArray[np.float64] = node.weights[first].sum(axis=0)
        return rows


def _gains(only: NDArray[np.float64], whole: NDArray[np.float64],
           present: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """What each candidate gains, and how it deals rows: `shares` and `undecided` of every candidate.

    `only` is (candidates, branches, trees, 2 * classes), the table summed over leaves that lie in one branch; `whole` is
    the sum over all.
    """
    classes = whole.shape[1] // 2
    rows, known = whole[0, :classes], only[..., :classes]
    told = known.sum(axis=1)
    told_share = told.sum(axis=2) / rows.sum()
    trust = (told_share ** _TRUST)[..., None]
    shares = _ratio((trust[:, None] * known).sum(axis=2), (trust * told).sum(axis=1)[:, None]) * present[:, :, None]
    lacking = np.maximum(rows * shares[:, :, None] - known, 0.0)
    needed = lacking.sum(axis=1, keepdims=True)
    undecided = np.where(needed > 0, _ratio(lacking, needed), shares[:, :, None])
    rest = np.maximum(whole - only.sum(axis=1), 0.0)
    votes = _branch_votes(only, rest, undecided)
    dealt = (shares * rows).sum(axis=2)
    gain = dealt.sum(axis=1) * _impurity((dealt[:, :, None] * votes).sum(axis=1)) - (dealt * _impurity(votes)).sum(axis=1)
    # A split that no tree can tell for most of the rows is a guess.
    return gain * told_share.max(axis=1), shares, undecided


def _branch_votes(only: NDArray[np.float64], rest: NDArray[np.float64],
                  undecided: NDArray[np.float64]) -> NDArray[np.float64]:
    """(candidates, branches, classes): the trees' votes in each branch."""
    classes = only.shape[3] // 2
    open_rows = rest[:, None, :, :classes]
    share = _ratio((undecided * open_rows).sum(axis=3), open_rows.sum(axis=3))[..., None]
    rows = only[..., :classes].sum(axis=3, keepdims=True) + share * open_rows.sum(axis=3, keepdims=True)
    return _ratio(only[..., classes:] + share * rest[:, None, :, classes:], rows).sum(axis=2)


def _votes(by_tree: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over trees of their mean votes, each weighed by its own rows."""
    classes = by_tree.shape[-1] // 2
    return _ratio(by_tree[..., classes:], by_tree[..., :classes].sum(axis=-1, keepdims=True)).sum(axis=-2)


def _impurity(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = _ratio(votes, votes.sum(axis=-1, keepdims=True))
    impurity: NDArray[np.float64] = 1.0 - (shares ** 2).sum(axis=-1)
    return impurity


def _sum_by(places: NDArray[np.intp], rows: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    sums = np.zeros((count, rows.shape[1]))
    np.add.at(sums, places, rows)
    return sums


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole, and 0 where there is nothing to divide by."""
    part, whole = np.broadcast_arrays(part, whole)
    ratio: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
    return ratio
