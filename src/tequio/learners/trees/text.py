"""Trees and rules as text that people read, and as JSON.

A tree as JSON has nested nodes with the names of columns, categories and classes:

    {"kind": "multiway", "classes": ["no", "yes"], "tree":
      {"node": 0, "counts": {"no": 5, "yes": 9}, "split": "outlook", "children": {"sunny": {...}, "rain": {...}}}}

A binary node has "threshold", and its children are called "<=" and ">". Classes without rows are left out of "counts".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tequio.errors import DataError, nearest
from tequio.learners.trees.explain import Condition, condition
from tequio.learners.trees.tree import LEAF, Tree, fault_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.dataset import Schema
    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Kind

    PlainNode = dict[str, Any]
    """A node as JSON knows it, with its children inside."""

PlainRule = TypedDict("PlainRule", {"if": list[str], "then": str, "shares": dict[str, float], "support": float})
"""Conditions, the class they lead to, the share of each class, and the rows behind the rule."""

_SIDES = ("<=", ">")

def tree_text(tree: Tree, schema: Schema) -> str:
    """The tree as indented text: a line a node, with its condition, its class and the rows behind it."""
    return "\n".join(_lines(tree, schema))


def plain_rules(rules: Rules, schema: Schema) -> list[PlainRule]:
    """Rules with the names of the schema, those with most rows behind them first."""
    order = np.argsort(-rules.support, kind="stable")
    return [_plain_rule(rules, int(rule), schema) for rule in order]


def rules_text(rules: Sequence[PlainRule]) -> str:
    """Rules as text, one a line."""
    width = len(str(len(rules)))
    return "\n".join(f"{number:>{width}}. if {' and '.join(rule['if']) or 'anything'} then {rule['then']}  "
                     f"({share_text(rule['shares'][rule['then']])} of {rows_text(rule['support'])})"
                     for number, rule in enumerate(rules, start=1))


def rules_json(rules: Sequence[PlainRule]) -> str:
    """Rules as JSON, one a line."""
    lines = ",\n".join(f" {json.dumps(rule, ensure_ascii=False)}" for rule in rules)
    return f"[\n{lines}\n]" if rules else "[]"


def count_text(support: float) -> str:
    """A count of rows; one that was estimated is rounded and says so."""
    return f"{support:.0f}" if float(support).is_integer() else f"~{support:.0f}" if support >= 1 else "<1"


def rows_text(support: float) -> str:
    """How many rows, in words."""
    return f"{count_text(support)} row{'' if support == 1 else 's'}"


def share_text(share: float) -> str:
    """A share as a percentage without superfluous digits."""
    return f"{100 * share:.3g} %"


def _lines(tree: Tree, schema: Schema) -> Iterator[str]:
    waiting = [(0, "")]
    while waiting:
        node, way = waiting.pop()
        children = tree.children[node][tree.children[node] != LEAF]
        waiting += [(int(child), str(condition(tree, node, int(child), schema))) for child in children[::-1]]
        yield f"{'|   ' * (int(tree.depths[node]) - 1)}{way or 'all rows'}: {_verdict(tree, node, schema)}"


def _verdict(tree: Tree, node: int, schema: Schema) -> str:
    shares, support = tree.probabilities[node], rows_text(tree.support[node])
    chosen = int(shares.argmax())
    verdict = f"{schema.target.names[chosen]} ({share_text(shares[chosen])} of {support})"
    return verdict if tree.feature[node] == LEAF else f"{support}, split on {schema.names[tree.feature[node]]}"


def _plain_rule(rules: Rules, rule: int, schema: Schema) -> PlainRule:
    votes = rules.votes[rule] / max(rules.votes[rule].sum(), np.finfo(np.float64).tiny)
    chosen = schema.target.names[int(rules.decisive[rule].argmax())]
    return {"if": [_bounds_text(rules, rule, int(column), schema) for column in np.flatnonzero(rules.bound[rule])],
            "then": chosen, "shares": dict(zip(schema.target.names, votes.tolist(), strict=True)),
            "support": float(rules.support[rule])}


def _bounds_text(rules: Rules, rule: int, column: int, schema: Schema) -> str:
    low, high, feature = rules.low[rule, column], rules.high[rule, column], schema.features[column]
    if rules.kind == "multiway":
        return str(Condition(feature.name, "==", feature.domain[int(high)] if feature.domain else str(int(high))))
    if np.isinf(low):
        return f"{feature.name} <= {high:.6g}"
    return f"{feature.name} > {low:.6g}" if np.isinf(high) else f"{low:.6g} < {feature.name} <= {high:.6g}"


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


def _plain_node(tree: Tree, node: int, schema: Schema) -> PlainNode:
    counts = {name: int(count) if count == int(count) else count
              for name, count in zip(schema.target.names, tree.counts[node].tolist(), strict=True) if count}
    plain: PlainNode = {"node": node, "counts": counts}
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


def _nodes_in(node: PlainNode) -> Iterator[PlainNode]:
    yield node
    for child in node.get("children", {}).values():
        yield from _nodes_in(child)


def _tree_from(kind: Kind, nodes: list[PlainNode], schema: Schema) -> Tree:
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
