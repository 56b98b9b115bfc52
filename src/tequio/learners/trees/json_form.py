"""A tree as JSON that people read: nested nodes with the names of columns, categories and classes.

    {"kind": "multiway", "classes": ["no", "yes"], "tree":
      {"node": 0, "counts": {"no": 5, "yes": 9}, "split": "outlook", "children": {"sunny": {...}, "rain": {...}}}}

A binary node has "threshold", and its children are called "<=" and ">". Classes without rows are left out of "counts".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError, nearest
from tequio.learners.trees.tree import LEAF, Tree, fault_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.schema import Schema

_SIDES = ("<=", ">")


def to_json(tree: Tree, schema: Schema) -> str:
    """The tree with the names of the schema."""
    nodes = [_plain_node(tree, node, schema) for node in range(len(tree))]
    for node in range(len(tree)):
        if "children" in nodes[node]:
            nodes[node]["children"] = {way: nodes[child] for way, child in nodes[node]["children"].items()}
    document = {"kind": tree.kind, "classes": list(schema.target.names), "tree": nodes[0]}
    return json.dumps(document, indent=1, ensure_ascii=False)


def from_json(text: str, schema: Schema) -> Tree:
    """The tree back from JSON; anything that is not a sound tree for data of the schema is refused."""
    try:
        document = json.loads(text)
        if list(document["classes"]) != list(schema.target.names):
            raise DataError(f"the tree tells the classes {document['classes']} apart, not "
                            f"{list(schema.target.names)}", remedy="use the schema that the tree was fitted with")
        tree = _tree_from(document["kind"], list(_nodes_in(document["tree"])), schema)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise DataError(f"this is not a tree: {cause!r}", remedy="write one with to_json") from None
    fault = fault_of(tree, len(schema.features), schema.target.size)
    if fault:
        raise DataError(f"this tree is not sound: {fault}")
    return tree


def _plain_node(tree: Tree, node: int, schema: Schema) -> dict[str, Any]:
    counts = {name: int(count) if count == int(count) else count
              for name, count in zip(schema.target.names, tree.counts[node].tolist(), strict=True) if count}
    plain: dict[str, Any] = {"node": node, "counts": counts}
    if tree.feature[node] == LEAF:
        return plain
    feature, ways = int(tree.feature[node]), _ways(tree.kind, int(tree.feature[node]), schema)
    plain["split"] = schema.names[feature]
    if tree.kind == "binary":
        plain["threshold"] = float(tree.threshold[node])
    plain["children"] = {way: int(child) for way, child in zip(ways, tree.children[node], strict=False)
                         if child != LEAF}
    return plain


def _ways(kind: str, feature: int, schema: Schema) -> Sequence[str]:
    """What the children of a node are called."""
    if kind == "binary":
        return _SIDES
    domain = schema.features[feature].domain
    if domain is None:
        raise DataError(f"column '{schema.names[feature]}' is numeric, and the tree splits it by category",
                        remedy="use the schema that the tree was fitted with")
    return domain


def _nodes_in(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("children", {}).values():
        yield from _nodes_in(child)


def _tree_from(kind: Any, nodes: list[dict[str, Any]], schema: Schema) -> Tree:
    if sorted(node["node"] for node in nodes) != list(range(len(nodes))):
        raise ValueError(f"its nodes are not numbered from 0 to {len(nodes) - 1}")
    split = [schema.column(node["split"]) for node in nodes if "split" in node]
    width = max([2 if kind == "binary" else 1, *(len(_ways(kind, column, schema)) for column in split)])
    feature, threshold = np.full(len(nodes), LEAF, dtype=np.int32), np.full(len(nodes), np.nan)
    children = np.full((len(nodes), width), LEAF, dtype=np.int32)
    counts = np.zeros((len(nodes), schema.target.size))
    for node in nodes:
        number = node["node"]
        for name, count in node["counts"].items():
            counts[number, _place(name, schema.target.names, "class")] = count
        if "split" in node:
            feature[number] = schema.column(node["split"])
            threshold[number] = float(node["threshold"]) if kind == "binary" else np.nan
            ways = _ways(kind, int(feature[number]), schema)
            for way, child in node["children"].items():
                children[number, _place(way, ways, "category")] = child["node"]
    return Tree(kind, feature, threshold, children, counts)


def _place(name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        raise DataError(f"the tree names a {what} '{name}' that the schema does not know", remedy=nearest(name, names))
    return names.index(name)
