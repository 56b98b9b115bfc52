"""One tree from a list of rules.

A node holds the rules that some row at the node could satisfy. It is split where the entropy of its rules falls most; a
rule that does not mind the split goes to every child. Every node knows where its rows lie and is cut only inside, so
rules that do not overlap are told apart down to the last, and then the tree says of every row what the row's rule says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.learners.trees.best_first import Node, Split, everywhere, grow_best_first
from tequio.learners.trees.candidates import candidates_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree

NodeEntropy = Literal["argmax", "mean_proba"]
RuleWeight = Literal["count", "support"]
Shrink = Literal["every", "any"]

_DIGITS = 12  # scores that differ less differ by rounding only
_LEAST_SUPPORT = 1e-6  # of the mean rule's, for rules without any: they decide only where there is nothing else


@dataclass(frozen=True)
class Growing:
    """How a tree is grown from rules.

    node_entropy:  of the classes that the rules decide for (argmax), or of the mean of their class shares (mean_proba)
    rule_weight:   every rule alike (count), or by the rows that it is estimated to cover (support)
    shrink:        a split leaves fewer rules than the node has in every child, or at least in any child
    depth:         most conditions from the root to a leaf (none: no limit)
    """

    node_entropy: NodeEntropy = "argmax"
    rule_weight: RuleWeight = "count"
    shrink: Shrink = "every"
    depth: int | None = None


def grow(rules: Rules, how: Growing | None = None) -> Tree:
    """The tree of these rules. Its counts are class shares times estimated rows, at inner nodes too."""
    how = how or Growing()
    root = Node(np.arange(len(rules)), everywhere(rules.low.shape[1]), float(rules.support.sum()) or 1.0)
    return grow_best_first(_RuleSplitter(rules, how), root, rules.kind, depth=how.depth)


def rule_weights(rules: Rules, by: RuleWeight) -> NDArray[np.float64]:
    """What each rule weighs: never nothing, so that rules without support decide where there is nothing else."""
    if by == "count" or not rules.support.any():
        return np.ones(len(rules))
    return rules.support + _LEAST_SUPPORT * rules.support.mean()


class _RuleSplitter:
    """Splits nodes of rules by Eq. 2.1 and 2.2 of the source."""

    def __init__(self, rules: Rules, how: Growing) -> None:
        self._candidates, self._any = candidates_of(rules), how.shrink == "any" and rules.kind == "binary"
        self._votes, self._weights = rules.decisive, rule_weights(rules, how.rule_weight)
        self._decided = self._votes.argmax(axis=1)
        shares = np.eye(self._votes.shape[1])[self._decided] if how.node_entropy == "argmax" else \
            self._votes / self._votes.sum(axis=1, keepdims=True)
        # The last column counts rules.
        self._parts = np.concatenate([self._weights[:, None] * shares, np.ones((len(rules), 1))], axis=1)

    def counts(self, node: Node) -> NDArray[np.float64]:
        """The votes of the node's rules, scaled to its rows."""
        votes: NDArray[np.float64] = self._weights[node.which] @ self._votes[node.which]
        return votes * (node.rows / votes.sum())

    def split(self, node: Node) -> Split | None:
        """The split of lowest score; of equal ones that of the first column, then of the lowest cut."""
        if (self._decided[node.which] == self._decided[node.which[0]]).all():
            return None
        candidates = self._candidates.inside(node.box)
        whole = self._parts[node.which].sum(axis=0)
        only = self._candidates.only(node.which, self._parts[node.which], candidates)
        rest = whole - only.sum(axis=1)
        present = self._present(only[:, :, -1], rest[:, -1])
        allowed = np.flatnonzero(present.sum(axis=1) > 1)
        if not len(allowed):
            return None
        children = np.where(present[allowed][:, :, None], only[allowed] + rest[allowed][:, None, :], 0.0)
        score = np.round(_score(np.maximum(children[:, :, :-1], 0.0), whole[:-1]), _DIGITS)
        best = int(score.argmin())
        return self._made(node, int(candidates[allowed[best]]), np.flatnonzero(present[allowed[best]]),
                          -float(score[best]))

    def _present(self, only: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(candidates, branches): which children there would be. With two or more of them every child is smaller."""
        present = only > 0.5
        if self._any:
            present |= (present.any(axis=1) & (rest > 0.5))[:, None]
        return present

    def _made(self, node: Node, candidate: int, branches: NDArray[np.intp], reduction: float) -> Split:
        column, cut = self._candidates.place(candidate)
        inner = [node.which[self._candidates.reaching(node.which, candidate, int(branch))] for branch in branches]
        weights = np.array([self._weights[which].sum() for which in inner])
        rows = node.rows * weights / weights.sum()
        children = tuple(Node(which, self._candidates.within(node.box, candidate, int(branch)), float(own),
                              node.depth + 1) for which, branch, own in zip(inner, branches, rows, strict=True))
        return Split(node.rows * reduction, column, cut, tuple(branches.tolist()), children)


def _score(children: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """(candidates,) entropy of the children, weighed by their rules, less that of the node: minus the information gain."""
    weight = children.sum(axis=2)
    left = (_times_log(weight) - _times_log(children).sum(axis=2)).sum(axis=1) / weight.sum(axis=1)
    before = (_times_log(whole.sum()) - _times_log(whole).sum()) / whole.sum()
    score: NDArray[np.float64] = left - before
    return score


def _times_log(values: Any) -> Any:
    return values * np.log2(np.where(values > 0, values, 1.0))
