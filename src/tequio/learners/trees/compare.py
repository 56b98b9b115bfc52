"""What two trees have in common, node by node from the root, and where they part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.learners.trees.explain import condition
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.learners.trees.tree import Tree
    from tequio.learners.trees.votes import Ensemble

Change = Literal["same", "other split", "grown", "pruned", "other class"]


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


def agreement(first: Tree | Ensemble, second: Tree | Ensemble, features: NDArray[Any]) -> float:
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
