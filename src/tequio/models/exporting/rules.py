"""A model as JSON that people read and a few lines of any language evaluate: conditions on raw columns.

Every prepared column comes from one raw column. A raw number that is only scaled keeps its order, so a threshold on the
prepared column is one on the raw column too: the largest raw number that still goes left, found by halving, so that not
one row goes another way. Categories, and numbers that were cut into intervals, fall into a few pieces; each piece is
sent through the preparation once to see what it becomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import tequio
from tequio.errors import ConfigError
from tequio.learners.answers import One
from tequio.learners.trees.tree import LEAF
from tequio.models.exporting.forms import answer_of, linear, tree_sum
from tequio.models.exporting.plan import Cut, Log, Scale, Spread, plan_of
from tequio.registry import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.models.exporting.forms import Branches, Linear, TreeSum
    from tequio.models.exporting.plan import Plan
    from tequio.models.model import Model

    Numbers = NDArray[np.float64]
    Way = dict[int, NDArray[np.bool_] | tuple[float, float]]
    """Of each raw column on the way to a node: which pieces get there, or what a number is above and at most."""

VERSION = 1


def to_rules(model: Model) -> dict[str, Any]:
    """The document: what the columns are, and rules or terms that add up to scores."""
    answer, plan = answer_of(model), plan_of(model.reading, model.party)
    if not isinstance(answer, One):
        raise ConfigError("several models answer together here, which are no one list of rules",
                          remedy="export it to onnx: tequio export MODEL --to onnx")
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


def _column(plan: Plan, place: int) -> dict[str, Any]:
    """A raw column's name, its categories, and what stands in for a missing value."""
    feature = plan.raw.features[place]
    known = {} if feature.domain is None else {"categories": list(feature.domain)}
    usual = {"missing": plan.reading.usual[feature.name]} if feature.name in plan.reading.filled else {}
    return {"name": feature.name, "kind": "number" if feature.domain is None else "category", **known, **usual}


@dataclass(frozen=True, eq=False)
class RawColumns:
    """What prepared columns are of raw ones. `single`: prepared numbers are rounded before they are compared."""

    plan: Plan
    single: bool = False
    bounds: dict[tuple[int, float], float] = field(default_factory=dict, repr=False)

    @cached_property
    def source(self) -> NDArray[np.int64]:
        """The raw column of each prepared one."""
        return self._source_after(len(self.plan.operations))

    @cached_property
    def cuts(self) -> dict[int, Numbers]:
        """Raw cut points of numbers that became intervals; a piece goes up to its point, the last one to infinity."""
        found: dict[int, Numbers] = {}
        for steps, operation in enumerate(self.plan.operations):
            if not isinstance(operation, Cut):
                continue
            for column in np.flatnonzero(operation.which):
                raw = int(self._source_after(steps)[column])
                points = operation.points[column][np.isfinite(operation.points[column])]
                if raw not in found and self.plan.raw.features[raw].domain is None:
                    found[raw] = np.unique(self._largest(np.full(len(points), column), points, steps))
        return found

    @cached_property
    def pieces(self) -> dict[int, int]:
        """How many pieces a raw column has, where it has some."""
        return {column: len(self.cuts[column]) + 1 if feature.domain is None else len(feature.domain)
                for column, feature in enumerate(self.plan.raw.features)
                if feature.domain is not None or column in self.cuts}

    @cached_property
    def values(self) -> Numbers:
        """(most pieces, prepared columns): what each piece of a column becomes."""
        rows = np.zeros((max(self.pieces.values(), default=1), len(self.plan.raw.features)))
        for column, count in self.pieces.items():
            points = self.cuts.get(column)
            told = np.arange(count) if points is None else np.append(points, np.nextafter(points[-1:].sum(), np.inf))
            rows[:, column] = told[np.minimum(np.arange(len(rows)), count - 1)]
        return self._rounded(self.plan.apply(rows))

    def learn(self, trees: Sequence[Branches]) -> None:
        """Find the raw bounds of all thresholds on numbers that are not cut."""
        pairs = sorted({(int(column), float(threshold)) for tree in trees if tree.kind == "binary"
                        for column, threshold in zip(tree.feature, tree.threshold, strict=True)
                        if column != LEAF and int(self.source[column]) not in self.pieces})
        found = self._largest(np.array([column for column, _ in pairs], np.int64),
                              np.array([threshold for _, threshold in pairs]), len(self.plan.operations))
        self.bounds.update(zip(pairs, found.tolist(), strict=True))

    def below(self, way: Way, column: int, threshold: float, *, above: bool = False) -> Way:
        """A way with one condition more: a prepared column is at most a threshold, or above it."""
        raw = int(self.source[column])
        if raw in self.pieces:
            return self._kept(way, raw, (self.values[:self.pieces[raw], column] <= threshold) != above)
        low, high = way.get(raw, (-np.inf, np.inf))
        bound = self.bounds[column, threshold]
        return {**way, raw: (max(low, bound), high) if above else (low, min(high, bound))}

    def with_code(self, way: Way, column: int, codes: Sequence[int], *, other: bool = False) -> Way:
        """A way with one condition more: a prepared column has one of the codes, or none of them."""
        raw = int(self.source[column])
        return self._kept(way, raw, np.isin(self.values[:self.pieces[raw], column], codes) != other)

    def condition(self, raw: int, allowed: NDArray[np.bool_] | tuple[float, float]) -> dict[str, Any]:
        """What a rule says of a raw column."""
        name, domain = self.plan.raw.features[raw].name, self.plan.raw.features[raw].domain
        if isinstance(allowed, tuple):
            return {"column": name, **_range(*allowed)}
        if domain is not None:
            return {"column": name, "in": [text for text, kept in zip(domain, allowed, strict=True) if kept]}
        ends = [-np.inf, *self.cuts[raw].tolist(), np.inf]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], allowed, [False]])))
        ranges = [_range(ends[first], ends[last]) for first, last in edges.reshape(-1, 2)]
        return {"column": name, **(ranges[0] if len(ranges) == 1 else {"any_of": ranges})}

    def _kept(self, way: Way, raw: int, allowed: NDArray[np.bool_]) -> Way:
        before = way.get(raw)
        return {**way, raw: allowed & before if isinstance(before, np.ndarray) else allowed}

    def _largest(self, columns: NDArray[np.int64], thresholds: Numbers, steps: int) -> Numbers:
        """The largest raw numbers whose values after some steps are at most the thresholds.

        The range of all doubles is halved, in the order of their bits.
        """
        source, places = self._source_after(steps)[columns], np.arange(len(columns))
        high = np.full(len(columns), np.array(np.inf).view(np.int64))
        low = -high
        while (low < high).any():
            middle = (low | high) - ((low ^ high) >> 1)  # the mean, rounded up, without an overflow
            rows = np.zeros((len(columns), len(self.plan.raw.features)))
            rows[places, source] = _from_bits(middle)
            left = self._rounded(self.plan.apply(rows, steps)[places, columns]) <= thresholds
            low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
        return _from_bits(low)

    def _rounded(self, values: NDArray[Any]) -> Numbers:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(np.float32) if self.single else values, dtype=np.float64)

    def _source_after(self, steps: int) -> NDArray[np.int64]:
        source = np.arange(len(self.plan.raw.features))
        for operation in self.plan.operations[:steps]:
            source = source[operation.source] if isinstance(operation, Spread) else source
        return source


