"""Tests of hypotheses over all parties: equal to those of the pooled rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from annotated_types import Gt, Lt
from numpy.typing import NDArray

from tequio.algorithms.statistics import hypotheses
from tequio.algorithms.statistics.asking.planning import columns_of
from tequio.algorithms.statistics.exact_sums import symmetric
from tequio.algorithms.statistics.hypotheses import Correction, Group, Tested
from tequio.algorithms.statistics.small_cells import require_everywhere
from tequio.algorithms.statistics.statistic import ExactStatistic
from tequio.algorithms.statistics.testing_tasks import (
    TestSettings,
    bins_of,
    counts_here,
    counts_layout,
    groups_here,
    groups_layout,
    margins_here,
    margins_layout,
    products_here,
    products_layout,
)
from tequio.errors import ConfigError, nearest
from tequio.federation.algorithm import State
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.statistics.asking.planning import Column
    from tequio.algorithms.statistics.exact_sums import ExactSums
    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload

TestName = Literal["t", "welch", "anova", "welch-anova", "chi2", "g", "fisher", "mann-whitney", "kruskal", "pearson",
                   "spearman", "kendall"]
_MEANS, _TABLES = ("t", "welch", "anova", "welch-anova"), ("chi2", "g", "fisher")
_RANKS, _PAIRS = ("mann-whitney", "kruskal"), ("pearson", "spearman", "kendall")
_OF_TWO = ("t", "welch", "mann-whitney")
_MOST_BINS = 64
_WRITTEN = re.compile(r"\s*([\w-]+)\s*\((.*)\)\s*", re.DOTALL)
_EXAMPLES = "such as 'welch(age by sex)', 'chi2(ill, sex)', 'pearson(age, bmi)' or 'pearson(age, bmi given weight)'"


@dataclass(frozen=True)
class Asked:
    """One test as it was written: its columns in order; of a comparison of groups the second one makes the groups."""

    test: TestName
    columns: tuple[str, ...]
    text: str

    @classmethod
    def read(cls, text: str) -> Asked:
        """From 'NAME(column by groups)', 'NAME(one, other)' or 'pearson(one, other given more, ...)'."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ConfigError(f"'{text[:80]}' is no test", remedy=f"write {_EXAMPLES}")
        name, inside = found[1], found[2]
        if name not in get_args(TestName):
            raise ConfigError(f"there is no test '{name}'", remedy=nearest(name, get_args(TestName)))
        parts = [one.strip().strip('"') for one in re.split(r",|\s+(?:by|given)\s+", inside)]
        more = name == "pearson" and re.search(r"\sgiven\s", inside) is not None
        grouped = re.search(r"\sby\s", inside) is not None
        wrong = len(parts) != 2 and not (more and len(parts) > 2)
        if wrong or grouped != (name in _MEANS + _RANKS) or not all(parts):
            raise ConfigError(f"'{text[:80]}' has other columns than this test takes", remedy=f"write {_EXAMPLES}")
        if len(set(parts)) < len(parts):
            raise ConfigError(f"'{text[:80]}' names a column twice", remedy="leave one of them out")
        return cls(name, tuple(parts), text)  # type: ignore[arg-type]


