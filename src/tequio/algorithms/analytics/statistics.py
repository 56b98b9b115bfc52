"""Federated analytics: what the columns look like, without a row leaving its party."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.algorithms.analytics.columns import Scope, categorical_columns, numeric_columns
from tequio.algorithms.analytics.counting import count_categories, count_histograms, count_labels, even_edges
from tequio.algorithms.analytics.quantiles import CELLS, find_quantiles, refinements
from tequio.algorithms.analytics.summaries import find_moments, summarise_columns
from tequio.errors import ConfigError
from tequio.federation.algorithm import Algorithm, Disclosure, State, part
from tequio.federation.averaging import select
from tequio.federation.selection import AllParties, Selector
from tequio.federation.stages import Stage
from tequio.federation.sums import is_noised
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset, Schema
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Tally

Share = Annotated[float, Interval(ge=0, le=1)]


@register("algorithm", "statistics")
@dataclass(frozen=True, kw_only=True)
class Statistics(Algorithm):
    """Rows, means, spreads, quantiles, histograms and category counts of the parties' columns, all in one round.

    The result holds, beside the arrays, a table of one row per column. Under the stage
    'secure-sum' the coordinator sees totals over all parties only; under 'dp-sums' the table has, beside each number,
    the standard error that the noise gives it.

    Parameters:
        columns: names of the columns to look at (none: all)
        quantiles: shares of the rows, such as 0.5 for the median
        bins: cells of each histogram
        tolerance: how far a quantile may be off, as a share of its column's range
        minimum_count: parties with fewer rows stay silent, cells with fewer rows at a party are reported as empty, and
            numbers are counted in groups of as many neighbours
        bounds: under 'dp-sums', the smallest and the largest value of each numeric column, known beforehand: values
            beyond them count as them in means and spreads, and as outside in histograms
    """

    selector: Selector = part(factory=AllParties)
    stages: tuple[Stage, ...] = part(())
    columns: tuple[str, ...] = ()
    quantiles: tuple[Share, ...] = (0.25, 0.5, 0.75)
    bins: Annotated[int, Ge(1)] = 10
    tolerance: Annotated[float, Gt(0)] = 1e-3
    minimum_count: Annotated[int, Ge(1)] = 1
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    across_columns: ClassVar[bool] = True
    sends: ClassVar[frozenset[Literal["updates", "sums"]]] = frozenset({"sums"})
    shows_replies: ClassVar[bool] = False
    sums_only: ClassVar[bool] = True
    adoptable: ClassVar[bool] = False  # there is no model

    def start(self, federation: Federation) -> State:
        """Nothing is known yet."""
        numeric = self._kinds(federation.schema)[0]
        if self.bounds and not is_noised(self.stages):
            raise ConfigError("algorithm.bounds would do nothing: they bound what noise has to hide, and there is none",
                              remedy="leave algorithm.bounds out, or add: [[stages]] name = 'dp-sums'")
        if wrong := sorted(self.bounds.keys() - set(numeric)):
            raise ConfigError(f"algorithm.bounds.{wrong[0]} would do nothing: '{wrong[0]}' is no numeric column that "
                              "is looked at", remedy=f"leave algorithm.bounds.{wrong[0]} out")
        return State({})

    def disclosure(self, schema: Schema) -> Disclosure | None:
        """Counts, and sums of bounded values; each table and each refinement of quantiles is a release."""
        numeric, categorical = self._kinds(schema)
        if self.minimum_count > 1 or any(self._bounds(name) is None for name in numeric):
            return None
        labelled = schema.target.kind in ("classes", "multilabel")
        columns, edges = len(numeric), len(self.quantiles) * (CELLS + 1)
        moves = dict.fromkeys(("rows", "deviations", "squares", "histogram"), columns ** 0.5) | \
            {"up_to": (columns * edges) ** 0.5, "categories": len(categorical) ** 0.5,
             "labels": 1.0 if schema.target.kind == "classes" else len(schema.target.names) ** 0.5}
        asks = (2 + (refinements(self.tolerance) if self.quantiles else 0) if numeric else 0) + bool(categorical)
        return Disclosure(moves=moves, releases=asks + labelled, rounds=1)

    def round(self, federation: Federation, state: State) -> State:
        """Ask for everything once."""
        if state.model:
            return state
        chosen = select(self, federation, state)
        scope = Scope(chosen.parties, minimum_count=self.minimum_count, stages=self.stages)
        numeric, categorical = self._kinds(federation.schema)
        model = {**self._of_numbers(federation, numeric, scope), **_of_categories(federation, categorical, scope)}
        if federation.schema.target.kind in ("classes", "multilabel"):
            labels = count_labels(federation, scope)
            model |= {"labels": list(federation.schema.target.names), "label_counts": labels.counts}
            model |= {"label_error": labels.error} if is_noised(self.stages) else {}
        return state.next({**model, "table": table(model)}, selector=chosen.memory)

    def finished(self, state: State) -> str:
        """When everything has been asked."""
        return "everything is asked once" if state.model else ""

    def answer(self, federation: Federation, state: State) -> None:
        """There is no model."""

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """There is no model to evaluate."""
        return {}

    def score(self, federation: Federation, state: State, rows: Dataset) -> Tally | None:
        """There is no model to score."""
        return None

    def _bounds(self, name: str) -> tuple[float, float] | None:
        low, high = self.bounds.get(name, (0.0, 0.0))
        return (low, high) if high > low else None

    def _kinds(self, schema: Schema) -> tuple[tuple[str, ...], tuple[str, ...]]:
        numeric, categorical = numeric_columns(schema), categorical_columns(schema)
        if not self.columns:
            return numeric, categorical
        for name in self.columns:
            schema.column(name)
        wanted = set(self.columns)
        numeric = tuple(name for name in numeric if name in wanted)
        return numeric, tuple(name for name in categorical if name in wanted)

    def _of_numbers(self, federation: Federation, names: Sequence[str], scope: Scope) -> Payload:
        if not names:
            return {"columns": []}
        noised = is_noised(self.stages)
        summary: Payload = self._within_bounds(federation, names, scope) if noised else {
            **summarise_columns(federation, names, scope)}
        ranges: tuple[NDArray[np.float64], NDArray[np.float64]] = summary["min"], summary["max"]
        edges = even_edges(*ranges, self.bins)
        found = find_quantiles(federation, self.quantiles, names, tolerance=self.tolerance, scope=scope, ranges=ranges)
        histograms = count_histograms(federation, edges, names, scope)
        errors = {"quantile_errors": found.error, "histogram_error": histograms.error} if noised else {}
        return {"columns": list(names), **summary, "edges": edges, "histograms": histograms.counts,
                "quantile_shares": list(self.quantiles), "quantiles": found.values, "quantile_widths": found.width,
                **errors}

    def _within_bounds(self, federation: Federation, names: Sequence[str], scope: Scope) -> Payload:
        """Moments of values that are no farther than the bounds; these stand for the smallest and largest value."""
        low, high = np.array([self._bounds(name) or (0.0, 1.0) for name in names]).T
        found = find_moments(federation, names, scope, (low + high) / 2, (high - low) / 2)
        return {"rows": found.rows, "mean": found.mean, "variance": found.variance, "sd": np.sqrt(found.variance),
                "min": low, "max": high, **{f"{name}_error": error for name, error in found.errors.items()}}


def _of_categories(federation: Federation, names: Sequence[str], scope: Scope) -> Payload:
    if not names:
        return {"categories": {}, "domains": {}}
    domains = {feature.name: list(feature.domain or ()) for feature in federation.schema.features}
    counts, error = count_categories(federation, names, scope)
    return {"categories": counts, "domains": {name: domains[name] for name in names},
            **({"category_error": error} if is_noised(scope.stages) else {})}


def table(model: Payload) -> list[dict[str, object]]:
    """One row per column: rows, mean, sd, min, quantiles and max of numbers; rows and counts of categories.

    Where there is noise each number is followed by its standard error, and bounds stand for the extremes.
    """
    rows: list[dict[str, object]] = []
    for index, name in enumerate(model["columns"]):
        row: dict[str, object] = {"column": name}
        for key in ("rows", "mean", "sd"):
            row |= _with_error(key, model[key][index], model.get(f"{key}_error"), index)
        row["rows"] = round(float(model["rows"][index]))
        noised = "quantile_errors" in model
        row["low" if noised else "min"] = float(model["min"][index])
        for place, share in enumerate(model["quantile_shares"]):
            errors = np.hypot(model["quantile_errors"], model["quantile_widths"])[index] if noised else None
            row |= _with_error(f"q{share:g}", model["quantiles"][index][place], errors, place)
        rows.append({**row, "high" if noised else "max": float(model["max"][index])})
    for name, counts in model["categories"].items():
        by_category = dict(zip(model["domains"][name], counts.tolist(), strict=True))
        error = model.get("category_error")
        errors = {} if error is None else {"rows_se": error * len(counts) ** 0.5, "counts_se": error}
        rows.append({"column": name, "rows": round(float(counts.sum())), "counts": by_category, **errors})
    return rows


def _with_error(name: str, value: float, errors: NDArray[np.float64] | None, index: int) -> dict[str, object]:
    return {name: float(value), **({} if errors is None else {f"{name}_se": float(errors[index])})}
