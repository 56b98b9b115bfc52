"""ICDTA4FL-plus: a small tree that decides like the vote of the parties' trees, without the product of their rules.

Where ICDTA4FL multiplies the trees' rules and grows a tree from thousands of them, each counted alike, this asks the
parties in the same third exchange how many of their rows reach each leaf, and grows the global tree from the leaves
themselves: the split first that removes most of the vote's impurity, weighed by rows. Any number of leaves gives the
best tree that this order of splits has for it, so a reader chooses how much there is to read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.trees.fusing import Depth, TreeFusion, fused
from tequio.algorithms.trees.icdta4fl import rules_of
from tequio.learners.trees.distilling import distil
from tequio.learners.trees.rules import extract
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree


@register("algorithm", "icdta4fl-plus", example=(
    '[algorithm]\nname = "icdta4fl-plus"\nleaves = 32\n\n[learner]\nname = "cart"\n'))
@dataclass(frozen=True, kw_only=True)
class Icdta4flPlus(TreeFusion):
    """Trees of all parties fused into one small tree by the rows behind their leaves; one round, four exchanges.

    The better half of the trees is kept, by the mean of accuracy and macro-F1. With `epsilon` the counts in the leaves
    of published trees are differentially private (a row more or less); the trees' splits and the parties' scores are
    not covered by that, and the parties then tell no further counts.

    Parameters:
        filter: which trees are good enough by the mean of the metrics, a name or a table of name and parameters
        min_trees: fewest trees to fuse; the best ones are added where the filter leaves fewer
        judged_on: rows on which parties judge the trees; test only to reproduce results that did so
        leaves: most leaves of the global tree, that is, rules to read
        depth: most conditions of the global tree: local (as the parties' trees), none (no limit), or a number
        epsilon: privacy of the counts in the published trees' leaves (0: exact counts)
    """

    filter: str | dict[str, Any] = "median"
    leaves: Annotated[int, Ge(2)] = 64
    depth: Depth = "none"
    epsilon: Annotated[float, Ge(0)] = 0.0

    def fuse(self, trees: Sequence[Tree], kept: NDArray[np.intp], told: Replies,
             federation: Federation) -> tuple[Payload, dict[str, Any]]:
        """The vote of the trees in a tree of few leaves, whose rules are the rules."""
        columns = len(federation.schema.features)
        lists = rules_of(trees, columns)
        if self.counts_leaves:
            sizes = federation.sizes[told.parties]
            lists = [_supported(rules, told, sizes, place) for rules, place in zip(lists, kept.tolist(), strict=True)]
        tree = distil(lists, leaves=self.leaves, depth=self.depth_for(self.depth, columns))
        rules = extract(tree, columns)
        return fused(tree, rules), {"rules": len(rules), "leaves": len(tree.leaves)}

    def judged(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score a tree: trees that are a little weaker by one metric are worth keeping for the other."""
        mean: NDArray[np.float64] = scores.mean(axis=1, keepdims=True)
        return mean

    def fitting_settings(self, federation: Federation) -> dict[str, Any]:
        """Parties add the noise before anything leaves them."""
        return {**super().fitting_settings(federation), "epsilon": self.epsilon}

    @property
    def counts_leaves(self) -> bool:
        """Exact counts only: every tree that rows are counted in would need its share of epsilon."""
        return not self.epsilon


def _supported(rules: Rules, told: Replies, sizes: NDArray[np.int64], place: int) -> Rules:
    """A tree's rules with the rows of all parties that answered as their support; nobody counts more than it has."""
    counts = np.stack([payload["leaves"][place].sum(axis=1) for payload in told.payloads])
    counts *= np.minimum(sizes / np.maximum(counts.sum(axis=1), 1.0), 1.0)[:, None]
    support = counts.sum(axis=0)
    return replace(rules, support=support) if support.any() else rules