@register("algorithm", "test")
@dataclass(frozen=True, kw_only=True)
class HypothesisTests(ExactStatistic):
    """Test hypotheses from sums over all parties' rows: means, tables, ranks and correlations, equal to pooled tests.

    All tests of a run are one family, whose p-values may be adjusted. Rows without a value in a test's columns are left
    out of that test. A table with a cell of fewer rows than a party's policy asks for is refused, not cut.

    Parameters:
        tests: such as 'welch(age by sex)', 'chi2(ill, sex)', 'spearman(age, bmi)' (none: every column by the target)
        scales: for ranks, the smallest value of a column, the largest one and the step of its bins
        correction: how the p-values of the family are adjusted
        level: of confidence intervals
    """

    tests: tuple[str, ...] = ()
    scales: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    correction: Correction = "none"
    level: Annotated[float, Gt(0), Lt(1)] = 0.95

    what: ClassVar[str] = "test"

    def start(self, federation: Federation) -> State:
        """Tests that do not fit the columns are refused before any party is asked."""
        self._asked(federation.schema)
        return State({})

    def found(self, sums: ExactSums, federation: Federation) -> Payload:
        """All tests."""
        asked, columns = self._asked(federation.schema), columns_of(federation.schema, self.scales)
        found = [_Asking(self, sums, place, one, columns).answer() for place, one in enumerate(asked)]
        rows = self._rows(asked, found)
        return {"tables": {"tests": rows}, "estimates": rows, "p_values": np.array([one.p_value for one in found]),
                "notes": [f"{one.text}: {note}" for one, tested in zip(asked, found, strict=True)
                          for note in tested.notes]}

    def _rows(self, asked: Sequence[Asked], found: Sequence[Tested]) -> list[Payload]:
        """As tables of estimates have them."""
        adjusted = hypotheses.adjusted({str(place): one.p_value for place, one in enumerate(found)}, self.correction)
        rows: list[Payload] = []
        for place, (one, tested) in enumerate(zip(asked, found, strict=True)):
            row: Payload = {"term": one.text, "estimate": tested.estimate,
                            "statistic": tested.statistic, "p.value": tested.p_value, "conf.low": tested.low,
                            "conf.high": tested.high, "parameter": ", ".join(f"{df:.6g}" for df in tested.df),
                            "method": tested.test, "error": tested.error}
            row |= {} if self.correction == "none" else {"p.adjusted": adjusted[str(place)],
                                                         "adjustment": self.correction}
            rows.append({name: value for name, value in row.items() if not (isinstance(value, float) and isnan(value))})
        return rows

    def _asked(self, schema: Schema) -> list[Asked]:
        """The tests, held against the columns."""
        columns = columns_of(schema, self.scales)
        asked = [Asked.read(text) for text in self.tests] or _by_target(schema, columns)
        for one in asked:
            for name in one.columns:
                if name not in columns:
                    raise ConfigError(f"{one.text}: there is no column '{name}'", remedy=nearest(name, columns))
            _check(one, [columns[name] for name in one.columns])
        return asked


def _by_target(schema: Schema, columns: Mapping[str, Column]) -> list[Asked]:
    if schema.target.kind != "classes":
        raise ConfigError("algorithm.tests is empty, and the target has no classes to compare",
                          remedy=f"set algorithm.tests, {_EXAMPLES}")
    target = schema.target.name
    return [Asked.read(f'chi2("{name}", "{target}")' if column.domain is not None else f'anova("{name}" by "{target}")')
            for name, column in columns.items() if name != target]


def _check(one: Asked, columns: Sequence[Column]) -> None:
    for place, column in enumerate(columns):
        factor = one.test in _TABLES or (one.test in _MEANS + _RANKS and place == 1)
        if factor and column.domain is None:
            raise ConfigError(f"{one.text}: column '{column.name}' has numbers and no categories",
                              remedy=f"declare its categories: data.categorical = ['{column.name}']")
        if not factor and column.domain is not None and not (column.ordered and one.test != "pearson"):
            raise ConfigError(f"{one.text}: column '{column.name}' has categories and no numbers",
                              remedy="test it by 'chi2', or declare the column as ordered")
        ranked = not factor and column.domain is None and one.test in (*_RANKS, "spearman", "kendall")
        if ranked and column.scale is None:
            raise ConfigError(f"{one.text} counts rows in bins, and '{column.name}' has no declared steps",
                              remedy=f"declare them: algorithm.scales = {{{column.name} = [0, 100, 5]}}")
        if one.test == "kendall" and bins_of(column) > _MOST_BINS:
            raise ConfigError(f"{one.text}: '{column.name}' has {bins_of(column)} bins, and {_MOST_BINS} are the most",
                              remedy=f"declare larger steps in algorithm.scales.{column.name}")
    if one.test in (*_OF_TWO, "fisher") and (size := len(columns[1].domain or ())) != 2:
        other = {"t": "anova", "welch": "welch-anova", "mann-whitney": "kruskal"}.get(one.test, "chi2")
        raise ConfigError(f"{one.text} compares two groups, and '{columns[1].name}' has {size}",
                          remedy=f"write {other}(...)")


