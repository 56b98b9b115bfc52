"""One small tree straight from the leaves of many trees, without the product of their rules.

A node holds, of every tree, the leaves that reach into it and how many rows each is thought to have there. It says what
the trees' vote says on average over those rows. A split is worth the impurity of the vote that it removes, weighed by
rows, and the node that gains most is split first, so the tree is good at any size. Memory follows the leaves at hand.

How many rows of a leaf go which way is known where the leaf lies on one side of the split. For a leaf that lies on both
sides it follows from the other trees: those that tell the sides apart say how many rows each side has (the more of its
rows a tree can tell apart, the more it counts), and what is missing on a side is taken from the leaves on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.learners.trees.best_first import Node, Split, everywhere, grow_best_first
from tequio.learners.trees.candidates import candidates_of
from tequio.learners.trees.fusion import stacked
from tequio.learners.trees.growing import rule_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree

_TRUST = 8  # power of the share of its rows that a tree can tell apart
_DIGITS = 9
_ANY_MASS = 1e-12


def distil(lists: Sequence[Rules], *, leaves: int | None = None, depth: int | None = None) -> Tree:
    """The tree of the vote of these trees' rules, the splits that tell most first."""
    masses = [rule_weights(rules, "support") for rules in lists]
    rows = max(float(mass.sum()) for mass in masses)
    together = np.concatenate([mass * (rows / mass.sum()) for mass in masses])
    rules = stacked(lists)
    root = Node(np.arange(len(rules)), everywhere(rules.low.shape[1]), rows, masses=together)
    splitter = _VoteSplitter(rules, np.repeat(np.arange(len(lists)), [len(own) for own in lists]))
    return grow_best_first(splitter, root, rules.kind, leaves=leaves, depth=depth)[0]


@dataclass(frozen=True)
class _Shares:
    """How candidates deal a node's rows: to branches by all trees, and what part of its undecided rows a tree gives."""

    branches: NDArray[np.float64]
    undecided: NDArray[np.float64]


