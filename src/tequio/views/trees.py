"""Trees as one self-contained HTML page that opens, closes, zooms and lights the path of explained rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.trees.explain import condition
from tequio.learners.trees.text import count_text
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.learners.trees.explain import Explanation
    from tequio.learners.trees.tree import Tree

TEMPLATE = Path(__file__).with_name("templates") / "tree.html"
"""The page that trees are put into."""
_MOST_OPEN = 40


@dataclass(frozen=True)
class ShownTree:
    """A tree of the page, and the rows by name whose paths can be lit in it."""

    name: str
    tree: Tree
    explained: Mapping[str, Explanation] = field(default_factory=dict)


def tree_page(trees: Sequence[ShownTree], schema: Schema, *, title: str = "Decision tree") -> str:
    """The page; with several trees the reader chooses between them."""
    data = {"classes": list(schema.target.names), "trees": [_plain_tree(shown, schema) for shown in trees]}
    # A closing tag inside a JSON string would end the script; the escaped form means the same to JavaScript.
    text = json.dumps(data).replace("<", "\\u003c")
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(title=escape(title), data=text)


def nodes_of(tree: Tree, schema: Schema) -> list[dict[str, Any]]:
    """What a viewer needs to know of each node, in words."""
    below = _descendants(tree)
    return [_node(tree, schema, node, int(below[node])) for node in range(len(tree))]


def opened_nodes(tree: Tree, most: int, path: Iterable[int] = ()) -> set[int]:
    """Inner nodes to show with their children: the root, those of a path, then level by level and the largest first.

    A node whose children would make it more than `most` nodes in all stays closed.
    """
    held = (tree.children != LEAF).sum(axis=1)
    opened = {node for node in (0, *path) if held[node]}
    shown = 1 + sum(int(held[node]) for node in opened)
    for node in np.lexsort((-tree.support, tree.depths)).tolist():
        if held[node] and node not in opened and tree.parents[node] in opened and shown + held[node] <= most:
            opened.add(node)
            shown += int(held[node])
    return opened


def _plain_tree(shown: ShownTree, schema: Schema) -> dict[str, Any]:
    rows = [{"name": name, "nodes": list(why.nodes), "text": f"{name}: {why}"} for name, why in shown.explained.items()]
    return {"name": shown.name, "nodes": nodes_of(shown.tree, schema), "rows": rows,
            "open": sorted(opened_nodes(shown.tree, _MOST_OPEN))}


def _node(tree: Tree, schema: Schema, node: int, below: int) -> dict[str, Any]:
    children = [int(child) for child in tree.children[node] if child != LEAF]
    conditions = [condition(tree, node, child, schema) for child in children]
    leaf = tree.feature[node] == LEAF
    label = schema.target.names[int(tree.probabilities[node].argmax())]
    return {"id": node, "depth": int(tree.depths[node]), "children": children,
            "branches": [step.value if step.relation == "==" else f"{step.relation} {step.value}"
                         for step in conditions],
            "title": label if leaf else schema.names[int(tree.feature[node])],
            "label": "leaf" if leaf else f"mostly {label}", "support": count_text(tree.support[node]),
            "shares": [round(float(share), 4) for share in tree.probabilities[node]], "below": below}


def _descendants(tree: Tree) -> NDArray[np.int64]:
    below = np.zeros(len(tree), dtype=np.int64)
    for node in range(len(tree) - 1, 0, -1):  # children come after their parents
        below[tree.parents[node]] += below[node] + 1
    return below
