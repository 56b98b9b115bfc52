"""Quantiles, by counts of the rows up to some edges in an ever narrower bracket around each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.analytics.columns import (
    ScopeSettings,
    check_counts,
    held_columns,
    in_groups,
    moved_by,
    rows_in_scope,
)
from tequio.errors import PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Count, Sums, most_rows, record, task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.analytics.columns import Scope
    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party


@dataclass(frozen=True, eq=False)
class Narrowed:
    """The cell of each bracket in which its quantile lies (columns, shares): above `low`, and up to `high`.

    `inside` is how many rows the whole bracket held, `rows` those of the columns. `error` is how far off the cell would
    be with counts that are one standard deviation of their noise larger or smaller, and `noise` that of `inside`.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    rows: NDArray[np.generic]
    inside: NDArray[np.generic]
    error: NDArray[np.float64]
    noise: float


def even_cells(low: NDArray[np.float64], high: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """Edges of so many cells of each bracket: (columns, shares, cells + 1)."""
    return np.linspace(low, high, cells + 1, axis=-1)


def narrowed(federation: Federation, scope: Scope, names: Sequence[str], shares: NDArray[np.float64],
             edges: NDArray[np.float64]) -> Narrowed:
    """The cell of each bracket that holds the quantile; the bracket itself where nobody answers."""
    settings = BracketSettings(columns=list(names), part=scope.part, minimum_count=scope.minimum_count,
                               brackets=edges.shape[1], cells=edges.shape[2] - 1)
    found = scope.total(federation, brackets_here, settings, {"edges": edges}, rows=edges.shape[:1], up_to=edges.shape)
    low, high = edges[:, :, 0], edges[:, :, -1]
    if not len(found):
        return Narrowed(low, high, np.zeros(len(names)), np.zeros(low.shape), np.zeros(low.shape), 0.0)
    rows, up_to = found["rows"], found["up_to"]
    # 0.07 * 100 is a little more than 7 in floating point, and yet the seventh row is meant.
    rank = np.maximum(np.ceil(shares * rows[:, None] * (1 - 1e-15)), 1)
    noise = np.hypot(found.deviations["up_to"], shares * found.deviations["rows"])
    (below, above), (lowest, _), (_, highest) = (_cell(edges, up_to, rank + off) for off in (0.0, -noise, noise))
    return Narrowed(below, above, rows, up_to[:, :, -1] - up_to[:, :, 0],
                    np.maximum(below - lowest, highest - above), 2.0 ** 0.5 * found.deviations["up_to"])


def _cell(edges: NDArray[np.float64], up_to: NDArray[np.float64],
          rank: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The edges of the cells in which the rows of these ranks lie: of the first that reaches the rank, or the last."""
    reached = up_to[:, :, 1:] >= rank[:, :, None]
    cell = np.where(reached.any(axis=2), reached.argmax(axis=2), edges.shape[2] - 2)[:, :, None]
    return np.take_along_axis(edges, cell, axis=2)[:, :, 0], np.take_along_axis(edges, cell + 1, axis=2)[:, :, 0]


@record
class BracketSettings(ScopeSettings):
    """Into how many brackets a column is cut, and each of these into how many cells."""

    brackets: Count
    cells: Count


class EdgesPayload(TypedDict):
    """Edges of the cells of each bracket: (columns, brackets, cells + 1)."""

    edges: NDArray[np.float64]


def _moved_counts(settings: BracketSettings, schema: Schema) -> Mapping[str, float]:
    """A row counts once in every column, and at every edge at most."""
    columns, edges = len(settings.columns), settings.brackets * (settings.cells + 1)
    return moved_by(settings, rows=columns ** 0.5, up_to=(columns * edges) ** 0.5)


def _check_brackets(reply: SumsReply, federation: Federation, party: int) -> None:
    """Counts up to an edge rise, and are no more than all rows."""
    up_to = reply["sums"].get("up_to")
    if isinstance(up_to, np.ndarray) and up_to.dtype.kind in "iu" and (
            (up_to < 0).any() or (np.diff(up_to, axis=-1) < 0).any() or
            (up_to > most_rows(int(federation.sizes[party]))).any()):
        raise PayloadError(f"party '{federation.name(party)}' sent counts of rows up to some edges that do not rise")
    check_counts({"sums": {name: counts for name, counts in reply["sums"].items() if name == "rows"}}, federation,
                 party)


# All counts are from the bottom, so that what is rounded off a count is not added up from cell to cell, and a party
# that vanishes between two refinements does no harm.
@task("statistics: brackets", settings=BracketSettings, reply=SumsReply, reveals=Sums(_moved_counts),
      check=_check_brackets)
def brackets_here(party: Party, payload: EdgesPayload, settings: BracketSettings) -> SumsReply:
    """Per column its rows, and per bracket the rows up to each edge of its cells."""
    edges, size = payload["edges"], len(settings.columns)
    if edges.shape != (size, settings.brackets, settings.cells + 1):
        raise PayloadError(f"edges of shape {edges.shape} are not of {settings.brackets} brackets of {size} columns")
    up_to, rows = np.zeros(edges.shape, dtype=np.int64), np.zeros(size, dtype=np.int64)
    held, values = held_columns(rows_in_scope(party, settings), settings.columns)
    for index, column in zip(held, in_groups(values, settings.minimum_count).T, strict=True):
        up_to[index], rows[index] = np.searchsorted(np.sort(column), edges[index], side="right"), len(column)
    return {"sums": {"rows": rows, "up_to": up_to}}
