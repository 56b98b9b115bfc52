"""Federated analytics: what the columns look like, without a row leaving its party."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NotRequired, TypedDict

import numpy as np
from annotated_types import Ge, Gt, Interval
from numpy.typing import NDArray

from tequio.algorithms.analytics.columns import (
    Scope,
    ScopeSettings,
    categorical_columns,
    check_counts,
    find_quantiles,
    held_columns,
    in_groups,
    numeric_columns,
    rows_in_scope,
    summarise_columns,
    without_small,
)
from tequio.errors import ConfigError, DataError, PayloadError
from tequio.federation.algorithm import Algorithm, State, part
from tequio.federation.averaging import select
from tequio.federation.selection import AllParties, Selector
from tequio.federation.task import Counts, Sums, task
from tequio.learners.learner import Arrays
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from tequio.algorithms.analytics.columns import Summary
    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Tally

Share = Annotated[float, Interval(ge=0, le=1)]


@register("algorithm", "statistics")
@dataclass(frozen=True, kw_only=True)
class Statistics(Algorithm):
    """Rows, means, spreads, quantiles, histograms and category counts of the parties' columns, all in one round.

    The result holds, beside the arrays, a table of one row per column. Further rounds change nothing.

    Parameters:
        columns: names of the columns to look at (none: all)
        quantiles: shares of the rows, such as 0.5 for the median
        bins: cells of each histogram
        tolerance: how far a quantile may be off, as a share of its column's range
        minimum_count: parties with fewer rows stay silent, cells with fewer rows at a party are reported as empty, and
            numbers are counted in groups of as many neighbours
    """

    selector: Selector = part(factory=AllParties)
    columns: tuple[str, ...] = ()
    quantiles: tuple[Share, ...] = (0.25, 0.5, 0.75)
    bins: Annotated[int, Ge(1)] = 10
    tolerance: Annotated[float, Gt(0)] = 1e-3
    minimum_count: Annotated[int, Ge(1)] = 1

    shows_replies: ClassVar[bool] = False
    adoptable: ClassVar[bool] = False  # there is no model

    def start(self, federation: Federation) -> State:
        """Nothing is known yet."""
        return State({})

    def round(self, federation: Federation, state: State) -> State:
        """Ask for everything once."""
        if state.model:
            return state
        chosen = select(self, federation, state)
        scope = Scope(chosen.parties, minimum_count=self.minimum_count)
        numeric, categorical = self._kinds(federation)
        model = {**self._of_numbers(federation, numeric, scope), **_of_categories(federation, categorical, scope)}
        if federation.schema.target.kind in ("classes", "multilabel"):
            model |= {"labels": list(federation.schema.target.names), "label_counts": count_labels(federation, scope)}
        return state.next({**model, "table": table(model)}, selector=chosen.memory)

    def answer(self, federation: Federation, state: State) -> None:
        """There is no model."""

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """There is no model to evaluate."""
        return {}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """There is no model to score."""
        return None

    def _kinds(self, federation: Federation) -> tuple[tuple[str, ...], tuple[str, ...]]:
        numeric, categorical = numeric_columns(federation.schema), categorical_columns(federation.schema)
        if not self.columns:
            return numeric, categorical
        for name in self.columns:
            federation.schema.column(name)
        wanted = set(self.columns)
        numeric = tuple(name for name in numeric if name in wanted)
        return numeric, tuple(name for name in categorical if name in wanted)

    def _of_numbers(self, federation: Federation, names: Sequence[str], scope: Scope) -> Payload:
        if not names:
            return {"columns": []}
        summary = summarise_columns(federation, names, scope)
        edges = even_edges(summary, self.bins)
        found = find_quantiles(federation, self.quantiles, names, tolerance=self.tolerance, scope=scope,
                               summary=summary)
        return {"columns": list(names), **summary, "edges": edges,
                "histograms": count_histograms(federation, edges, names, scope),
                "quantile_shares": list(self.quantiles), "quantiles": found.values, "quantile_widths": found.width}


def _of_categories(federation: Federation, names: Sequence[str], scope: Scope) -> Payload:
    if not names:
        return {"categories": {}, "domains": {}}
    domains = {feature.name: list(feature.domain or ()) for feature in federation.schema.features}
    counts = count_categories(federation, names, scope)
    return {"categories": counts, "domains": {name: domains[name] for name in names}}


def table(model: Payload) -> list[dict[str, object]]:
    """One row per column: rows, mean, sd, min, quantiles and max of numbers; rows and counts of categories."""
    rows: list[dict[str, object]] = []
    for index, name in enumerate(model["columns"]):
        shares = zip(model["quantile_shares"], model["quantiles"][index], strict=True)
        rows.append({"column": name, "rows": int(model["rows"][index]),
                     **{key: float(model[key][index]) for key in ("mean", "sd", "min")},
                     **{f"q{share:g}": float(value) for share, value in shares}, "max": float(model["max"][index])})
    for name, counts in model["categories"].items():
        by_category = dict(zip(model["domains"][name], counts.tolist(), strict=True))
        rows.append({"column": name, "rows": int(counts.sum()), "counts": by_category})
    return rows


class EdgesPayload(TypedDict):
    """Edges of the cells of each column: (columns, bins + 1)."""

    edges: NDArray[np.float64]


class CountsReply(TypedDict):
    """Counts of rows."""

    counts: Counts


class LabelsReply(TypedDict):
    """Counts of labels; nothing from a party that does not hold the target."""

    counts: NotRequired[Counts]


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
    replies = (scope or Scope()).ask(federation, histogram_here, names, {"edges": asked},
                                     counts=(len(names), asked.shape[1] - 1))
    return _total([reply["counts"] for reply in replies.payloads], (len(names), asked.shape[1] - 1))


def count_categories(federation: Federation, columns: Sequence[str] = (),
                     scope: Scope | None = None) -> dict[str, NDArray[np.int64]]:
    """How often each category of each column occurs, in the order of the column's domain."""
    names = categorical_columns(federation.schema, columns)
    domains = {feature.name: len(feature.domain or ()) for feature in federation.schema.features}
    replies = (scope or Scope()).ask(federation, categories_here, names)
    return {name: _total([reply[name] for reply in replies.payloads if name in reply], (domains[name],))
            for name in names}


