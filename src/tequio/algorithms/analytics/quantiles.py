"""Quantiles without rows: histograms of an ever narrower bracket around each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.analytics.columns import Scope, held_columns, numeric_columns, rows_in_scope, without_small
from tequio.algorithms.analytics.summaries import summarise_columns
from tequio.errors import ConfigError
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.algorithms.analytics.summaries import Summary
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

CELLS = 16
"""Each refinement narrows the brackets by this factor."""

_MOST_REFINEMENTS = 64


@dataclass(frozen=True, eq=False)
class Quantiles:
    """One value a column and share; the true quantile of the pooled rows lies less than `width` below `values`."""

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


@task("statistics: brackets")
def brackets_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Per column and bracket: rows below it, and rows in each of its cells."""
    edges = cell_edges(payload["low"], payload["high"])
    below = np.zeros(edges.shape[:2], dtype=np.int64)
    cells = np.zeros((*edges.shape[:2], CELLS), dtype=np.int64)
    rows = np.zeros(len(edges), dtype=np.int64)
    held, values = held_columns(rows_in_scope(party, settings), settings["columns"])
    for index, column in zip(held, values.T, strict=True):
        up_to = np.searchsorted(np.sort(column), edges[index], side="right")
        below[index], cells[index], rows[index] = up_to[:, 0], np.diff(up_to, axis=1), len(column)
    least = settings["minimum_count"]
    return {"rows": rows, "below": without_small(below, least), "cells": without_small(cells, least)}


def cell_edges(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of the cells of each bracket: (columns, shares, CELLS + 1). Party and coordinator compute the same ones."""
    return np.linspace(low, high, CELLS + 1, axis=-1)


def _refine(federation: Federation, scope: Scope, names: Sequence[str], shares: NDArray[np.float64],
            low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """The cell of each bracket that holds the quantile, and whether the bracket holds enough rows to say so."""
    replies = scope.ask(federation, brackets_here, names, {"low": low, "high": high})
    if not replies:
        return [low, high], np.zeros(low.shape, dtype=bool)
    # Every reply counts from the bottom, so that a party that vanishes between two refinements does no harm.
    rows, below, cells = (np.sum([payload[key] for payload in replies.payloads], axis=0)
                          for key in ("rows", "below", "cells"))
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
