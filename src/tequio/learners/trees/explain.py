"""Why a tree decided as it did: the ordered conditions from the root to where a row ends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.learners.trees.tree import Tree


@dataclass(frozen=True)
class Condition:
    """One test on the way down, in words: `health == priority`, `age <= 32.5`."""

    feature: str
    relation: str
    value: str

    def __str__(self) -> str:
        # The outer bins of a number are categories called '<=0.5' and '>9.5'.
        is_bin = self.relation == "==" and self.value.startswith(("<=", ">"))
        return f"{self.feature} {self.value}" if is_bin else f"{self.feature} {self.relation} {self.value}"


@dataclass(frozen=True)
class Explanation:
    """The path of one row.

    conditions:  that the row satisfies, root first
    support:     training rows behind the decision (or their weight, after a fusion)
    nodes:       numbers of the nodes on the way, one more than conditions
    unmet:       what the row is and the tree has no branch for, so that it stopped early; empty at a leaf
    """

    conditions: tuple[Condition, ...]
    prediction: str
    shares: dict[str, float]
    support: float
    nodes: tuple[int, ...]
    unmet: str = ""

    @property
    def fallback(self) -> str:
        """Why the tree answered with training rows that do not satisfy all that this row does; empty if it did not."""
        if self.unmet:
            return f"no branch for {self.unmet}"
        return "" if self.support > 0 else "no training row came as far, so it answers with those that came nearest"

    def __str__(self) -> str:
        return f"{{ {', '.join(map(str, self.conditions))} }} -> {self.prediction}"

    def to_plain(self) -> dict[str, Any]:
        """The explanation as JSON knows it."""
        return {"conditions": [str(condition) for condition in self.conditions], "prediction": self.prediction,
                "shares": self.shares, "support": self.support, "fallback": self.fallback}


def explain(tree: Tree, row: NDArray[Any], schema: Schema) -> Explanation:
    """The conditions that led one row to its class, root first."""
    end = int(tree.find(np.asarray(row)[None, :])[0])
    nodes = path_to(tree, end)
    conditions = tuple(condition(tree, parent, child, schema) for parent, child in itertools.pairwise(nodes))
    shares = dict(zip(schema.target.names, tree.probabilities[end].tolist(), strict=True))
    return Explanation(conditions, schema.target.names[int(tree.probabilities[end].argmax())], shares,
                       float(tree.counts[end].sum()), nodes, _unmet(tree, end, row, schema))


def path_to(tree: Tree, node: int) -> tuple[int, ...]:
    """Node numbers from the root to a node."""
    path = [node]
    while path[-1] != 0:
        path.append(int(tree.parents[path[-1]]))
    return tuple(reversed(path))


def condition(tree: Tree, parent: int, child: int, schema: Schema) -> Condition:
    """What a row has to satisfy to go from a node to one of its children."""
    feature = schema.features[int(tree.feature[parent])]
    branch = int(np.flatnonzero(tree.children[parent] == child)[0])
    if tree.kind == "multiway":
        return Condition(feature.name, "==", feature.domain[branch] if feature.domain else str(branch))
    return Condition(feature.name, "<=" if branch == 0 else ">", f"{tree.threshold[parent]:.6g}")


def _unmet(tree: Tree, end: int, row: NDArray[Any], schema: Schema) -> str:
    column = int(tree.feature[end])
    if column == LEAF:
        return ""
    feature, value = schema.features[column], float(row[column])
    known = feature.domain is not None and value.is_integer() and 0 <= value < len(feature.domain)
    return str(Condition(feature.name, "==", feature.domain[int(value)])) if known and feature.domain else \
        f"{feature.name} is missing or unknown"
