"""Histograms of numeric columns, and counts of categories and labels, added up over the parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.analytics.columns import (
    Scope,
    categorical_columns,
    held_columns,
    numeric_columns,
    rows_in_scope,
    without_small,
)
from tequio.errors import ConfigError, DataError
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tequio.algorithms.analytics.summaries import Summary
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


def even_edges(summary: Summary, bins: int) -> NDArray[np.float64]:
    """Edges of `bins` equal cells from each column's smallest to its largest value: (columns, bins + 1)."""
    constant = summary["min"] == summary["max"]
    low, high = summary["min"] - 0.5 * constant, summary["max"] + 0.5 * constant
    return np.linspace(low, high, bins + 1, axis=1)


def count_histograms(federation: Federation, edges: ArrayLike, columns: Sequence[str] = (),
                     scope: Scope | None = None) -> NDArray[np.int64]:
    """Rows in each cell of each column: (columns, bins). A cell holds its lower edge, the last one also its upper."""
    names = numeric_columns(federation.schema, columns)
    asked = np.asarray(edges, dtype=np.float64)
    if asked.ndim != 2 or len(asked) != len(names) or asked.shape[1] < 2 or not bool((np.diff(asked) >= 0).all()):
        raise DataError(f"edges of shape {asked.shape} are not ascending rows of at least two edges for each of "
                        f"{len(names)} columns")
    replies = (scope or Scope()).ask(federation, histogram_here, names, {"edges": asked})
    return _total([payload["counts"] for payload in replies.payloads], (len(names), asked.shape[1] - 1))


def count_categories(federation: Federation, columns: Sequence[str] = (),
                     scope: Scope | None = None) -> dict[str, NDArray[np.int64]]:
    """How often each category of each column occurs, in the order of the column's domain."""
    names = categorical_columns(federation.schema, columns)
    domains = {feature.name: len(feature.domain or ()) for feature in federation.schema.features}
    replies = (scope or Scope()).ask(federation, categories_here, names)
    told = {name: [payload[name] for payload in replies.payloads if name in payload] for name in names}
    return {name: _total(counts, (domains[name],)) for name, counts in told.items()}


def count_labels(federation: Federation, scope: Scope | None = None) -> NDArray[np.int64]:
    """How often each class, or each label of a multi-label target, occurs."""
    target = federation.schema.target
    if target.kind not in ("classes", "multilabel"):
        raise ConfigError(f"a target of kind '{target.kind}' has no labels to count")
    replies = (scope or Scope()).ask(federation, labels_here, ())
    return _total([payload["counts"] for payload in replies.payloads if payload], (len(target.names),))


@task("statistics: histogram")
def histogram_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Rows in each cell of each column held here."""
    edges: NDArray[np.float64] = payload["edges"]
    counts = np.zeros((len(edges), edges.shape[1] - 1), dtype=np.int64)
    held, values = held_columns(rows_in_scope(party, settings), settings["columns"])
    for index, column in zip(held, values.T, strict=True):
        counts[index] = np.histogram(column, edges[index])[0]
    return {"counts": without_small(counts, settings["minimum_count"])}


@task("statistics: categories")
def categories_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Counts of the categories of each column held here."""
    data = rows_in_scope(party, settings)
    wanted: list[str] = settings["columns"]
    held, codes = held_columns(data, wanted)
    domains = {feature.name: len(feature.domain or ()) for feature in data.schema.features}
    return {wanted[index]: without_small(np.bincount(column.astype(np.int64), minlength=domains[wanted[index]]),
                                         settings["minimum_count"])
            for index, column in zip(held, codes.T, strict=True)}


@task("statistics: labels")
def labels_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Counts of the labels here; nothing at a party that does not hold the target."""
    data = rows_in_scope(party, settings)
    target = data.schema.target
    if target.kind == "none":
        return {}
    counts = (np.bincount(data.target.astype(np.int64), minlength=len(target.names)) if target.kind == "classes"
              else data.target.astype(bool).sum(axis=0))
    return {"counts": without_small(counts, settings["minimum_count"])}


def _total(counts: Sequence[NDArray[np.int64]], shape: tuple[int, ...]) -> NDArray[np.int64]:
    total = np.zeros(shape, dtype=np.int64)
    for part in counts:
        total += part
    return total
