"""Federated analytics: what the columns look like, without a row leaving its party."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Interval

from tequio.algorithms.analytics.columns import (
    Scope,
    categorical_columns,
    count_categories,
    count_histograms,
    count_labels,
    even_edges,
    find_quantiles,
    numeric_columns,
    summarise_columns,
)
from tequio.federation.algorithm import Algorithm, State, part
from tequio.federation.averaging import select
from tequio.federation.selection import AllParties, Selector
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
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
        minimum_count: parties with fewer rows stay silent, and cells with fewer rows at a party are reported as empty
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
