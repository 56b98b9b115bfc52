"""ICDTA4FL: one readable tree from the trees of all parties, in one round and four exchanges.

Argente-Garrido, Zuheros, Luzón, Herrera: An interpretable client decision tree aggregation process for federated
learning, Information Sciences 694, 2025.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.trees.fusing import Depth, TreeFusion, fused
from tequio.learners.trees.fusion import Fusing, IntervalMerge, Weighting, fuse
from tequio.learners.trees.growing import Growing, NodeEntropy, RuleWeight, Shrink, grow
from tequio.learners.trees.rules import extract
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree


@register("algorithm", "icdta4fl", paper="Argente-Garrido et al., 2025", example=(
    '[algorithm]\nname = "icdta4fl"\nfilter = {name = "percentile", percent = 75}\n\n[learner]\nname = "id3"\n'))
@dataclass(frozen=True, kw_only=True)
class Icdta4fl(TreeFusion):
    """Trees of all parties fused into one readable tree by way of their rules; one round, four exchanges.

    Every two rules of different trees that do not contradict each other become one rule, with both trees' votes; the
    global tree is grown from these rules. Whole trees leave the parties, with their thresholds and with the counts of
    rows in their leaves, and every party sees all of them.

    Parameters:
        filter: which trees are good enough, a name or a table of name and parameters
        min_trees: fewest trees to fuse; the best ones are added where the filter leaves fewer
        judged_on: rows on which parties judge the trees; test only to reproduce results that did so
        interval_merge: bounds of a merged rule: intersection (both hold) or least_restrictive (the source's words)
        weighting: votes of a merged rule: sum (every tree alike), halving (their mean) or samples (by rows)
        budget: most rules that are kept, and most leaves of the global tree; rules of least support and splits that
            tell least are left out first, and what that costs is recorded
        node_entropy: of the classes that rules decide for (argmax) or of the mean of their class shares (mean_proba)
        rule_weight: by the rows that a rule is estimated to cover (support), or every rule alike (count, as the source
            words it; with a limited depth a leaf then mixes rules of very unequal support)
        shrink: a split leaves fewer rules in every child, or at least in any
        depth: most conditions of the global tree: local (as the parties' trees), none (no limit), or a number
    """

    interval_merge: IntervalMerge = "intersection"
    weighting: Weighting = "sum"
    budget: Annotated[int, Ge(1)] = 3000
    node_entropy: NodeEntropy = "argmax"
    rule_weight: RuleWeight = "support"
    shrink: Shrink = "every"
    depth: Depth = "local"

    def fuse(self, trees: Sequence[Tree], kept: NDArray[np.intp], told: Replies,
             federation: Federation) -> tuple[Payload, dict[str, Any]]:
        """Rules of all trees, their product within the budget, and the tree that is grown from it."""
        columns = len(federation.schema.features)
        rules, losses = fuse(rules_of(trees, columns), Fusing(self.interval_merge, self.weighting, self.budget))
        tree, unsplit = grow(rules, Growing(self.node_entropy, self.rule_weight, self.shrink,
                                            self.depth_for(self.depth, columns), self.budget))
        return fused(tree, rules), {"rules": len(rules), "leaves": len(tree.leaves),
                                    "losses": {**asdict(losses), "unsplit_leaves": unsplit}}


def rules_of(trees: Sequence[Tree], columns: int) -> list[Rules]:
    """Each tree's rules; their support is their share of the tree's rows, of as many rows as all trees have together.

    All parties' rows are taken to be like those of the party that grew the tree.
    """
    together = sum(float(tree.support[0]) for tree in trees)
    return [extract(tree, columns, support=tree.support[tree.leaves] * (together / tree.support[0])) for tree in trees]
