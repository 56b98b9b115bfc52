"""Why a tree decided as it did, and where two trees part, node by node from the root."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tequio.data.dataset import Array, Schema
    from tequio.learners.trees.tree import Tree
    from tequio.learners.trees.votes import Ensemble

Change = Literal["same", "other split", "grown", "pruned", "other class"]


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

    def to_plain(self) -> dict[str, object]:
        """The explanation as JSON knows it."""
        return {"conditions": [str(condition) for condition in self.conditions], "prediction": self.prediction,
                "shares": self.shares, "support": self.support, "fallback": self.fallback}


def explain(tree: Tree, row: Array, schema: Schema) -> Explanation:
    """The conditions that led one row to its class, root first."""
    end = int(tree.find(np.asarray(row)[None, :])[0])
    nodes = path_to(tree, end)
    conditions = tuple(condition(tree, parent, child, schema) for parent, child in pairwise(nodes))
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


def _unmet(tree: Tree, end: int, row: Array, schema: Schema) -> str:
    column = int(tree.feature[end])
    if column == LEAF:
        return ""
    feature, value = schema.features[column], float(row[column])
    known = feature.domain is not None and value.is_integer() and 0 <= value < len(feature.domain)
    return str(Condition(feature.name, "==", feature.domain[int(value)])) if known and feature.domain else \
        f"{feature.name} is missing or unknown"


@dataclass(frozen=True)
class Difference:
    """How a place in the first tree differs in the second. `path` are the conditions that lead there in both."""

    path: tuple[str, ...]
    change: Change
    first: str
    second: str


def differences(first: Tree, second: Tree, schema: Schema) -> list[Difference]:
    """All places where two trees part; below a different split nothing is compared any more."""
    return [found for found in _walk(first, second, schema, 0, 0, ()) if found.change != "same"]


def agreement(first: Tree | Ensemble, second: Tree | Ensemble, features: Array) -> float:
    """Share of rows to which two trees or ensembles give the same class."""
    return float(np.mean(first.predict(features).argmax(axis=1) == second.predict(features).argmax(axis=1)))


def _walk(first: Tree, second: Tree, schema: Schema, here: int, there: int,
          path: tuple[str, ...]) -> Iterator[Difference]:
    yield Difference(path, _change(first, second, here, there), _say(first, here, schema), _say(second, there, schema))
    if not _same_split(first, second, here, there):
        return
    # The arrays of trees that split on different columns elsewhere may differ in width.
    for own, other in zip_longest(first.children[here].tolist(), second.children[there].tolist(), fillvalue=LEAF):
        if own == other == LEAF:
            continue
        tree, parent, child = (first, here, own) if own != LEAF else (second, there, other)
        onwards = (*path, str(condition(tree, parent, child, schema)))
        if own != LEAF and other != LEAF:
            yield from _walk(first, second, schema, own, other, onwards)
        else:
            yield _branch_of_one(first, second, schema, own, other, onwards)


def _branch_of_one(first: Tree, second: Tree, schema: Schema, own: int, other: int,
                   path: tuple[str, ...]) -> Difference:
    """A category for which only one of the trees has a branch."""
    if own != LEAF:
        return Difference(path, "pruned", _say(first, own, schema), "no branch")
    return Difference(path, "grown", "no branch", _say(second, other, schema))


def _change(first: Tree, second: Tree, here: int, there: int) -> Change:
    one_leaf, other_leaf = first.feature[here] == LEAF, second.feature[there] == LEAF
    if one_leaf and other_leaf:
        return "same" if first.probabilities[here].argmax() == second.probabilities[there].argmax() else "other class"
    if one_leaf or other_leaf:
        return "grown" if one_leaf else "pruned"
    return "same" if _same_split(first, second, here, there) else "other split"


def _same_split(first: Tree, second: Tree, here: int, there: int) -> bool:
    if first.kind != second.kind or first.feature[here] != second.feature[there] or first.feature[here] == LEAF:
        return False
    return first.kind == "multiway" or bool(first.threshold[here] == second.threshold[there])


def _say(tree: Tree, node: int, schema: Schema) -> str:
    if tree.feature[node] == LEAF:
        return f"class {schema.target.names[int(tree.probabilities[node].argmax())]}"
    name = schema.names[int(tree.feature[node])]
    return f"split on {name}" if tree.kind == "multiway" else f"split on {name} at {tree.threshold[node]:.6g}"
