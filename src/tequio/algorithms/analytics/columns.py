"""Columns as of the pooled rows: rows, means, spreads, extremes and quantiles.

`Scope` says whose rows are looked at. Quantiles come from histograms of an ever narrower bracket around each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.evaluation import Part
from tequio.federation.task import Count, Counts, Reveals, Rows, Sums, most_rows, record, task
from tequio.learners.learner import flat_features
from tequio.learners.metrics import LARGEST_SUM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.federation.task import Task

R = TypeVar("R")

CELLS = 16
"""Each refinement of quantiles narrows the brackets by this factor."""

_MOST_REFINEMENTS = 64


@record
class ScopeSettings:
    """Which columns a party looks at, in which part of its rows, and what is too few to be reported."""

    columns: Sequence[str]
    part: Part
    minimum_count: Count


@dataclass(frozen=True, eq=False)
class Scope:
    """Whose rows are looked at (None: all eligible parties), which part of them, and what is too few to be reported.

    A party with fewer than `minimum_count` rows stays silent, and where a party counts rows in cells (of a histogram or
    of categories) a cell with fewer is reported as empty. In counts of numbers, and as the smallest and the largest,
    groups of as many neighbours stand with their mean.
    """

    parties: ArrayLike | None = None
    part: Part = "train"
    minimum_count: int = 1

    def ask(self, federation: Federation, task: Task[ScopeSettings, R], columns: Sequence[str],
            payload: Payload | None = None, **shapes: tuple[int, ...]) -> Replies[R]:
        """Ask the parties in scope about some columns. Arrays of other shapes than those given are refused."""
        parties = federation.eligible() if self.parties is None else self.parties
        settings = ScopeSettings(columns=list(columns), part=self.part, minimum_count=self.minimum_count)
        return federation.ask(parties, task, payload, settings=settings, check=partial(_check_shapes, shapes))


def _check_shapes(shapes: Mapping[str, tuple[int, ...]], reply: Any, whose: str) -> None:
    for name, shape in shapes.items():
        if name in reply and reply[name].shape != shape:
            raise PayloadError(f"{whose} sent '{name}' of shape {reply[name].shape} instead of {shape}")


def check_counts(reply: Any, federation: Federation, party: int) -> None:
    """Refuse counts of rows by cell that are more rows than the party has in one column."""
    most = most_rows(int(federation.sizes[party]))
    for name, counts in reply.items():
        if counts.ndim and (counts.sum(axis=-1, dtype=np.float64) > most).any():
            raise PayloadError(f"party '{federation.name(party)}' sent '{name}' of more than {most} rows")


def numeric_columns(schema: Schema, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The wanted columns, or all numeric ones; a categorical one among the wanted is an error."""
    return _columns(schema, wanted, categorical=False)


