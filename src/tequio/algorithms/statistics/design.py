"""At the party: the columns of a formula, from its own rows.

Levels, reference levels and knots are agreed before, so that all parties make the same columns; a level that a party
lacks is a column of zeros there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.statistics.formula import Factor, Name, evaluated, numbers_in, read_formula
from tequio.algorithms.statistics.small_cells import SmallCells, flags_among
from tequio.errors import ConfigError, DataError, nearest
from tequio.learners.learner import flat_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.algorithms.statistics.formula import Expression, Formula
    from tequio.data.dataset import Dataset, Matrix, Schema
    from tequio.federation.population import Party

    Column = NDArray[np.float64]

CONSTANT = "const"


class Agreed(TypedDict):
    """What parties have to agree on to make the same columns: the values of a number's levels, and knots, by label."""

    levels: dict[str, NDArray[np.float64]]
    knots: dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Table:
    """Rows by column, in double precision; the target is a column too."""

    rows: Dataset

    @staticmethod
    def names(schema: Schema) -> tuple[str, ...]:
        """All columns of a schema."""
        return (*schema.names, *([schema.target.name] if schema.target.kind in ("classes", "number") else []))

    @staticmethod
    def domain(schema: Schema, name: str) -> tuple[str, ...] | None:
        """The levels of a column, or nothing where it holds numbers."""
        if name in schema.names:
            return schema.features[schema.names.index(name)].domain
        if schema.target.kind in ("classes", "number") and schema.target.name == name:
            return schema.target.names if schema.target.kind == "classes" else None
        raise DataError(f"there is no column '{name}'", remedy=nearest(name, Table.names(schema)))

    def column(self, name: str) -> Column:
        """The values of a column, or the codes of its levels; NaN where there is none."""
        schema = self.rows.schema
        if name in schema.names:
            values = self._features[:, schema.names.index(name)]
            return np.asarray(values.toarray().reshape(-1) if self.rows.is_sparse else values, dtype=np.float64)
        self.domain(schema, name)
        return np.asarray(self.rows.target, dtype=np.float64)

    @cached_property
    def _features(self) -> Matrix:
        return flat_features(self.rows)

    def level(self, name: str, level: str) -> float:
        """The code of a level of a column."""
        return float(_place(self.domain(self.rows.schema, name) or (), level, name))


@dataclass(frozen=True, eq=False)
class Design:
    """The rows of a party that have a value in every column of the formula."""

    columns: NDArray[np.float64]
    outcome: Column
    offset: Column
    weights: Column
    kept: NDArray[np.int64]
    broken: NDArray[np.int64]
    dropped: int

    def __len__(self) -> int:
        return len(self.outcome)


def levels_of(factor: Factor, schema: Schema, agreed: Agreed) -> tuple[list[float], list[str]] | None:
    """The codes of a factor's levels with the reference first, and what they are called; nothing for a number."""
    if factor.kind == "spline" or not factor.column:
        return None
    domain = Table.domain(schema, factor.column)
    if domain is None and factor.kind == "plain":
        return None
    if domain is not None:
        codes, names = [float(code) for code in range(len(domain))], list(domain)
        first = 0 if factor.reference is None else _place(names, str(factor.reference), factor.label)
    else:
        codes = [float(value) for value in agreed["levels"][factor.label]]
        names = [f"{value:g}" for value in codes]
        first = 0 if factor.reference is None else _place(codes, float(factor.reference), factor.label)
    order = [first, *(place for place in range(len(codes)) if place != first)]
    return [codes[place] for place in order], [names[place] for place in order]


def _place(among: Sequence[str] | Sequence[float], wanted: str | float, label: str) -> int:
    if wanted not in among:
        raise ConfigError(f"'{wanted}' is no level of '{label}'",
                          remedy=nearest(str(wanted), [str(one) for one in among]))
    return list(among).index(wanted)


def require_numbers(formula: Formula, schema: Schema, weights: str = "") -> None:
    """Refuse to reckon with the codes of levels, which mean nothing; the outcome itself may have two of them."""
    of_rows = [factor.of for factor in formula.factors if not isinstance(factor.of, Name) or factor.kind == "spline"]
    for name in (*(name for one in (*of_rows, *formula.offsets) for name in numbers_in(one)),
                 *([weights] if weights else [])):
        if (domain := Table.domain(schema, name)) is not None:
            raise DataError(f"column '{name}' has levels, and a number is wanted",
                            remedy=f'compare it with one, as in I({name} == "{domain[0]}")')


Coded = tuple[tuple[Factor, bool], ...]
"""The factors of a block of columns, and whether each comes with all its levels, the reference included."""


