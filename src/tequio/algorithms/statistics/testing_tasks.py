"""Tests of hypotheses at the party: moments by group, counts in bins, and cross products, of its training rows.

A table with a cell of few rows at a party is refused there, by the rules of its owner: a test from a table with gaps
would be another test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.statistics.asking.cells import Values
from tequio.algorithms.statistics.asking.planning import columns_of
from tequio.algorithms.statistics.exact_sums import Block, ExactPayload, Layout, triangle, upper, whole_reply
from tequio.algorithms.statistics.small_cells import RULES, SmallCells, flags_among
from tequio.errors import PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, record, task

if TYPE_CHECKING:
    from tequio.algorithms.statistics.asking.planning import Column
    from tequio.data.dataset import Schema
    from tequio.federation.population import Party

Floats = NDArray[np.float64]


@record
class TestSettings:
    """Which columns, on which scales, in which test of the run; `pass_` 2 is around what pass 1 found."""

    columns: Sequence[str]
    scales: Mapping[str, Sequence[float]]
    place: Count
    pass_: Literal[1, 2]
    ranks: bool = False

    __test__ = False  # no test of pytest

    def held(self, schema: Schema) -> list[Column]:
        """The columns against a schema."""
        known = columns_of(schema, self.scales)
        return [known[name] for name in self.columns]

    def block(self, name: str, shape: tuple[int, ...] = (), *, count: bool = False) -> Block:
        """A block of this test."""
        return Block(f"t{self.place}.{name}", shape, "count" if count else "real")

    def named(self, values: Mapping[str, object]) -> dict[str, NDArray[np.generic]]:
        """Values by the names of blocks."""
        return {f"t{self.place}.{name}": np.asarray(value) for name, value in values.items()}


class AroundPayload(ExactPayload):
    """Around what values are taken, by group or column; in tests of ranks, also the rank of each bin by column."""

    centre: Floats
    ranks: dict[str, Floats]


def bins_of(column: Column) -> int:
    """How many cells a column is cut into: its categories, or one from each step up."""
    return len(column.domain) if column.domain is not None else len(column.edges)


def codes_of(column: Column, numbers: NDArray[np.floating]) -> NDArray[np.int64]:
    """The cell of each value; those below the scale are in the first one."""
    if column.domain is not None:
        return numbers.astype(np.int64)
    return np.searchsorted(column.edges[1:].astype(numbers.dtype), numbers, side="right")


def groups_layout(settings: TestSettings, groups: int) -> Layout:
    """Moments of the first column by the groups of the second."""
    if settings.pass_ == 2:
        return (settings.block("squares", (groups,)),)
    return (settings.block("broken", (len(RULES),), count=True), settings.block("n", (groups,), count=True),
            settings.block("sum", (groups,)))


@task("test: groups", settings=TestSettings, reply=SumsReply, reveals=Sums(guarded=True))
def groups_here(party: Party, payload: AroundPayload, settings: TestSettings) -> SumsReply:
    """Rows, sums, and then squares around the means of all parties."""
    columns, (numbers, group) = _read(party, settings)
    groups, rules = bins_of(columns[1]), SmallCells.of(party)
    codes = codes_of(columns[1], group)
    sizes = np.bincount(codes, minlength=groups)
    broken = _broken(rules, len(codes), sizes)
    silent = bool(broken.any())
    values = numbers.astype(np.float64)
    found: dict[str, object]
    if settings.pass_ == 2:
        off = values - _shaped(payload["centre"], groups)[codes]
        found = {"squares": np.bincount(codes, off ** 2, groups) * (not silent)}
    else:
        found = {"broken": broken, "n": sizes * (not silent), "sum": np.bincount(codes, values, groups) * (not silent)}
    return whole_reply(party, groups_layout(settings, groups), payload, settings.named(found))


def counts_layout(settings: TestSettings, shape: tuple[int, ...]) -> Layout:
    """Joint counts of two columns, and at how many parties values lie between the steps of a scale."""
    return (settings.block("broken", (len(RULES),), count=True), settings.block("n", shape, count=True),
            settings.block("between", count=True))


@task("test: counts", settings=TestSettings, reply=SumsReply, reveals=Sums(guarded=True))
def counts_here(party: Party, payload: ExactPayload, settings: TestSettings) -> SumsReply:
    """The table of two columns."""
    columns, read = _read(party, settings)
    shape = bins_of(columns[0]), bins_of(columns[1])
    table = np.zeros(shape, dtype=np.int64)
    np.add.at(table, tuple(codes_of(column, numbers) for column, numbers in zip(columns, read, strict=True)), 1)
    broken = _broken(SmallCells.of(party), int(table.sum()), table)
    silent = bool(broken.any())
    return whole_reply(party, counts_layout(settings, shape), payload, settings.named(
        {"broken": broken, "n": table * (not silent), "between": int(not silent and _between(columns, read))}))


def products_layout(settings: TestSettings) -> Layout:
    """Rows and sums of all columns, and then their cross products."""
    size = len(settings.columns)
    if settings.pass_ == 2:
        return (triangle(f"t{settings.place}.products", size),)
    return (settings.block("broken", (len(RULES),), count=True), settings.block("n", count=True),
            Block(f"t{settings.place}.sum", (size,), each=True))


@task("test: products", settings=TestSettings, reply=SumsReply, reveals=Sums(guarded=True))
def products_here(party: Party, payload: AroundPayload, settings: TestSettings) -> SumsReply:
    """Of the rows with a value in every column; of ranks, where these are given for each bin."""
    columns, read = _read(party, settings)
    matrix = np.column_stack([numbers.astype(np.float64) for numbers in read]) if not settings.ranks else \
        np.column_stack([_shaped(payload["ranks"][column.name], bins_of(column))[codes_of(column, numbers)]
                         for column, numbers in zip(columns, read, strict=True)])
    rules = SmallCells.of(party)
    broken = rules.broken(len(matrix), len(columns), flags_among(matrix) if rules.minimum_count > 1 else None)
    silent = bool(broken.any())
    if settings.pass_ == 2:
        off = (matrix - _shaped(payload["centre"], len(columns))) * (not silent)
        found: dict[str, object] = {"products": upper(off.T @ off)}
    else:
        found = {"broken": broken, "n": len(matrix) * (not silent), "sum": matrix.sum(axis=0) * (not silent)}
    return whole_reply(party, products_layout(settings), payload, settings.named(found))


def margins_layout(settings: TestSettings, sizes: Sequence[int]) -> Layout:
    """Counts of each column in its bins."""
    return (settings.block("broken", (len(RULES),), count=True), settings.block("between", count=True),
            *(settings.block(f"bins_{place}", (size,), count=True) for place, size in enumerate(sizes)))


@task("test: margins", settings=TestSettings, reply=SumsReply, reveals=Sums(guarded=True))
def margins_here(party: Party, payload: ExactPayload, settings: TestSettings) -> SumsReply:
    """Counts in bins, of the rows with a value in every column."""
    columns, read = _read(party, settings)
    found = [np.bincount(codes_of(column, numbers), minlength=bins_of(column))
             for column, numbers in zip(columns, read, strict=True)]
    broken = _broken(SmallCells.of(party), len(read[0]), np.concatenate(found))
    silent = bool(broken.any())
    return whole_reply(party, margins_layout(settings, [len(one) for one in found]), payload, settings.named({
        "broken": broken, "between": int(not silent and _between(columns, read)),
        **{f"bins_{place}": one * (not silent) for place, one in enumerate(found)}}))


def _read(party: Party, settings: TestSettings) -> tuple[list[Column], list[NDArray[np.floating]]]:
    """The columns, and their values in the rows that have all of them."""
    rows = party.data.train
    columns, values = settings.held(rows.schema), Values(rows)
    read = [values.of(column.name) for column in columns]
    there = np.logical_and.reduce([np.isfinite(numbers) for numbers in read])
    return columns, [numbers[there] for numbers in read]


def _between(columns: Sequence[Column], read: Sequence[NDArray[np.floating]]) -> bool:
    """Whether a value lies between two steps of its scale, so that its bin may hold values that differ."""
    return any(column.domain is None and
               (numbers != column.edges.astype(numbers.dtype)[codes_of(column, numbers)]).any()
               for column, numbers in zip(columns, read, strict=True))


def _broken(rules: SmallCells, rows: int, cells: NDArray[np.integer]) -> NDArray[np.int64]:
    """The rules of small cells, held against a table of counts."""
    broken = rules.broken(rows)
    broken[RULES.index("c")] |= not rules.enough(cells)
    return broken


def _shaped(array: Floats, size: int) -> Floats:
    if array.shape != (size,):
        raise PayloadError(f"an array of shape {array.shape} came instead of {size} numbers")
    return array
