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
    root = Node(np.arange(len(rules)), everywhere(rules.low.shape[1]), float(rules.support.sum()) or 1.0,
                masses=rule_weights(rules, how.rule_weight))
    return grow_best_first(_RuleSplitter(rules, how), root, rules.kind, depth=how.depth,
                           leaves=how.leaves)


def rule_weights(rules: Rules, by: RuleWeight) -> NDArray[np.float64]:
    """What each rule weighs: never nothing, so that rules without support decide where there is nothing else."""
    if by == "count" or not rules.support.any():
        return np.ones(len(rules))
    weights: NDArray[np.float64] = rules.support + _LEAST_SUPPORT * rules.support.mean()
    return weights


class _RuleSplitter:
    """Splits nodes of rules by Eq. 2.1 and 2.2 of the source."""

    def __init__(self, rules: Rules, how: Growing) -> None:
        self._candidates, self._any = candidates_of(rules), how.shrink == "any" and rules.kind == "binary"
        self._deals = how.rule_weight == "support"
        self._votes = rules.decisive
        self._decided = self._votes.argmax(axis=1)
        self._shares = np.eye(self._votes.shape[1])[self._decided] if how.node_entropy == "argmax" else \
            self._votes / self._votes.sum(axis=1, keepdims=True)

    def counts(self, node: Node) -> NDArray[np.float64]:
        """The votes of the node's rules, scaled to its rows."""
        assert node.masses is not None
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
        only = self._candidates.only(node.which, parts, candidates)
        rest = parts.sum(axis=0) - only.sum(axis=1)
        present = self._present(only[:, :, -1], rest[:, -1])
        allowed = np.flatnonzero(present.sum(axis=1) > 1)
        if not len(allowed):
            return None
        dealt = self._dealt(only[allowed], present[allowed])
        children = only[allowed] * present[allowed][:, :, None] + dealt[:, :, None] * rest[allowed][:, None, :]
        np.maximum(children, 0.0, out=children)
        score = np.round(_score(children[:, :, :-1], parts[:, :-1].sum(axis=0)), _DIGITS)
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
        rows = only[:, :, :-1].sum(axis=2) * present
        dealt: NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
        return dealt

    def _made(self, node: Node, candidate: int, branches: NDArray[np.intp], dealt: NDArray[np.float64],
              reduction: float) -> Split:
        column, cut = self._candidates.place(candidate)
        reaching = np.stack([self._candidates.reaching(node.which, candidate, int(branch)) for branch in branches])
        everywhere = reaching.all(axis=0)
        masses = [np.where(everywhere, dealt[branch], 1.0) * node.masses for branch in branches]
        weights = np.array([own[reaches].sum() for own, reaches in zip(masses, reaching, strict=True)])
        rows = node.rows * weights / weights.sum()
        children = tuple(Node(node.which[reaches], self._candidates.within(node.box, candidate, int(branch)),
                              float(share), node.depth + 1, own[reaches])
                         for branch, reaches, own, share in zip(branches, reaching, masses, rows, strict=True))
        return Split(node.rows * reduction, column, cut, tuple(branches.tolist()), children)


def _score(children: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """(candidates,) entropy of the children, weighed by their rules, less that of the node: minus the gain."""
    weight = children.sum(axis=2)
    left = (_times_log(weight) - _times_log(children).sum(axis=2)).sum(axis=1) / weight.sum(axis=1)
    before = (_times_log(whole.sum()) - _times_log(whole).sum()) / whole.sum()
    score: NDArray[np.float64] = left - before
    return score


def _times_log(values: Any) -> Any:
    return values * np.log2(np.where(values > 0, values, 1.0))
