"""Trees and rules as text that people read, and rules as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.trees.explain import Condition, condition
from tequio.learners.trees.tree import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tequio.data.schema import Schema
    from tequio.learners.trees.rules import Rules
    from tequio.learners.trees.tree import Tree

    PlainRule = dict[str, Any]
    """{"if": [conditions], "then": class, "shares": {class: share}, "support": rows}."""


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
