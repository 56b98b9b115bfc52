"""Counts of rows: by cell of a histogram, by category, and by label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.analytics.columns import (
    Scope,
    ScopeSettings,
    categorical_columns,
    check_counts,
    held_columns,
    in_groups,
    moved_by,
    numeric_columns,
    rows_in_scope,
    without_small,
)
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.sums import SumsReply
from tequio.federation.task import Sums, task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.federation.sums import Totals


class EdgesPayload(TypedDict):
    """Edges of the cells of each column: (columns, bins + 1)."""

    edges: NDArray[np.float64]


def even_edges(low: NDArray[np.float64], high: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Edges of `bins` equal cells from each column's smallest to its largest value: (columns, bins + 1)."""
    constant = low == high
    return np.linspace(low - 0.5 * constant, high + 0.5 * constant, bins + 1, axis=1)


@dataclass(frozen=True, eq=False)
class Tables:
    """Counts of rows, and the standard error that noise gives each of them."""

    counts: NDArray[np.generic]
    error: float


def count_histograms(federation: Federation, edges: ArrayLike, columns: Sequence[str] = (),
                     scope: Scope | None = None) -> Tables:
    """Rows in each cell of each column: (columns, bins). A cell holds its lower edge, the last one also its upper."""
    names, scope = numeric_columns(federation.schema, columns), scope or Scope()
    asked = np.asarray(edges, dtype=np.float64)
    if asked.ndim != 2 or len(asked) != len(names) or asked.shape[1] < 2 or not bool((np.diff(asked) >= 0).all()):
        raise DataError(f"edges of shape {asked.shape} are not ascending rows of at least two edges for each of "
                        f"{len(names)} columns")
    return _counted(scope.total(federation, histogram_here, scope.settings(names), {"edges": asked},
                                histogram=(len(names), asked.shape[1] - 1)), "histogram")


def count_categories(federation: Federation, columns: Sequence[str] = (),
                     scope: Scope | None = None) -> tuple[dict[str, NDArray[np.generic]], float]:
    """How often each category of each column occurs, in the order of the column's domain, and the standard error."""
    names, scope = categorical_columns(federation.schema, columns), scope or Scope()
    domains = {feature.name: feature.domain or () for feature in federation.schema.features}
    sizes = [len(domains[name]) for name in names]
    found = _counted(scope.total(federation, categories_here, scope.settings(names),
                                 {"sizes": np.array(sizes, dtype=np.int64)}, categories=(sum(sizes),)), "categories")
    parts = np.split(found.counts, np.cumsum(sizes)[:-1])
    return dict(zip(names, parts, strict=True)), found.error


def count_labels(federation: Federation, scope: Scope | None = None) -> Tables:
    """How often each class, or each label of a multi-label target, occurs."""
    target, scope = federation.schema.target, scope or Scope()
    if target.kind not in ("classes", "multilabel"):
        raise ConfigError(f"a target of kind '{target.kind}' has no labels to count")
    size = len(target.names)
    found = scope.total(federation, labels_here, scope.settings(()), {"labels": size}, labels=(size,))
    return _counted(found, "labels")


def _counted(found: Totals, name: str) -> Tables:
    """Counts as whole numbers, unless there is noise on them."""
    error = found.deviations.get(name, 0.0)
    return Tables(found[name] if error else found[name].astype(np.int64), error)


def moved_counts(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    """A row counts once in every column."""
    return moved_by(settings, histogram=len(settings.columns) ** 0.5)


@task("statistics: histogram", settings=ScopeSettings, reply=SumsReply, reveals=Sums(moved_counts), check=check_counts)
def histogram_here(party: Party, payload: EdgesPayload, settings: ScopeSettings) -> SumsReply:
    """Rows in each cell of each column held here."""
    edges = payload["edges"]
    counts = np.zeros((len(edges), edges.shape[1] - 1), dtype=np.int64)
    if len(edges) != len(settings.columns):
        raise PayloadError(f"edges of {len(edges)} columns are not those of {len(settings.columns)}")
    held, values = held_columns(rows_in_scope(party, settings), settings.columns)
    for index, column in zip(held, in_groups(values, settings.minimum_count).T, strict=True):
        counts[index] = np.histogram(column, edges[index])[0]
    return {"sums": {"histogram": without_small(counts, settings.minimum_count)}}


class SizesPayload(TypedDict):
    """How many categories each column has."""

    sizes: NDArray[np.int64]


def moved_categories(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    """A row counts once in every column."""
    return moved_by(settings, categories=len(settings.columns) ** 0.5)


def _check_categories(reply: SumsReply, federation: Federation, party: int) -> None:
    """A row counts once in every column, so that no category has more rows than the party."""
    counts = reply["sums"].get("categories")
    if isinstance(counts, np.ndarray) and counts.dtype.kind in "iu":
        check_counts({"sums": {"rows": counts}}, federation, party)


@task("statistics: categories", settings=ScopeSettings, reply=SumsReply, reveals=Sums(moved_categories),
      check=_check_categories)
def categories_here(party: Party, payload: SizesPayload, settings: ScopeSettings) -> SumsReply:
    """Counts of the categories of each column held here, one column after the other."""
    data, sizes = rows_in_scope(party, settings), [int(size) for size in payload["sizes"]]
    held, codes = held_columns(data, settings.columns)
    counts = [np.zeros(size, dtype=np.int64) for size in sizes]
    for index, column in zip(held, codes.T, strict=True):
        name, found = settings.columns[index], np.bincount(column.astype(np.int64), minlength=sizes[index])
        if len(found) != sizes[index]:
            raise PayloadError(f"column '{name}' has other categories here than the {sizes[index]} that are counted")
        counts[index] = without_small(found, settings.minimum_count)
    return {"sums": {"categories": np.concatenate([np.zeros(0, dtype=np.int64), *counts])}}


class LabelsPayload(TypedDict):
    """How many labels there are."""

    labels: int


def moved_labels(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    """A row has one class, or up to all labels."""
    return moved_by(settings, labels=1.0 if schema.target.kind == "classes" else len(schema.target.names) ** 0.5)


def _check_labels(reply: SumsReply, federation: Federation, party: int) -> None:
    """A row has one class, but several labels."""
    if federation.schema.target.kind == "classes":
        check_counts(reply, federation, party)
    elif (labels := reply["sums"].get("labels")) is not None:
        _check_categories({"sums": {"categories": labels}}, federation, party)


@task("statistics: labels", settings=ScopeSettings, reply=SumsReply, reveals=Sums(moved_labels), check=_check_labels)
def labels_here(party: Party, payload: LabelsPayload, settings: ScopeSettings) -> SumsReply:
    """Counts of the labels here; none at a party that does not hold the target."""
    data = rows_in_scope(party, settings)
    target = data.schema.target
    if target.kind == "none":
        return {"sums": {"labels": np.zeros(payload["labels"], dtype=np.int64)}}
    counts = (np.bincount(data.target.astype(np.int64), minlength=len(target.names)) if target.kind == "classes"
              else data.target.astype(bool).sum(axis=0))
    return {"sums": {"labels": without_small(counts, settings.minimum_count)}}
