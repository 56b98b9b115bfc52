"""A question against a schema: which cells it has, which numbers each takes, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, log10, prod
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.statistics.asking.grammar import comparisons
from tequio.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.statistics.asking.grammar import Key, Question, Value
    from tequio.data.dataset import Schema

MOST_CELLS = 10_000
PARTY = "party"
"""A key of this name stands for whose rows they are, where no column is called so."""

Scale = tuple[float, float, float]
"""The smallest value that a column is taken to have, the largest, and the steps that thresholds lie on."""


@dataclass(frozen=True)
class Column:
    """What a question may do with a column: categories (in order, if `ordered`), or numbers on a scale."""

    name: str
    domain: tuple[str, ...] | None = None
    ordered: bool = False
    scale: Scale | None = None

    @property
    def centre(self) -> float:
        """Around what its values are added up: known to all beforehand."""
        return 0.0 if self.scale is None else (self.scale[0] + self.scale[1]) / 2

    @property
    def half(self) -> float:
        """How far a value may be from there."""
        return inf if self.scale is None else (self.scale[1] - self.scale[0]) / 2

    @property
    def edges(self) -> NDArray[np.float64]:
        """The edges of its bins, from the smallest value to the largest, as numbers that people write: 0.3 is 0.3."""
        low, high, step = self.scale or (0.0, 0.0, 1.0)
        digits = 13 - ceil(log10(max(abs(low), abs(high), 1e-300)))
        return np.round(low + step * np.arange(round((high - low) / step) + 1), digits)

    def code(self, value: Value) -> float:
        """The number that stands for a value, which has to be of its domain or on its steps."""
        if self.domain is not None:
            written = f"{value:g}" if isinstance(value, float) else value
            if written not in self.domain:
                raise ConfigError(f"'{written}' is no value of column '{self.name}'",
                                  remedy=nearest(written, self.domain))
            return float(self.domain.index(written))
        if isinstance(value, str):
            raise ConfigError(f"column '{self.name}' has numbers, and '{value}' is none",
                              remedy="compare it with a number")
        if self.scale is None:
            raise ConfigError(f"'{self.name}' has no declared steps, and a threshold could be slid by one row",
                              remedy=f"declare them: algorithm.scales = {{{self.name} = [0, 100, 5]}}, by the smallest "
                                     "value, the largest one and the step")
        low, high, step = self.scale
        steps = (value - low) / step
        if abs(steps - round(steps)) > 1e-9 * max(1.0, abs(steps)) or not low <= value <= high:
            below = min(max(low + step * np.floor(steps), low), high)
            above = min(below + step, high)
            raise ConfigError(f"'{self.name}' is declared in steps of {step:g} from {low:g} to {high:g}, and {value:g} "
                              "is none of them", remedy=f"use {below:g} or {above:g}" if above > below else
                              f"use {below:g}")
        return float(value)


def columns_of(schema: Schema, scales: Mapping[str, Sequence[float]]) -> dict[str, Column]:
    """The columns that questions may name: features and the target."""
    found: dict[str, Column] = {}
    for feature in schema.features:
        scale = (0.0, 1.0, 1.0) if feature.kind == "flag" else None
        found[feature.name] = Column(feature.name, feature.domain, feature.kind == "ordered", scale)
    target = schema.target
    if target.kind in ("classes", "number"):
        found[target.name] = Column(target.name, target.names if target.kind == "classes" else None)
    for name in target.names if target.kind == "multilabel" else ():
        found[name] = Column(name, None, scale=(0.0, 1.0, 1.0))
    for name, given in scales.items():
        if name not in found:
            raise ConfigError(f"algorithm.scales names '{name}', and there is no such column",
                              remedy=nearest(name, found))
        if found[name].domain is not None:
            raise ConfigError(f"algorithm.scales.{name} would do nothing: its values are categories",
                              remedy=f"leave algorithm.scales.{name} out")
        low, high, step = (*given, *[0.0] * 3)[:3]
        steps = (high - low) / step if step > 0 else 0.0
        fits = isfinite(steps) and 1 <= round(steps) <= MOST_CELLS and abs(steps - round(steps)) < 1e-6
        if len(given) != 3 or not fits:
            raise ConfigError(f"algorithm.scales.{name} is the smallest value, the largest one and a step that goes "
                              f"into their difference 1 to {MOST_CELLS} times, not {list(given)}",
                              remedy=f"such as {name} = [0, 100, 5]")
        found[name] = Column(name, scale=(float(low), float(high), float(step)))
    return found


@dataclass(frozen=True)
class Plan:
    """A question that fits a schema: its columns, the parties by name where a key asks for them, and its cells."""

    question: Question
    columns: Mapping[str, Column]
    parties: tuple[str, ...] = ()

    @property
    def labels(self) -> list[tuple[str, ...]]:
        """The values of each key."""
        return [self._values(key) for key in self.question.keys]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each key has."""
        return tuple(len(values) for values in self.labels)

    @property
    def cells(self) -> int:
        """How many cells there are; one without keys."""
        return prod(self.shape)

    def by_party(self, key: Key) -> bool:
        """Whether a key asks whose rows they are."""
        return key.column == PARTY and PARTY not in self.columns

    def blocks(self) -> dict[str, tuple[tuple[int, ...], bool]]:
        """What crosses: by name the shape, and whether its entries are counts."""
        found: dict[str, tuple[tuple[int, ...], bool]] = {"n": ((self.cells,), True), "left_out": ((1,), True)}
        for place, measure in enumerate(self.question.measures):
            if measure.kind == "count":
                continue
            found[f"of_{place}"] = ((self.cells,), True)
            if measure.kind == "share":
                found[f"true_{place}"] = ((self.cells,), True)
            elif measure.kind in ("median", "quantile"):
                found[f"bins_{place}"] = ((self.cells, len(self.columns[measure.column].edges) - 1), True)
            else:
                found[f"sum_{place}"] = ((self.cells,), False)
            if measure.kind == "sd":
                found[f"squares_{place}"] = ((self.cells,), False)
        return found

    def moves(self) -> dict[str, float]:
        """How far one row moves each block; without end where a column has no scale."""
        found = {}
        for name in self.blocks():
            kind, _, place = name.partition("_")
            half = self.columns[self.question.measures[int(place)].column].half if kind in ("sum", "squares") else 1.0
            found[name] = half ** 2 if kind == "squares" else half
        return found

    def _values(self, key: Key) -> tuple[str, ...]:
        if self.by_party(key):
            return self.parties
        column = self.columns[key.column]
        if column.domain is not None:
            return column.domain
        edges = [f"{edge:g}" for edge in key.edges]
        if not edges:
            return tuple(f"{edge:g}" for edge in column.edges)
        return (f"< {edges[0]}", *(f"{low} to < {high}" for low, high in pairwise(edges)),
                f">= {edges[-1]}")


