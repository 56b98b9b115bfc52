"""A tree as one self-contained HTML page that opens, closes, zooms and lights the path of explained rows."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.trees.explain import condition
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.schema import Schema
    from tequio.learners.trees.explain import Explanation
    from tequio.learners.trees.tree import Tree

_TEMPLATE = Path(__file__).with_name("templates") / "tree.html"


def tree_page(tree: Tree, schema: Schema, *, title: str = "Decision tree",
              explained: Mapping[str, Explanation] | None = None) -> str:
    """The page; `explained` are rows by name whose paths can be lit."""
    data = {"nodes": nodes_of(tree, schema), "classes": list(schema.target.names),
            "rows": [{"name": name, "nodes": list(why.nodes), "text": f"{name}: {why}"}
                     for name, why in (explained or {}).items()]}
    # A closing tag inside a JSON string would end the script; the escaped form means the same to JavaScript.
    text = json.dumps(data).replace("<", "\\u003c")
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(title=escape(title), data=text)


def nodes_of(tree: Tree, schema: Schema) -> list[dict[str, Any]]:
    """What a viewer needs to know of each node, in words."""
    below = _descendants(tree)
    return [_node(tree, schema, node, int(below[node])) for node in range(len(tree))]


def _node(tree: Tree, schema: Schema, node: int, below: int) -> dict[str, Any]:
    children = [int(child) for child in tree.children[node] if child != LEAF]
    conditions = [condition(tree, node, child, schema) for child in children]
    leaf = tree.feature[node] == LEAF
    label = schema.target.names[int(tree.probabilities[node].argmax())]
    return {"id": node, "depth": int(tree.depths[node]), "children": children,
            "branches": [step.value if step.relation == "==" else f"{step.relation} {step.value}"
                         for step in conditions],
            "title": label if leaf else schema.names[int(tree.feature[node])],
            "label": "leaf" if leaf else f"mostly {label}", "support": f"{tree.counts[node].sum():.6g}",
            "shares": [round(float(share), 4) for share in tree.probabilities[node]], "below": below}


def _descendants(tree: Tree) -> Any:
    below = np.zeros(len(tree), dtype=np.int64)
    for node in range(len(tree) - 1, 0, -1):  # children come after their parents
        below[tree.parents[node]] += below[node] + 1
    return below
