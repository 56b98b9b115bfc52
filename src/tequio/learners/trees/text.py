"""Trees and rules as text that people read, and as JSON.

A tree as JSON has nested nodes with the names of columns, categories and classes:

    {"kind": "multiway", "classes": ["no", "yes"], "tree":
      {"node": 0, "counts": {"no": 5, "yes": 9}, "split": "outlook", "children": {"sunny": {...}, "rain": {...}}}}

A binary node has "threshold", and its children are called "<=" and ">". Classes without rows are left out of "counts".
Where a mixed tree splits categories, its children are numbered, and "categories" says which of them each category goes
to; "missing" names the child for missing values, where any were met. A tree that predicts numbers has "rows" and
"value" instead of "counts".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tequio.errors import DataError, nearest
from tequio.learners.trees.explain import Condition, answer_at, category_condition, condition
from tequio.learners.trees.tree import EVERY_NUMBER, LEAF, Tree, fault_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.dataset import Array, Schema
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
                     f"({_share_of(rule)}{rows_text(rule['support'])})"
                     for number, rule in enumerate(rules, start=1))


def _share_of(rule: PlainRule) -> str:
    return f"{share_text(rule['shares'][rule['then']])} of " if rule["shares"] else ""


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
        children = tree.branches[node][tree.branches[node] != LEAF]
        waiting += [(int(child), str(condition(tree, node, int(child), schema))) for child in children[::-1]]
        yield f"{'|   ' * (int(tree.depths[node]) - 1)}{way or 'all rows'}: {_verdict(tree, node, schema)}"


def _verdict(tree: Tree, node: int, schema: Schema) -> str:
    support, answer = rows_text(tree.support[node]), answer_at(tree, node, schema)
    verdict = f"{answer} ({share_text(tree.probabilities[node].max())} of {support})" if tree.value is None else \
        f"{answer} ({support})"
    return verdict if tree.feature[node] == LEAF else f"{support}, split on {schema.names[tree.feature[node]]}"


def _plain_rule(rules: Rules, rule: int, schema: Schema) -> PlainRule:
    conditions = [_bounds_text(rules, rule, int(column), schema) for column in np.flatnonzero(rules.bound[rule])]
    support = float(rules.support[rule])
    if rules.means:
        return {"if": conditions, "then": f"{rules.value[rule]:.6g}", "shares": {}, "support": support}
    votes = rules.votes[rule] / max(rules.votes[rule].sum(), np.finfo(np.float64).tiny)
    chosen = schema.target.names[int(rules.decisive[rule].argmax())]
    return {"if": [text for text in conditions if text], "then": chosen,
            "shares": dict(zip(schema.target.names, votes.tolist(), strict=True)), "support": support}


def _bounds_text(rules: Rules, rule: int, column: int, schema: Schema) -> str:
    low, high, feature = rules.low[rule, column], rules.high[rule, column], schema.features[column]
    if rules.kind == "multiway":
        return str(Condition(feature.name, "==", feature.domain[int(high)] if feature.domain else str(int(high))))
    if rules.allowed is not None and rules.gaps is not None:
        gaps = bool(rules.gaps[column])
        allowed = rules.allowed[rule, column].tolist()
        if feature.domain is not None:
            return str(category_condition(feature.name, feature.domain, allowed[:-1], gaps=gaps and allowed[-1]))
        if low > high or high == np.inf == -low or (high == EVERY_NUMBER and low == -np.inf):
            return f"{feature.name} is {'missing' if low > high else 'known'}"
        if low == EVERY_NUMBER:
            return f"{feature.name} is missing"
        numbers = _range_text(feature.name, low, high)
        return f"{numbers} or missing" if gaps and allowed[-1] else numbers
    return _range_text(feature.name, low, high)


def _range_text(name: str, low: float, high: float) -> str:
    if np.isinf(low):
        return f"{name} <= {high:.6g}"
    return f"{name} > {low:.6g}" if np.isinf(high) else f"{low:.6g} < {name} <= {high:.6g}"


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
    plain: PlainNode = {"node": node}
    if tree.value is None:
        counts = zip(schema.target.names, tree.counts[node].tolist(), strict=True)
        plain["counts"] = {name: int(count) if count == int(count) else count for name, count in counts if count}
    else:
        plain |= {"rows": float(tree.counts[node, 0]), "value": float(tree.value[node])}
    if tree.feature[node] == LEAF:
        return plain
    feature = int(tree.feature[node])
    plain["split"] = schema.names[feature]
    if tree.missing is not None:
        return plain | _mixed_ways(tree, node, schema)
    ways = _ways(tree.kind, feature, schema)
    if tree.kind == "binary":
        plain["threshold"] = float(tree.threshold[node])
    plain["children"] = {way: int(child) for way, child in zip(ways, tree.children[node], strict=False)
                         if child != LEAF}
    return plain


def _mixed_ways(tree: Tree, node: int, schema: Schema) -> PlainNode:
    assert tree.missing is not None
    children = [int(child) for child in tree.branches[node] if child != LEAF]
    domain, missing = schema.features[int(tree.feature[node])].domain, int(tree.missing[node])
    is_number = not np.isnan(tree.threshold[node])
    names = dict(zip(children, _SIDES if is_number else [str(place) for place in range(len(children))], strict=True))
    plain: PlainNode = {"children": {name: child for child, name in names.items()}}
    if missing != LEAF:
        plain["missing"] = names[missing]
    if is_number:
        return plain | {"threshold": float(tree.threshold[node])}
    ways = zip(domain or (), tree.children[node].tolist(), strict=False)
    return plain | {"categories": {category: names[child] for category, child in ways if child != LEAF}}


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
    if kind == "mixed":
        width = max([2, *(len(schema.features[column].domain or ()) for column in split)])
    else:
        width = max([2 if kind == "binary" else 1, *(len(_ways(kind, column, schema)) for column in split)])
    feature, threshold = np.full(len(nodes), LEAF, dtype=np.int32), np.full(len(nodes), np.nan)
    children = np.full((len(nodes), width), LEAF, dtype=np.int32)
    counts, missing = np.zeros((len(nodes), schema.target.size)), np.full(len(nodes), LEAF, dtype=np.int32)
    value = np.array([float(node["value"]) for node in nodes if "value" in node])
    for node in nodes:
        number = node["node"]
        for name, count in node.get("counts", {}).items():
            counts[number, _place(name, schema.target.names, "class")] = count
        if "value" in node:
            counts[number, 0] = node["rows"]
        if "split" in node and kind == "mixed":
            _read_mixed(node, schema, feature, threshold, children, missing)
        elif "split" in node:
            feature[number] = schema.column(node["split"])
            threshold[number] = float(node["threshold"]) if kind == "binary" else np.nan
            ways = _ways(kind, int(feature[number]), schema)
            for way, child in node["children"].items():
                children[number, _place(way, ways, "category")] = child["node"]
    if len(value):
        value = value[np.argsort([node["node"] for node in nodes])]
    return Tree(kind, feature, threshold, children, counts, missing if kind == "mixed" else None,
                value if schema.target.kind == "number" else None)


def _read_mixed(node: PlainNode, schema: Schema, feature: Array, threshold: Array, children: Array,
                missing: Array) -> None:
    """Put a node of a mixed tree that is split into the arrays."""
    number, column = node["node"], schema.column(node["split"])
    numbers = {name: child["node"] for name, child in node["children"].items()}
    feature[number], missing[number] = column, numbers[node["missing"]] if "missing" in node else LEAF
    if "threshold" in node:
        threshold[number] = float(node["threshold"])
        children[number, :2] = [numbers[side] for side in _SIDES]
        return
    for category, name in node["categories"].items():
        children[number, _place(category, _ways(str(column), column, schema), "category")] = numbers[name]


def _place(name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        raise DataError(f"the tree names a {what} '{name}' that the schema does not know", remedy=nearest(name, names))
    return names.index(name)