def planned(question: Question, columns: Mapping[str, Column], parties: Sequence[str] = ()) -> Plan:
    """The question held against the columns; anything that does not fit is refused."""
    plan = Plan(question, columns, tuple(parties))
    for measure in question.measures:
        if measure.column:
            column = _known(measure.column, columns)
            if column.domain is not None:
                raise ConfigError(f"{measure.text}: column '{column.name}' has categories and no numbers",
                                  remedy=f"ask for share({column.name} = '{column.domain[0]}'), or count by "
                                         f"{column.name}")
            if measure.kind in ("median", "quantile") and column.scale is None:
                raise ConfigError(f"{measure.text} counts rows on declared edges, and '{column.name}' has none",
                                  remedy=f"declare them: algorithm.scales = {{{column.name} = [0, 100, 5]}}")
    for condition in question.conditions:
        for one in comparisons(condition):
            column = _known(one.column, columns)
            for value in one.values:
                column.code(value)
            if column.domain is not None and one.op not in ("=", "!=") and not column.ordered:
                raise ConfigError(f"the categories of '{column.name}' have no order to compare by '{one.op}'",
                                  remedy="use =, != or in, or declare the column as ordered")
    for place, key in enumerate(question.keys):
        if key.column in [other.column for other in question.keys[:place]]:
            raise ConfigError(f"'{key.column}' is a key twice", remedy="leave one of them out")
        if plan.by_party(key):
            if key.edges:
                raise ConfigError("parties are no numbers to put into bins", remedy="write by party")
            continue
        column = _known(key.column, columns)
        if column.domain is None and column.scale is None:
            raise ConfigError(f"'{key.column}' has numbers without declared steps, which are no cells",
                              remedy=f"declare them: algorithm.scales = {{{key.column} = [0, 100, 5]}}, and ask by "
                                     f"bin({key.column}, 40, 60)")
        if column.domain is not None and key.edges:
            raise ConfigError(f"'{key.column}' has categories, which are no numbers to put into bins",
                              remedy=f"write by {key.column}")
        for edge in key.edges:
            column.code(edge)
    entries = sum(prod(shape) for shape, _ in plan.blocks().values())
    if max(plan.cells, entries // max(len(plan.blocks()), 1)) > MOST_CELLS:
        raise ConfigError(f"the question has {plan.cells} cells and {entries} numbers, and {MOST_CELLS} cells are the "
                          "most", remedy="ask by fewer keys or wider bins")
    return plan


def _known(name: str, columns: Mapping[str, Column]) -> Column:
    if name not in columns:
        raise ConfigError(f"there is no column '{name}'", remedy=nearest(name, columns))
    return columns[name]