def coded(formula: Formula, schema: Schema, agreed: Agreed) -> list[Coded]:
    """The blocks of columns after the constant. A term adds what the terms before it do not span (as in patsy)."""
    spanned: dict[frozenset[Factor], set[frozenset[Factor]]] = {
        frozenset(): {frozenset()} if formula.constant else set()}
    found: list[Coded] = []
    for term in formula.terms:
        leveled = [factor for factor in term if levels_of(factor, schema, agreed) is not None]
        known = spanned.setdefault(frozenset(term) - frozenset(leveled), set())
        parts = [frozenset(chosen) for size in range(len(leveled) + 1) for chosen in combinations(leveled, size)]
        new: list[dict[Factor, bool]] = [dict.fromkeys(part, False) for part in parts if part not in known]
        known.update(parts)
        while (merged := next(((short, long) for short in new for long in new if len(long) == len(short) + 1 and
                               short.items() <= long.items()), None)) is not None:
            # A part, and the same with one more factor less its reference, are the latter with all levels.
            short, long = merged
            new = [{one: long[one] or one not in short for one in long} if part is long else part
                   for part in new if part is not short]
        found += [tuple((factor, part.get(factor, False)) for factor in term if factor in part or
                        factor not in leveled) for part in new]
    return found


def names_of(formula: Formula, schema: Schema, agreed: Agreed) -> list[str]:
    """What the columns are called, in their order."""
    found = [CONSTANT] if formula.constant else []
    for block in coded(formula, schema, agreed):
        names = [""]
        for factor, full in block:
            names = [f"{left}:{right}" if left else right for left in names
                     for right in _names(factor, full, schema, agreed)]
        found += names
    return found


def _names(factor: Factor, full: bool, schema: Schema, agreed: Agreed) -> list[str]:
    if factor.kind == "spline":
        return [f"{factor.label}[{place + 1}]" for place in range(len(agreed["knots"][factor.label]) - 1)]
    levels = levels_of(factor, schema, agreed)
    return [factor.label] if levels is None else [f"{factor.column}[{level}]" for level in levels[1][not full:]]


def make_design(party: Party, rows: Dataset, text: str, agreed: Agreed, *, weights: str = "",
                drop_unknown: bool = False) -> Design:
    """The columns of a formula, its outcome, offsets and weights, and which rules of small cells they break."""
    formula, table, schema, rules = read_formula(text), Table(rows), rows.schema, SmallCells.of(party)
    read = {name: table.column(name) for name in dict.fromkeys((*formula.columns, *([weights] if weights else [])))}
    present = np.logical_and.reduce([np.isfinite(values) for values in read.values()])
    factors = [(factor, levels) for factor in formula.factors
               if (levels := levels_of(factor, schema, agreed)) is not None and factor is not formula.outcome]
    for factor, (codes, _) in factors:
        known = np.isin(read[factor.column], codes) | ~present
        if not known.all() and not drop_unknown:
            raise DataError(f"column '{factor.column}' has a level that was not agreed on",
                            remedy="declare the column's domain, or set unknown_levels = \"drop\"")
        present &= known
    read = {name: values[present] for name, values in read.items()}
    number = int(present.sum())

    def value(of: Expression) -> Column:
        with np.errstate(all="ignore"):
            found = evaluated(of, read.__getitem__, table.level)
        return np.broadcast_to(np.asarray(found, dtype=np.float64), (number,))

    blocks = [np.ones((number, 1))] if formula.constant else []
    known_levels = dict(factors)
    for parts in coded(formula, schema, agreed):
        block = np.ones((number, 1))
        for factor, full in parts:
            if factor.kind == "spline":
                part = spline(value(factor.of), agreed["knots"][factor.label])
            elif factor in known_levels:
                wanted = np.array(known_levels[factor][0][not full:])
                part = (value(factor.of)[:, None] == wanted).astype(np.float64)
            else:
                part = value(factor.of)[:, None]
            block = part if len(parts) == 1 else (block[:, :, None] * part[:, None, :]).reshape(number, -1)
        blocks.append(block)
    columns = np.concatenate(blocks, axis=1)
    offset = np.zeros(number)
    for expression in formula.offsets:
        offset = offset + value(expression)
    outcome = value(formula.outcome.of)
    sound = np.isfinite(columns).all(axis=1) & np.isfinite(offset) & np.isfinite(outcome)
    kept = np.flatnonzero(present)[sound]
    flags = flags_among(np.concatenate([columns[sound], outcome[sound, None]], axis=1)) \
        if rules.minimum_count > 1 else None
    broken = rules.broken(len(kept), columns.shape[1], flags, [len(codes) for _, (codes, _) in factors])
    # What a logarithm drops is a cell too: its threshold is the coordinator's.
    broken[2] |= not rules.enough(np.array(number - len(kept)))
    return Design(np.ascontiguousarray(columns[sound]), outcome[sound], offset[sound],
                  read[weights][sound] if weights else np.ones(len(kept)), kept, broken, len(rows) - len(kept))


def spline(values: Column, knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """The basis of a restricted cubic spline (Harrell): linear beyond its first and last knot."""
    first, last, before = knots[0], knots[-1], knots[-2]
    cubes = np.maximum(values[:, None] - knots, 0.0) ** 3
    bent = cubes[:, :-2] - (cubes[:, -2:-1] * (last - knots[:-2]) - cubes[:, -1:] * (before - knots[:-2])) / (
        last - before)
    return np.concatenate([values[:, None], bent / (last - first) ** 2], axis=1)