def _from_bits(places: NDArray[np.int64]) -> Numbers:
    return np.copysign(np.abs(places).view(np.float64), places)


def _range(low: float, high: float) -> dict[str, float]:
    return {**({"above": low} if np.isfinite(low) else {}), **({"up_to": high} if np.isfinite(high) else {})}


def _of_trees(raw: RawColumns, model: TreeSum, classes: list[Any]) -> dict[str, Any]:
    """Of each tree the rules, of which exactly one holds for a row."""
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


def _rule(raw: RawColumns, tree: Branches, node: int, way: Way, classes: list[Any]) -> dict[str, Any]:
    told = {place: allowed for place, allowed in sorted(way.items())
            if isinstance(allowed, tuple) or not allowed.all()}
    rule: dict[str, Any] = {"if": [raw.condition(place, allowed) for place, allowed in told.items()]}
    if tree.rows is not None:
        rule |= {"then": classes[int(tree.values[node].argmax())], "rows": float(tree.rows[node])}
    return {**rule, "adds": tree.values[node].tolist()}


def _of_terms(raw: RawColumns, model: Linear) -> dict[str, Any]:
    """What each raw column adds: so much for a category or an interval, or a number times a coefficient."""
    start, terms = model.intercept.astype(np.float64), []
    for place, feature in enumerate(raw.plan.raw.features):
        mine = np.flatnonzero(raw.source == place)
        if place in raw.pieces:
            added = raw.values[:raw.pieces[place], mine] @ model.coef[:, mine].T
            each = np.eye(len(added), dtype=bool)
            terms += [{**raw.condition(place, one), "adds": adds.tolist()} for one, adds
                      in zip(each, added, strict=True)] if len(mine) else []
        elif len(mine):
            coef, steps = model.coef[:, int(mine[0])], _steps(raw.plan, int(mine[0]))
            if not any(step == "log1p" for step in steps):
                slope, shift = _composed(steps)
                start, coef, steps = start - coef * shift, coef * slope, []
            terms.append({"column": feature.name, **({"steps": steps} if steps else {}), "times": coef.tolist()})
    return {"kind": "linear", "start": start.tolist(), "divide": 1, "link": model.link, "terms": terms}


def _steps(plan: Plan, column: int) -> list[Any]:
    """What is done to a number on its way to a prepared column: 'log1p', or [minus, over]."""
    steps: list[Any] = []
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