def categorical_columns(schema: Schema, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The wanted columns, or all categorical ones; a numeric one among the wanted is an error."""
    return _columns(schema, wanted, categorical=True)


def _columns(schema: Schema, wanted: Sequence[str], *, categorical: bool) -> tuple[str, ...]:
    right = tuple(feature.name for feature in schema.features if feature.categorical is categorical)
    if not wanted:
        return right
    for name in set(wanted).difference(right):
        schema.column(name)
        kind = "numeric" if categorical else "categorical"
        raise ConfigError(f"column '{name}' is {kind}, and there is no such statistic of {kind} columns",
                          remedy="leave the column out")
    return tuple(wanted)


def rows_in_scope(party: Party, settings: ScopeSettings) -> Dataset:
    """At the party: its rows of the part in question, or none of them if they are too few to speak of."""
    rows = party.data.part(settings.part)
    return rows if len(rows) >= settings.minimum_count else rows.take(np.empty(0, dtype=np.int64))


def held_columns(rows: Dataset, wanted: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At the party: which of the wanted columns it holds, and their values in double precision."""
    place = {name: position for position, name in enumerate(rows.schema.names)}
    held = np.array([index for index, name in enumerate(wanted) if name in place], dtype=np.int64)
    features = flat_features(rows)
    if tuple(wanted) != rows.schema.names:
        features = features[:, [place[wanted[index]] for index in held]]
    dense = features.toarray() if sparse.issparse(features) else features
    return held, np.asarray(dense, dtype=np.float64)


def in_groups(values: NDArray[np.float64], minimum_count: int) -> NDArray[np.float64]:
    """At the party: each column in order, every value replaced by the mean of a group of at least so many neighbours.

    Counts between edges that others choose would else show, by where they change, the value of one row after the other.
    """
    groups = len(values) // max(minimum_count, 1)
    if minimum_count < 2 or not groups:
        return values
    starts = np.arange(groups) * minimum_count
    sizes = np.diff(starts, append=len(values))
    means = np.add.reduceat(np.sort(values, axis=0), starts, axis=0) / sizes[:, None]
    return np.repeat(means, sizes, axis=0)


def without_small(counts: NDArray[np.integer], minimum_count: int) -> NDArray[np.int64]:
    """Counts with those below the minimum set to zero."""
    return np.where(counts >= minimum_count, counts, 0).astype(np.int64)


class Summary(TypedDict):
    """One value per column; variance and sd are those of a population."""

    rows: NDArray[np.int64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    sd: NDArray[np.float64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]


class NumberReply(TypedDict):
    """How many rows there are."""

    rows: Rows


class SummaryReply(TypedDict):
    """Per column: rows, mean, sum of squared deviations from it, smallest and largest value; zeros where not held."""

    rows: Counts
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]


def count_rows(federation: Federation, scope: Scope | None = None) -> int:
    """How many rows the parties in scope hold together."""
    replies = (scope or Scope()).ask(federation, rows_here, ())
    return int(sum(replies.values("rows")))


def summarise_columns(federation: Federation, columns: Sequence[str] = (), scope: Scope | None = None) -> Summary:
    """One ask; the columns come in the given order, or all numeric ones in the order of the schema."""
    scope = scope or Scope()
    names = numeric_columns(federation.schema, columns)
    size = (len(names),)
    replies = scope.ask(federation, summarise_here, names, rows=size, mean=size, squares=size, min=size, max=size)
    return merge_summaries(replies.payloads, names, scope.minimum_count)


@task("statistics: rows", settings=ScopeSettings, reply=NumberReply, reveals=Reveals.COUNTS)
def rows_here(party: Party, payload: Payload, settings: ScopeSettings) -> NumberReply:
    """How many rows there are at this party."""
    return {"rows": len(rows_in_scope(party, settings))}


def _check_summary(reply: SummaryReply, federation: Federation, party: int) -> None:
    """Refuse sums of squares that no rows have, and values whose squares are too large to be added up."""
    longest = max(np.abs(reply[name]).max(initial=0.0) for name in ("mean", "min", "max"))
    if (reply["squares"] < 0).any() or longest > LARGEST_SUM ** 0.5 or \
            reply["squares"].max(initial=0.0) > LARGEST_SUM:
        raise PayloadError(f"party '{federation.name(party)}' sent a summary that no rows have")


# The smallest and the largest value are those of single rows, so that these are more than sums. With a minimum count
# they are means of at least so many rows.
@task("statistics: summary", settings=ScopeSettings, reply=SummaryReply, reveals=Reveals.STRUCTURE,
      check=_check_summary)
def summarise_here(party: Party, payload: Payload, settings: ScopeSettings) -> SummaryReply:
    """The summary of the columns held here."""
    size = len(settings.columns)
    reply: SummaryReply = {"mean": np.zeros(size), "squares": np.zeros(size), "min": np.zeros(size),
                           "max": np.zeros(size), "rows": np.zeros(size, dtype=np.int64)}
    held, values = held_columns(rows_in_scope(party, settings), settings.columns)
    if len(values) and len(held):
        mean = values.mean(axis=0)
        reply["rows"][held], reply["mean"][held] = len(values), mean
        reply["squares"][held] = np.square(values - mean).sum(axis=0)
        grouped = in_groups(values, settings.minimum_count)
        reply["min"][held], reply["max"][held] = grouped.min(axis=0), grouped.max(axis=0)
    return reply


def merge_summaries(parts: Sequence[SummaryReply], names: Sequence[str], minimum_count: int = 1) -> Summary:
    """Parties' summaries as one. Squares are taken around each party's own mean, so no digits are lost."""
    total = np.sum([part["rows"] for part in parts], axis=0) if parts else np.zeros(len(names))
    if not total.all():
        missing = names[int(np.flatnonzero(total == 0)[0])]
        raise DataError(f"no party has rows to report on in column '{missing}'",
                        remedy=f"loosen the minimum count ({minimum_count}), or leave the column out")
    rows, means, squares, low, high = (np.array([part[key] for part in parts]).reshape(len(parts), len(names))
                                       for key in ("rows", "mean", "squares", "min", "max"))
    mean = (rows * means).sum(axis=0) / total
    variance = (squares + rows * np.square(means - mean)).sum(axis=0) / total
    return {"rows": total.astype(np.int64), "mean": mean, "variance": variance, "sd": np.sqrt(variance),
            "min": np.where(rows > 0, low, np.inf).min(axis=0, initial=np.inf),
            "max": np.where(rows > 0, high, -np.inf).max(axis=0, initial=-np.inf)}


class BracketsPayload(TypedDict):
    """Lower and upper edge of each bracket: (columns, shares)."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


class BracketsReply(TypedDict):
    """Per column its rows, and per bracket the rows below it and in each of its cells."""

    rows: Counts
    below: Counts
    cells: Counts


@dataclass(frozen=True, eq=False)
class Quantiles:
    """One value per column and share; the true quantile of the pooled rows lies less than `width` below `values`."""

    values: NDArray[np.float64]
    width: NDArray[np.float64]


def find_quantiles(federation: Federation, shares: Sequence[float], columns: Sequence[str] = (), *,
                   tolerance: float = 1e-3, scope: Scope | None = None, summary: Summary | None = None) -> Quantiles:
    """The smallest value that a share of the rows does not exceed, for each column (rows of the result) and share.

    Brackets are narrowed until they are at most `tolerance` times the column's range wide, or until they hold fewer
    rows than the scope's minimum count. `summary` spares an ask where the columns' is known already.
    """
    scope = scope or Scope()
    names = numeric_columns(federation.schema, columns)
    wanted = _checked_shares(shares, tolerance)
    summary = summary or summarise_columns(federation, names, scope)
    # A bracket holds its upper edge but not its lower one, so it has to begin just below the smallest value.
    low = np.repeat(np.nextafter(summary["min"], -np.inf)[:, None], len(wanted), axis=1)
    high = np.repeat(summary["max"][:, None], len(wanted), axis=1)
    narrow = tolerance * (summary["max"] - summary["min"])[:, None]
    open_brackets = high - low > narrow
    for _ in range(_MOST_REFINEMENTS):
        # A bracket between two neighbouring numbers cannot be narrowed any further.
        open_brackets &= (high - low > narrow) & (np.nextafter(low, np.inf) < high)
        if not open_brackets.any():
            break
        narrower, filled = _refine(federation, scope, names, wanted, low, high)
        open_brackets &= filled
        low, high = (np.where(open_brackets, new, old) for new, old in zip(narrower, (low, high), strict=True))
    return Quantiles(high, high - low)


def _check_brackets(reply: BracketsReply, federation: Federation, party: int) -> None:
    check_counts({"cells": reply["cells"]}, federation, party)


# How far a row moves these counts depends on how many brackets there are, which the settings do not say.
@task("statistics: brackets", settings=ScopeSettings, reply=BracketsReply, reveals=Sums(), check=_check_brackets)
def brackets_here(party: Party, payload: BracketsPayload, settings: ScopeSettings) -> BracketsReply:
    """Per column and bracket: rows below it, and rows in each of its cells."""
    edges = cell_edges(payload["low"], payload["high"])
    below = np.zeros(edges.shape[:2], dtype=np.int64)
    cells = np.zeros((*edges.shape[:2], CELLS), dtype=np.int64)
    rows = np.zeros(len(edges), dtype=np.int64)
    held, values = held_columns(rows_in_scope(party, settings), settings.columns)
    for index, column in zip(held, in_groups(values, settings.minimum_count).T, strict=True):
        up_to = np.searchsorted(np.sort(column), edges[index], side="right")
        below[index], cells[index], rows[index] = up_to[:, 0], np.diff(up_to, axis=1), len(column)
    return {"rows": rows, "below": without_small(below, settings.minimum_count),
            "cells": without_small(cells, settings.minimum_count)}


def cell_edges(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of the cells of each bracket: (columns, shares, CELLS + 1). Party and coordinator compute the same ones."""
    return np.linspace(low, high, CELLS + 1, axis=-1)


def _refine(federation: Federation, scope: Scope, names: Sequence[str], shares: NDArray[np.float64],
            low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """The cell of each bracket that holds the quantile, and whether the bracket holds enough rows to say so."""
    replies = scope.ask(federation, brackets_here, names, {"low": low, "high": high}, rows=low.shape[:1],
                        below=low.shape, cells=(*low.shape, CELLS))
    if not replies:
        return [low, high], np.zeros(low.shape, dtype=bool)
    # Every reply counts from the bottom, so that a party that vanishes between two refinements does no harm.
    rows = np.sum([reply["rows"] for reply in replies.payloads], axis=0)
    below = np.sum([reply["below"] for reply in replies.payloads], axis=0)
    cells = np.sum([reply["cells"] for reply in replies.payloads], axis=0)
    # 0.07 * 100 is a little more than 7 in floating point, and yet the seventh row is meant.
    rank = np.maximum(np.ceil(shares * rows[:, None] * (1 - 1e-15)), 1)
    reached = (below[:, :, None] + np.cumsum(cells, axis=2)) >= rank[:, :, None]
    cell = np.where(reached.any(axis=2), reached.argmax(axis=2), CELLS - 1)[:, :, None]
    edges = cell_edges(low, high)
    narrower = [np.take_along_axis(edges, cell + side, axis=2)[:, :, 0] for side in (0, 1)]
    return narrower, cells.sum(axis=2) >= max(scope.minimum_count, 1)


def _checked_shares(shares: Sequence[float], tolerance: float) -> NDArray[np.float64]:
    wanted = np.asarray(shares, dtype=np.float64).reshape(-1)
    if not bool(((wanted >= 0) & (wanted <= 1)).all()):
        raise ConfigError(f"quantiles are shares between 0 and 1, not {list(shares)}")
    if not tolerance > 0:
        raise ConfigError(f"quantiles need a tolerance above 0, not {tolerance}",
                          remedy="1e-9 is about as exact as numbers are")
    return wanted
