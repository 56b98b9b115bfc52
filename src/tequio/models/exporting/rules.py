"""A model as JSON that people read and a few lines of any language evaluate: conditions on raw columns.

Of trees it is the way to every leaf, of linear models what each column adds. The file alone is enough to answer a row;
a test does so in a few lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tequio
from tequio.data.dataset import OTHER
from tequio.errors import ConfigError
from tequio.learners.answers import One
from tequio.learners.trees.rules import extract
from tequio.learners.trees.tree import EVERY_NUMBER, LEAF, Tree
from tequio.models.exporting.forms import answer_of, linear, tree_sum
from tequio.models.exporting.plan import Log, Scale, Spread, plan_of
from tequio.models.exporting.raw_columns import RawColumns
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.learners.trees.rules import Rules
    from tequio.models.exporting.forms import Branches, Linear, TreeSum
    from tequio.models.exporting.plan import Plan
    from tequio.models.exporting.raw_columns import Way
    from tequio.models.model import Model

VERSION = 1

Json = dict[str, Any]
"""A part of the document."""


def to_rules(model: Model) -> Json:
    """The document: what the columns are, and rules or terms that add up to scores."""
    answer, plan = answer_of(model), plan_of(model.reading, model.party)
    if not isinstance(answer, One):
        raise ConfigError("several models answer together here, which are no one list of rules",
                          remedy="export it to onnx: tequio export MODEL --to onnx")
    plan.refuse_hashed("a file of rules")
    trees = tree_sum(answer.learner, answer.model, plan.schema)
    plain = linear(answer.learner, answer.model, plan.schema)
    target = {"name": model.target.name, "kind": model.target.kind, "classes": model.classes.tolist()}
    about = {"format": "tequio rules", "version": VERSION, "tequio": tequio.__version__, "facts": dict(model.facts),
             "target": target, "columns": [_column(plan, place) for place in range(len(plan.raw.features))]}
    if trees is not None:
        return {**about, **_of_trees(RawColumns(plan, trees.single), trees, model.classes.tolist())}
    if plain is not None:
        return {**about, **_of_terms(RawColumns(plan), plain)}
    raise ConfigError(f"a model of the learner '{name_of(type(answer.learner))}' has no rules: only trees and linear "
                      "models do", remedy="export it to onnx: tequio export MODEL --to onnx")


def _column(plan: Plan, place: int) -> Json:
    """A raw column's name, its categories, and what stands in for others and for a missing value.

    A flag is 1 where the column that it is `of` has no value, and 0 elsewhere.
    """
    feature = plan.raw.features[place]
    if feature.kind == "flag":
        return {"name": feature.name, "kind": "flag", "of": feature.column}
    known = {} if feature.domain is None else {"categories": list(feature.domain)}
    usual = {"missing": plan.reading.usual[feature.name]} if feature.name in plan.reading.filled else {}
    others = {"others": OTHER} if OTHER in (feature.domain or ()) else {}
    kind = "number" if feature.domain is None else "category"
    return {"name": feature.name, "kind": kind, **known, **others, **usual}


def _range(low: float, high: float) -> dict[str, float]:
    return {**({"above": low} if np.isfinite(low) else {}), **({"up_to": high} if np.isfinite(high) else {})}


def _condition(raw: RawColumns, place: int, allowed: NDArray[np.bool_] | tuple[float, float]) -> Json:
    """What a rule says of a raw column."""
    name, domain = raw.plan.raw.features[place].name, raw.plan.raw.features[place].domain
    if isinstance(allowed, tuple):
        return {"column": name, **_range(*allowed)}
    if domain is not None:
        return {"column": name, "in": [text for text, kept in zip(domain, allowed, strict=True) if kept]}
    ends = [-np.inf, *raw.cuts[place].tolist(), np.inf]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], allowed, [False]])))
    ranges = [_range(ends[first], ends[last]) for first, last in edges.reshape(-1, 2)]
    return {"column": name, **(ranges[0] if len(ranges) == 1 else {"any_of": ranges})}


def _of_trees(raw: RawColumns, model: TreeSum, classes: list[object]) -> Json:
    """Of each tree the rules, of which exactly one holds for a row."""
    trees = [tree.with_gaps() for tree in model.trees] if raw.plan.reading.missing else list(model.trees)
    if any(tree.kind == "mixed" for tree in trees):
        return {"kind": "trees", "start": model.start.tolist(), "divide": model.divide, "link": model.link,
                "trees": [_mixed_rules(raw.plan, tree, classes) for tree in trees]}
    raw.learn(model.trees)
    return {"kind": "trees", "start": model.start.tolist(), "divide": model.divide, "link": model.link,
            "trees": [[_rule(raw, tree, node, way, classes) for node, way in _ends(raw, tree, 0, {})]
                      for tree in model.trees]}


def _ends(raw: RawColumns, tree: Branches, node: int, way: Way) -> Iterator[tuple[int, Way]]:
    """Every node where rows end, with the way there, unless no row can take it."""
    if not all(part[0] < part[1] if isinstance(part, tuple) else part.any() for part in way.values()):
        return
    column = int(tree.feature[node])
    if column == LEAF:
        yield node, way
    elif tree.kind == "binary":
        threshold = float(tree.threshold[node])
        for place, child in enumerate(tree.children[node]):
            yield from _ends(raw, tree, int(child), raw.below(way, column, threshold, above=place == 1))
    else:
        codes = np.flatnonzero(tree.children[node] != LEAF)
        for code in codes:
            yield from _ends(raw, tree, int(tree.children[node][code]), raw.with_code(way, column, [int(code)]))
        rest = raw.with_code(way, column, codes.tolist(), other=True)
        if rest[int(raw.source[column])].any():  # type: ignore[union-attr]
            yield node, rest


def _rule(raw: RawColumns, tree: Branches, node: int, way: Way, classes: list[object]) -> Json:
    told = {place: allowed for place, allowed in sorted(way.items())
            if isinstance(allowed, tuple) or not allowed.all()}
    rule: Json = {"if": [_condition(raw, place, allowed) for place, allowed in told.items()]}
    return {**rule, **_said(tree, node, classes)}


def _said(tree: Branches, node: int, classes: list[object]) -> Json:
    adds: Json = {"adds": tree.values[node].tolist()}
    if not tree.rows.any():
        return adds
    then = {"then": classes[int(tree.values[node].argmax())]} if classes else {}
    return {**then, "rows": float(tree.rows[node]), **adds}


def _mixed_rules(plan: Plan, tree: Branches, classes: list[object]) -> list[Json]:
    """The rules of a tree that knows missing values: only conditions with `or_missing` hold where a value is."""
    splits = np.flatnonzero((tree.feature != LEAF) & np.isnan(tree.threshold))
    stuck = any((tree.children[node, :len(plan.raw.features[int(tree.feature[node])].domain or ())] == LEAF).any()
                for node in splits)
    if plan.operations or stuck or tree.missing is None:
        raise ConfigError("these trees know missing values of prepared columns, or lack branches for categories, and "
                          "a file of rules has no words for that", remedy="export it to onnx: tequio export MODEL "
                          "--to onnx")
    values = None if tree.rows.any() else np.zeros(len(tree.feature))
    whole = Tree("mixed", tree.feature, tree.threshold, tree.children, np.maximum(tree.rows, 0.0)[:, None],
                 np.asarray(tree.missing, dtype=np.int32), values)
    rules = extract(whole, len(plan.raw.features))
    return [{"if": [_mixed_condition(plan, rules, rule, int(column)) for column in np.flatnonzero(rules.bound[rule])],
             **_said(tree, int(node), classes)} for rule, node in enumerate(whole.leaves)]


def _mixed_condition(plan: Plan, rules: Rules, rule: int, column: int) -> Json:
    assert rules.allowed is not None
    feature, allowed = plan.raw.features[column], rules.allowed[rule, column]
    gaps = {"or_missing": True} if allowed[-1] else {}
    if feature.domain is not None:
        inside = [text for text, kept in zip(feature.domain, allowed[:-1], strict=False) if kept]
        return {"column": feature.name, "in": inside, **gaps}
    low, high = float(rules.low[rule, column]), float(rules.high[rule, column])
    if low > high or low == EVERY_NUMBER:
        return {"column": feature.name, "in": [], **gaps}
    return {"column": feature.name, **_range(low, high), **gaps}


def _of_terms(raw: RawColumns, model: Linear) -> Json:
    """What each raw column adds: so much for a category or an interval, or a number times a coefficient."""
    start, terms = model.intercept.astype(np.float64), []
    for place, feature in enumerate(raw.plan.raw.features):
        mine = np.flatnonzero(raw.source == place)
        if place in raw.pieces:
            added = raw.values[:raw.pieces[place], mine] @ model.coef[:, mine].T
            each = np.eye(len(added), dtype=bool)
            terms += [{**_condition(raw, place, one), "adds": adds.tolist()} for one, adds
                      in zip(each, added, strict=True)] if len(mine) else []
        elif len(mine):
            coef, steps = model.coef[:, int(mine[0])], _steps(raw.plan, int(mine[0]))
            scales = [step for step in steps if not isinstance(step, str)]
            if len(scales) == len(steps):
                slope, shift = _composed(scales)
                start, coef, steps = start - coef * shift, coef * slope, []
            terms.append({"column": feature.name, **({"steps": steps} if steps else {}), "times": coef.tolist()})
    return {"kind": "linear", "start": start.tolist(), "divide": 1, "link": model.link, "terms": terms}


def _steps(plan: Plan, column: int) -> list[str | list[float]]:
    """What is done to a number on its way to a prepared column: 'log1p', or [minus, over]."""
    steps: list[str | list[float]] = []
    for operation in reversed(plan.operations):
        if isinstance(operation, Spread):
            column = int(operation.source[column])
        elif isinstance(operation, Scale):
            steps.insert(0, [float(operation.shift[column]), float(operation.scale[column])])
        elif isinstance(operation, Log) and operation.which[column]:
            steps.insert(0, "log1p")
    return steps


def _composed(steps: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Slope and shift for which slope * x - shift is what the steps make of x."""
    slope, shift = 1.0, 0.0
    for minus, over in steps:
        slope, shift = slope / over, (shift + minus) / over
    return slope, shift
