"""Why a tree decided as it did, and where two trees part, node by node from the root."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.learners.trees.tree import EVERY_NUMBER, LEAF

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.dataset import Array, Feature, Schema
    from tequio.learners.trees.tree import Tree
    from tequio.learners.trees.votes import Ensemble

Change = Literal["same", "other split", "grown", "pruned", "other class", "other number"]


@dataclass(frozen=True)
class Condition:
    """One test on the way down, in words: `health == priority`, `age <= 32.5`, `job in {clerk, cook} or missing`."""

    feature: str
    relation: str
    value: str
    or_missing: bool = False

    def __str__(self) -> str:
        if self.or_missing:
            return f"{replace(self, or_missing=False)} or missing"
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
    shares = dict(zip(schema.target.names, tree.probabilities[end].tolist(), strict=True)) if tree.value is None else {}
    return Explanation(conditions, answer_at(tree, end, schema), shares, float(tree.counts[end].sum()), nodes,
                       _unmet(tree, end, row, schema))


def answer_at(tree: Tree, node: int, schema: Schema) -> str:
    """What a node says: its class, or the mean of its rows in words."""
    if tree.value is not None:
        return f"{tree.value[node]:.6g}"
    return schema.target.names[int(tree.probabilities[node].argmax())]


def path_to(tree: Tree, node: int) -> tuple[int, ...]:
    """Node numbers from the root to a node."""
    path = [node]
    while path[-1] != 0:
        path.append(int(tree.parents[path[-1]]))
    return tuple(reversed(path))


def condition(tree: Tree, parent: int, child: int, schema: Schema) -> Condition:
    """What a row has to satisfy to go from a node to one of its children."""
    feature = schema.features[int(tree.feature[parent])]
    if tree.missing is not None:
        return _mixed_condition(tree, parent, child, feature)
    branch = int(np.flatnonzero(tree.children[parent] == child)[0])
    if tree.kind == "multiway":
        return Condition(feature.name, "==", feature.domain[branch] if feature.domain else str(branch))
    return Condition(feature.name, "<=" if branch == 0 else ">", f"{tree.threshold[parent]:.6g}")


def _mixed_condition(tree: Tree, parent: int, child: int, feature: Feature) -> Condition:
    assert tree.missing is not None
    gaps, cut = bool(tree.missing[parent] == child), float(tree.threshold[parent])
    if feature.domain is None:
        return number_condition(feature.name, cut, left=bool(tree.children[parent, 0] == child), gaps=gaps)
    domain = feature.domain
    inside = (tree.children[parent, :len(domain)] == child).tolist()
    return category_condition(feature.name, domain, inside, gaps=gaps)


def number_condition(name: str, cut: float, *, left: bool, gaps: bool) -> Condition:
    """That a number is up to a cut, or above it, or missing."""
    if cut == EVERY_NUMBER:
        return Condition(name, "is", "known" if left else "missing")
    return Condition(name, "<=" if left else ">", f"{cut:.6g}", gaps)


def category_condition(name: str, domain: Sequence[str], inside: Sequence[bool], *, gaps: bool) -> Condition:
    """That a category is one of several; of two ways to say so the shorter one."""
    chosen = [category for category, kept in zip(domain, inside, strict=False) if kept]
    others = [category for category, kept in zip(domain, inside, strict=False) if not kept]
    if not chosen:
        return Condition(name, "is", "missing")
    if not others:
        return Condition(name, "is", "anything" if gaps else "known")
    if len(chosen) == 1:
        return Condition(name, "==", chosen[0], gaps)
    if len(others) == 1:
        return Condition(name, "!=", others[0], gaps)
    shorter, relation = (others, "not in") if len(others) < len(chosen) else (chosen, "in")
    return Condition(name, relation, f"{{{', '.join(shorter)}}}", gaps)


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
    for own, other in zip_longest(first.branches[here].tolist(), second.branches[there].tolist(), fillvalue=LEAF):
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
        if first.value is not None and second.value is not None:
            return "same" if first.value[here] == second.value[there] else "other number"
        return "same" if first.probabilities[here].argmax() == second.probabilities[there].argmax() else "other class"
    if one_leaf or other_leaf:
        return "grown" if one_leaf else "pruned"
    return "same" if _same_split(first, second, here, there) else "other split"


def _same_split(first: Tree, second: Tree, here: int, there: int) -> bool:
    if first.kind != second.kind or first.feature[here] != second.feature[there] or first.feature[here] == LEAF:
        return False
    if first.kind == "mixed":
        return _dealt(first, here) == _dealt(second, there) and \
            bool(np.array_equal(first.threshold[here], second.threshold[there], equal_nan=True))
    return first.kind == "multiway" or bool(first.threshold[here] == second.threshold[there])


def _dealt(tree: Tree, node: int) -> list[int]:
    """The place of the first category, or side, that goes the same way as each, and as missing values."""
    ways = [child for child in [*tree.children[node].tolist(), int(tree.default[node])] if child != LEAF]
    return [ways.index(child) for child in ways]


def _say(tree: Tree, node: int, schema: Schema) -> str:
    if tree.feature[node] == LEAF:
        answer = answer_at(tree, node, schema)
        return answer if tree.value is not None else f"class {answer}"
    name = schema.names[int(tree.feature[node])]
    return f"split on {name}" if np.isnan(tree.threshold[node]) else f"split on {name} at {tree.threshold[node]:.6g}"