class _VoteSplitter:
    """Splits nodes of leaves of several trees."""

    def __init__(self, rules: Rules, tree: NDArray[np.intp]) -> None:
        self._candidates, self._tree = candidates_of(rules), tree
        self._votes = rules.decisive / rules.decisive.sum(axis=1, keepdims=True)

    def counts(self, node: Node) -> NDArray[np.float64]:
        """The trees' vote, scaled to the node's rows."""
        votes = _mean_votes(self._by_tree(node).sum(axis=0))
        total = float(votes.sum())
        counts: NDArray[np.float64] = votes * (node.rows / total) if total else votes
        return counts

    def split(self, node: Node) -> Split | None:
        """The split that removes most impurity; nothing where all parts of the node vote for the same class."""
        if not node.rows:  # nothing is known of a place where nobody has rows
            return None
        if self._decided(node):
            return None
        candidates = self._candidates.inside(node.box)
        by_tree = self._by_tree(node)
        whole = by_tree.sum(axis=0)
        flat = np.concatenate([by_tree.reshape(len(by_tree), -1), np.ones((len(by_tree), 1))], axis=1)
        only = self._candidates.only(node.which, flat, candidates)
        present = only[:, :, -1] > 0.5
        allowed = np.flatnonzero(present.sum(axis=1) > 1)
        if not len(allowed):
            return None
        present, candidates = present[allowed], candidates[allowed]
        only = np.maximum(only[allowed, :, :-1], 0.0).reshape(len(allowed), -1, *whole.shape)
        gain, shares = _gains(only, whole, present, node.rows)
        best = int(np.round(gain / node.rows, _DIGITS).argmax())
        return self._made(node, int(candidates[best]), np.flatnonzero(present[best]), float(gain[best]),
                          _Shares(shares.branches[best], shares.undecided[best]))

    def _by_tree(self, node: Node) -> NDArray[np.float64]:
        """(leaves of the node, trees, 1 + classes): rows and votes times rows, in the column of the leaf's tree."""
        trees, of_leaf = np.unique(self._tree[node.which], return_inverse=True)
        masses = _masses(node)
        table = np.zeros((len(node.which), len(trees), 1 + self._votes.shape[1]))
        table[np.arange(len(table)), of_leaf, 0] = masses
        table[np.arange(len(table)), of_leaf, 1:] = masses[:, None] * self._votes[node.which]
        return table

    def _decided(self, node: Node) -> bool:
        """Whether one class wins wherever in the node the trees' leaves happen to meet."""
        starts = np.flatnonzero(np.diff(self._tree[node.which], prepend=-1))
        votes = self._votes[node.which]
        winner = int(np.add.reduceat(votes, starts).mean(axis=0).argmax()) if len(starts) == len(votes) else \
            int(self.counts(node).argmax())
        lead = np.minimum.reduceat(votes[:, [winner]] - votes, starts).sum(axis=0)
        lead[winner] = np.inf
        return bool((lead[:winner] > 0).all() and (lead[winner:] >= 0).all())

    def _made(self, node: Node, candidate: int, branches: NDArray[np.intp], gain: float, shares: _Shares) -> Split:
        column, cut = self._candidates.place(candidate)
        reaching = [self._candidates.reaching(node.which, candidate, int(branch)) for branch in branches]
        on_all = np.logical_and.reduce(reaching)
        trees = np.unique(self._tree[node.which], return_inverse=True)[1]
        children = []
        for branch, reaches in zip(branches, reaching, strict=True):
            masses = np.where(on_all, shares.undecided[branch, trees], 1.0)[reaches] * _masses(node)[reaches]
            rows = node.rows * shares.branches[branch]
            own = np.bincount(trees[reaches], masses, trees.max() + 1)
            masses = masses * (rows / np.maximum(own, _ANY_MASS))[trees[reaches]]
            children.append(Node(node.which[reaches], self._candidates.within(node.box, candidate, int(branch)),
                                 float(rows), node.depth + 1, masses))
        return Split(gain, column, cut, tuple(branches.tolist()), tuple(children))


def _masses(node: Node) -> NDArray[np.float64]:
    assert node.masses is not None
    return node.masses


def _gains(only: NDArray[np.float64], whole: NDArray[np.float64], present: NDArray[np.bool_],
           rows: float) -> tuple[NDArray[np.float64], _Shares]:
    """What each candidate gains, and how it deals the rows.

    `only` is (candidates, branches, trees, 1 + classes): rows, and votes times rows, of leaves that lie in one branch.
    """
    rest = np.maximum(whole - only.sum(axis=1), 0.0)
    told = only[..., 0].sum(axis=1)
    trust = (told / rows) ** _TRUST
    branches = _ratio((trust[:, None] * only[..., 0]).sum(axis=2), (trust * told).sum(axis=1)[:, None]) * present
    missing = np.maximum(rows * branches[:, :, None] - only[..., 0], 0.0)
    lacking = missing.sum(axis=1, keepdims=True)
    undecided = np.where(lacking > 0, _ratio(missing, lacking), branches[:, :, None])
    votes = _mean_votes(only + undecided[..., None] * rest[:, None])
    before = (branches[:, :, None] * votes).sum(axis=1)
    gain = rows * (_impurity(before) - (branches * _impurity(votes)).sum(axis=1))
    return gain, _Shares(branches, undecided)


def _mean_votes(by_tree: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over trees of their mean votes, each weighed by its own rows."""
    votes: NDArray[np.float64] = _ratio(by_tree[..., 1:], by_tree[..., :1]).sum(axis=-2)
    return votes


def _impurity(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = _ratio(votes, votes.sum(axis=-1, keepdims=True))
    impurity: NDArray[np.float64] = 1.0 - (shares ** 2).sum(axis=-1)
    return impurity


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole, and 0 where there is nothing to divide by."""
    whole = np.broadcast_to(whole, part.shape)
    ratio: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
    return ratio