def count_labels(federation: Federation, scope: Scope | None = None) -> NDArray[np.int64]:
    """How often each class, or each label of a multi-label target, occurs."""
    target = federation.schema.target
    if target.kind not in ("classes", "multilabel"):
        raise ConfigError(f"a target of kind '{target.kind}' has no labels to count")
    replies = (scope or Scope()).ask(federation, labels_here, (), counts=(len(target.names),))
    return _total([reply["counts"] for reply in replies.payloads if "counts" in reply], (len(target.names),))


def _total(counts: Sequence[NDArray[np.int64]], shape: tuple[int, ...]) -> NDArray[np.int64]:
    total = np.zeros(shape, dtype=np.int64)
    for own in counts:
        total += own
    return total


def _moved_counts(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    """A row counts once in every column."""
    return {"counts": len(settings.columns) ** 0.5}


@task("statistics: histogram", settings=ScopeSettings, reply=CountsReply, reveals=Sums(_moved_counts),
      check=check_counts)
def histogram_here(party: Party, payload: EdgesPayload, settings: ScopeSettings) -> CountsReply:
    """Rows in each cell of each column held here."""
    edges = payload["edges"]
    counts = np.zeros((len(edges), edges.shape[1] - 1), dtype=np.int64)
    held, values = held_columns(rows_in_scope(party, settings), settings.columns)
    for index, column in zip(held, in_groups(values, settings.minimum_count).T, strict=True):
        counts[index] = np.histogram(column, edges[index])[0]
    return {"counts": without_small(counts, settings.minimum_count)}


def _check_categories(reply: Arrays, federation: Federation, party: int) -> None:
    """Refuse what is no count of a column's categories."""
    domains = {feature.name: (len(feature.domain or ()),) for feature in federation.schema.features}
    for name, counts in reply.items():
        if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != domains.get(name) or \
                (counts < 0).any():
            raise PayloadError(f"party '{federation.name(party)}' sent something that is not counts of categories")
    check_counts(reply, federation, party)


def _moved_categories(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    return dict.fromkeys(settings.columns, 1.0)


@task("statistics: categories", settings=ScopeSettings, reply=Arrays, reveals=Sums(_moved_categories),
      check=_check_categories)
def categories_here(party: Party, payload: Payload, settings: ScopeSettings) -> Arrays:
    """Counts of the categories of each column held here."""
    data, wanted = rows_in_scope(party, settings), settings.columns
    held, codes = held_columns(data, wanted)
    domains = {feature.name: len(feature.domain or ()) for feature in data.schema.features}
    return {wanted[index]: without_small(np.bincount(column.astype(np.int64), minlength=domains[wanted[index]]),
                                         settings.minimum_count)
            for index, column in zip(held, codes.T, strict=True)}


def _moved_labels(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    """A row has one class, or up to all labels."""
    return {"counts": 1.0 if schema.target.kind == "classes" else len(schema.target.names) ** 0.5}


def _check_labels(reply: LabelsReply, federation: Federation, party: int) -> None:
    """A row has one class, but several labels."""
    if federation.schema.target.kind == "classes":
        check_counts(reply, federation, party)


@task("statistics: labels", settings=ScopeSettings, reply=LabelsReply, reveals=Sums(_moved_labels), check=_check_labels)
def labels_here(party: Party, payload: Payload, settings: ScopeSettings) -> LabelsReply:
    """Counts of the labels here; nothing at a party that does not hold the target."""
    data = rows_in_scope(party, settings)
    target = data.schema.target
    if target.kind == "none":
        return {}
    counts = (np.bincount(data.target.astype(np.int64), minlength=len(target.names)) if target.kind == "classes"
              else data.target.astype(bool).sum(axis=0))
    return {"counts": without_small(counts, settings.minimum_count)}
