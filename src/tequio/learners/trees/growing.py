"""Two ways to one tree: `grow` makes it from one list of rules, `distil` straight from the leaves of many trees.

To grow: a node holds the rules that some row at the node could satisfy. It is split where the entropy of its rules
falls most; a rule that does not mind the split goes to every child. Every node knows where its rows lie and is cut only
inside, so rules that do not overlap are told apart down to the last, and then the tree says of every row what the row's
rule says.

To distil, without the product of the trees' rules: a node holds, of every tree, the leaves that reach into it and how
many rows each is thought to have there. It says what the trees' vote says on average over those rows. A split is worth
the impurity of the vote that it removes, weighed by rows, and the node that gains most is split first, so the tree is
good at any size. Memory follows the leaves at hand. How many rows of a leaf go which way is known where it lies on
one side of the split. For a leaf that lies on both sides it follows from the other trees: those that tell the sides
apart say how many rows each side has (the more of its rows a tree can tell apart, the more it counts), and what is
missing on a side is taken from the leaves on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.learners.trees.best_first import Node, Split, candidates_of, grow_best_first
from tequio.learners.trees.rules import alike, stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tequio.learners.trees.best_first import Candidates
    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree

NodeEntropy = Literal["argmax", "mean_proba"]
RuleWeight = Literal["count", "support"]
Shrink = Literal["every", "any"]

_DIGITS = 12  # scores that differ less differ by rounding only
_LEAST_SUPPORT = 1e-6  # of the mean rule's, for rules without any: they decide only where there is nothing else
_TRUST = 8  # power of the share of its rows that a tree can tell apart
_GAIN_DIGITS = 9
_ANY_MASS = 1e-12


@dataclass(frozen=True)
class Growing:
    """How a tree is grown from rules.

    node_entropy:  of the classes that the rules decide for (argmax), or of the mean of their class shares (mean_proba)
    rule_weight:   every rule alike (count), or by the rows that it is estimated to cover (support)
    shrink:        a split leaves fewer rules than the node has in every child, or at least in any child
    depth:         most conditions from the root to a leaf (none: no limit)
    leaves:        most leaves (none: no limit); the nodes whose split tells most are split first
    """

    node_entropy: NodeEntropy = "argmax"
    rule_weight: RuleWeight = "count"
    shrink: Shrink = "every"
    depth: int | None = None
    leaves: int | None = None


def grow(rules: Rules, how: Growing | None = None) -> tuple[Tree, int]:
    """The tree of these rules, and how many leaves `how.leaves` kept from being split.

    Its counts are class shares times estimated rows, at inner nodes too.
    """
    how = how or Growing()
    candidates = candidates_of(rules)
    root = Node(np.arange(len(rules)), candidates.everywhere(), float(rules.support.sum()) or 1.0,
                masses=rule_weights(rules, how.rule_weight))
    return grow_best_first(_RuleSplitter(rules, how, candidates), root, rules.kind, depth=how.depth,
                           leaves=how.leaves, means=rules.means)


def rule_weights(rules: Rules, by: RuleWeight) -> NDArray[np.float64]:
    """What each rule weighs: never nothing, so that rules without support decide where there is nothing else."""
    if by == "count" or not rules.support.any():
        return np.ones(len(rules))
    weights: NDArray[np.float64] = rules.support + _LEAST_SUPPORT * rules.support.mean()
    return weights


class _RuleSplitter:
    """Splits nodes of rules by Eq. 2.1 and 2.2 of the source."""

    def __init__(self, rules: Rules, how: Growing, candidates: Candidates) -> None:
        self._candidates, self._any = candidates, how.shrink == "any" and rules.kind == "binary"
        self._deals, self._means = how.rule_weight == "support", rules.means
        self._votes = rules.decisive
        if rules.means:
            self._decided = np.unique(rules.value, return_inverse=True)[1]
            numbers = _between_0_and_1(rules.value)
            self._shares = np.stack([np.ones(len(numbers)), numbers, numbers ** 2], axis=1)
            return
        self._decided = self._votes.argmax(axis=1)
        self._shares = np.eye(self._votes.shape[1])[self._decided] if how.node_entropy == "argmax" else \
            self._votes / self._votes.sum(axis=1, keepdims=True)

    def counts(self, node: Node) -> NDArray[np.float64]:
        """The votes of the node's rules, scaled to its rows; of numbers its rows and their mean."""
        assert node.masses is not None
        if self._means:
            return np.array([node.rows, np.average(self._votes[node.which, 0], weights=node.masses)])
        votes: NDArray[np.float64] = node.masses @ self._votes[node.which]
        votes *= node.rows / votes.sum()
        return votes

    def split(self, node: Node) -> Split | None:
        """The split of lowest score; of equal ones that of the first column, then of the lowest cut."""
        if (self._decided[node.which] == self._decided[node.which[0]]).all():
            return None
        assert node.masses is not None
        candidates = self._candidates.inside(node.box)
        # The last column counts rules.
        parts = np.concatenate([node.masses[:, None] * self._shares[node.which], np.ones((len(node.which), 1))], axis=1)
        only = self._candidates.only(node, parts, candidates)
        rest = parts.sum(axis=0) - only.sum(axis=1)
        present = self._present(only[:, :, -1], rest[:, -1])
        allowed = np.flatnonzero(present.sum(axis=1) > 1)
        if not len(allowed):
            return None
        dealt = self._dealt(only[allowed], present[allowed])
        children = only[allowed] * present[allowed][:, :, None] + dealt[:, :, None] * rest[allowed][:, None, :]
        np.maximum(children, 0.0, out=children)
        measure = _variance_score if self._means else _score
        score = np.round(measure(children[:, :, :-1], parts[:, :-1].sum(axis=0)), _DIGITS)
        best = int(score.argmin())
        return self._made(node, int(candidates[allowed[best]]), np.flatnonzero(present[allowed[best]]), dealt[best],
                          -float(score[best]))

    def _present(self, only: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(candidates, branches): which children there would be. With two or more of them every child is smaller."""
        present = only > 0.5
        if self._any:
            present |= (present.any(axis=1) & (rest > 0.5))[:, None]
        return present

    def _dealt(self, only: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(candidates, branches): what part of a rule that reaches into every branch counts in each.

        A rule counts in full in every child; rows cannot be in two, so they are dealt like those of the others.
        """
        if not self._deals:
            return present.astype(np.float64)
        rows = (only[:, :, 0] if self._means else only[:, :, :-1].sum(axis=2)) * present
        dealt: NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
        return dealt

    def _made(self, node: Node, candidate: int, branches: NDArray[np.intp], dealt: NDArray[np.float64],
              reduction: float) -> Split:
        reaching = np.stack([self._candidates.reaching(node, candidate, int(branch)) for branch in branches])
        everywhere = reaching.all(axis=0)
        masses = [np.where(everywhere, dealt[branch], 1.0) * node.masses for branch in branches]
        weights = np.array([own[reaches].sum() for own, reaches in zip(masses, reaching, strict=True)])
        rows = node.rows * weights / weights.sum()
        children = tuple(Node(node.which[reaches], self._candidates.within(node.box, candidate, int(branch)),
                              float(share), node.depth + 1, own[reaches])
                         for branch, reaches, own, share in zip(branches, reaching, masses, rows, strict=True))
        return Split(node.rows * reduction, self._candidates.place(candidate), tuple(branches.tolist()), children)


def _score(children: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """(candidates,) entropy of the children, weighed by their rules, less that of the node: minus the gain."""
    weight = children.sum(axis=2)
    left = (_times_log(weight) - _times_log(children).sum(axis=2)).sum(axis=1) / weight.sum(axis=1)
    before = (_times_log(whole.sum()) - _times_log(whole).sum()) / whole.sum()
    score: NDArray[np.float64] = left - before
    return score


def _variance_score(children: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same of rules that predict numbers: variance. What is summed are 1, numbers and their squares."""
    left = _squared_error(children).sum(axis=1) / children[:, :, 0].sum(axis=1)
    score: NDArray[np.float64] = left - _squared_error(whole) / whole[0]
    return score


def _squared_error(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    error: NDArray[np.float64] = sums[..., 2] - _ratio(sums[..., 1] ** 2, sums[..., 0])
    return error


def _times_log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(values * np.log2(np.where(values > 0, values, 1.0)))


def distil(lists: Sequence[Rules], *, leaves: int | None = None, depth: int | None = None) -> Tree:
    """The tree of the vote of these trees' rules, the splits that tell most first."""
    masses = [rule_weights(rules, "support") for rules in lists]
    rows = max(float(mass.sum()) for mass in masses)
    together = np.concatenate([mass * (rows / mass.sum()) for mass in masses])
    rules = stacked(alike(lists))
    candidates = candidates_of(rules)
    root = Node(np.arange(len(rules)), candidates.everywhere(), rows, masses=together)
    splitter = _VoteSplitter(rules, np.repeat(np.arange(len(lists)), [len(own) for own in lists]), candidates)
    return grow_best_first(splitter, root, rules.kind, leaves=leaves, depth=depth, means=rules.means)[0]


@dataclass(frozen=True)
class _Shares:
    """How candidates deal a node's rows: to branches by all trees, and what part of its undecided rows a tree gives."""

    branches: NDArray[np.float64]
    undecided: NDArray[np.float64]


class _VoteSplitter:
    """Splits nodes of leaves of several trees."""

    def __init__(self, rules: Rules, tree: NDArray[np.intp], candidates: Candidates) -> None:
        self._candidates, self._tree, self._means = candidates, tree, rules.means
        self._is_mixed = rules.kind == "mixed"
        self._votes = _between_0_and_1(rules.decisive) if rules.means else \
            rules.decisive / rules.decisive.sum(axis=1, keepdims=True)
        self._range = (float(rules.decisive.min()), float(np.ptp(rules.decisive)))
        self._impurity = _closeness if rules.means else _impurity

    def counts(self, node: Node) -> NDArray[np.float64]:
        """The trees' vote, scaled to the node's rows; of numbers its rows and their mean."""
        if self._means:
            votes = _mean_votes(self._by_tree(node).sum(axis=0))
            share = votes[0] / len(np.unique(self._tree[node.which]))
            return np.array([node.rows, self._range[0] + share * self._range[1]])
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
        only = self._candidates.only(node, flat, candidates)
        present = only[:, :, -1] > 0.5
        allowed = np.flatnonzero(present.sum(axis=1) > 1)
        if self._is_mixed:
            # Leaves that nobody's rows are in cannot say how many rows go which way.
            told = only[:, :, :-1:whole.shape[1]].sum(axis=(1, 2))
            allowed = allowed[told[allowed] > _ANY_MASS]
        if not len(allowed):
            return None
        present, candidates = present[allowed], candidates[allowed]
        only = np.maximum(only[allowed, :, :-1], 0.0).reshape(len(allowed), -1, *whole.shape)
        gain, shares = _gains(only, whole, present, node.rows, self._impurity)
        if self._is_mixed:
            # Sets of categories of one tree cut through many leaves of the others: what these say is a guess.
            gain *= told[allowed] / (node.rows * whole.shape[0])
        best = int(np.round(gain / node.rows, _GAIN_DIGITS).argmax())
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
        if self._means:
            return bool((np.maximum.reduceat(votes, starts) == np.minimum.reduceat(votes, starts)).all())
        winner = int(np.add.reduceat(votes, starts).mean(axis=0).argmax()) if len(starts) == len(votes) else \
            int(self.counts(node).argmax())
        lead = np.minimum.reduceat(votes[:, [winner]] - votes, starts).sum(axis=0)
        lead[winner] = np.inf
        return bool((lead[:winner] > 0).all() and (lead[winner:] >= 0).all())

    def _made(self, node: Node, candidate: int, branches: NDArray[np.intp], gain: float, shares: _Shares) -> Split:
        reaching = [self._candidates.reaching(node, candidate, int(branch)) for branch in branches]
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
        return Split(gain, self._candidates.place(candidate), tuple(branches.tolist()), tuple(children))


def _masses(node: Node) -> NDArray[np.float64]:
    assert node.masses is not None
    return node.masses


def _gains(only: NDArray[np.float64], whole: NDArray[np.float64], present: NDArray[np.bool_], rows: float,
           impurity: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> tuple[NDArray[np.float64], _Shares]:
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
    gain = rows * (impurity(before) - (branches * impurity(votes)).sum(axis=1))
    return gain, _Shares(branches, undecided)


def _mean_votes(by_tree: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over trees of their mean votes, each weighed by its own rows."""
    votes: NDArray[np.float64] = _ratio(by_tree[..., 1:], by_tree[..., :1]).sum(axis=-2)
    return votes


def _impurity(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = _ratio(votes, votes.sum(axis=-1, keepdims=True))
    impurity: NDArray[np.float64] = 1.0 - (shares ** 2).sum(axis=-1)
    return impurity


def _between_0_and_1(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers as shares of the way from the smallest to the largest, so that rounding matters alike at any scale."""
    shares: NDArray[np.float64] = (numbers - numbers.min()) / (np.ptp(numbers) or 1.0)
    return shares


def _closeness(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of numbers: what is left over by their mean's square is the variance that a split removes."""
    square: NDArray[np.float64] = -votes[..., 0] ** 2
    return square


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """part / whole, and 0 where there is nothing to divide by."""
    whole = np.broadcast_to(whole, part.shape)
    ratio: NDArray[np.float64] = np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)
    return ratio