@dataclass(frozen=True)
class _Asking:
    """One test on its way: what it asks, and what comes of that."""

    algorithm: HypothesisTests
    sums: ExactSums
    place: int
    asked: Asked
    columns: Mapping[str, Column]

    def answer(self) -> Tested:
        """The test."""
        if self.asked.test in _MEANS:
            return self._means()
        if self.asked.test in ("pearson", "spearman"):
            return self._correlation()
        table, between = self._table()
        names = self._held[1].domain or ()
        if self.asked.test in _RANKS:
            rows = [int(count) for count in table.sum(axis=0)]
            hypotheses.require_rows(names, rows)
            ranked = hypotheses.mann_whitney if self.asked.test == "mann-whitney" else hypotheses.kruskal
            return ranked(table.T, exact_bins=not between)
        if self.asked.test == "kendall":
            found = hypotheses.kendall(table)
            return replace(found, notes=(*found.notes, "values in one bin count as tied")) if between else found
        return hypotheses.fisher(table) if self.asked.test == "fisher" else \
            hypotheses.independence(table, "g" if self.asked.test == "g" else "chi2")

    @property
    def _held(self) -> list[Column]:
        return [self.columns[name] for name in self.asked.columns]

    def _settings(self, pass_: Literal[1, 2] = 1, *, ranks: bool = False) -> TestSettings:
        return TestSettings(columns=list(self.asked.columns), place=self.place, pass_=pass_, ranks=ranks, scales={
            name: list(scale) for name, scale in self.algorithm.scales.items() if name in self.asked.columns})

    def _found(self, totals: Mapping[str, Any], name: str) -> Any:
        return totals[f"t{self.place}.{name}"]

    def _require(self, totals: Mapping[str, Any]) -> None:
        require_everywhere(self._found(totals, "broken"), len(self.sums.parties), "test")

    def _means(self) -> Tested:
        names = self._held[1].domain or ()
        settings, nothing = self._settings(), {"centre": np.zeros(0), "ranks": {}}
        first = self.sums.ask(groups_here, groups_layout(settings, len(names)), nothing, settings)
        self._require(first)
        rows = self._found(first, "n")
        hypotheses.require_rows(names, rows.tolist())
        means = self._found(first, "sum") / rows
        settings = self._settings(2)
        second = self.sums.ask(groups_here, groups_layout(settings, len(names)), {"centre": means, "ranks": {}},
                               settings)
        squares = self._found(second, "squares")
        groups = [Group(*one) for one in zip(names, rows.tolist(), means.tolist(), squares.tolist(), strict=True)]
        if self.asked.test in _OF_TWO:
            return hypotheses.t_test(groups[0], groups[1], equal_variances=self.asked.test == "t",
                                     level=self.algorithm.level)
        return hypotheses.anova(groups, equal_variances=self.asked.test == "anova")

    def _table(self) -> tuple[NDArray[np.int64], bool]:
        settings = self._settings()
        shape = bins_of(self._held[0]), bins_of(self._held[1])
        found = self.sums.ask(counts_here, counts_layout(settings, shape), {}, settings)
        self._require(found)
        return self._found(found, "n"), bool(self._found(found, "between"))

    def _correlation(self) -> Tested:
        ranked, ranks, notes = self.asked.test == "spearman", dict[str, NDArray[np.float64]](), tuple[str, ...]()
        if ranked:
            settings = self._settings()
            sizes = [bins_of(one) for one in self._held]
            bins = self.sums.ask(margins_here, margins_layout(settings, sizes), {}, settings)
            self._require(bins)
            ranks = {name: hypotheses.middle_ranks(self._found(bins, f"bins_{place}"))
                     for place, name in enumerate(self.asked.columns)}
            notes = ("values in one bin count as tied",) if self._found(bins, "between") else ()
        settings = self._settings(ranks=ranked)
        first = self.sums.ask(products_here, products_layout(settings), {"centre": np.zeros(0), "ranks": ranks},
                              settings)
        self._require(first)
        rows = int(self._found(first, "n"))
        hypotheses.require_rows((self.asked.text,), (rows,))
        settings = self._settings(2, ranks=ranked)
        second = self.sums.ask(products_here, products_layout(settings),
                               {"centre": self._found(first, "sum") / rows, "ranks": ranks}, settings)
        found = hypotheses.correlation(rows, symmetric(self._found(second, "products")), self.asked.columns,
                                       name=self.asked.test, level=self.algorithm.level)
        return replace(found, notes=(*found.notes, *notes))
