"""Rows, mean, variance, smallest and largest value of every column, as of the pooled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.analytics.columns import Scope, held_columns, numeric_columns, rows_in_scope
from tequio.errors import DataError
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

Summary = dict[str, "NDArray[Any]"]
"""`rows`, `mean`, `variance`, `sd`, `min` and `max`, one value a column; variance and sd are those of a population."""


def count_rows(federation: Federation, scope: Scope | None = None) -> int:
    """How many rows the parties in scope hold together."""
    replies = (scope or Scope()).ask(federation, rows_here, ())
    return int(sum(replies.values("rows")))


def summarise_columns(federation: Federation, columns: Sequence[str] = (), scope: Scope | None = None) -> Summary:
    """One ask; the columns come in the given order, or all numeric ones in the order of the schema."""
    scope = scope or Scope()
    names = numeric_columns(federation.schema, columns)
    replies = scope.ask(federation, summarise_here, names)
    return merge_summaries(replies.payloads, names, scope.minimum_count)


@task("statistics: rows")
def rows_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """How many rows there are at this party."""
    return {"rows": len(rows_in_scope(party, settings))}


@task("statistics: summary")
def summarise_here(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Per column: rows, mean, sum of squared deviations from it, smallest and largest value; zeros where not held."""
    data = rows_in_scope(party, settings)
    size = len(settings["columns"])
    reply = {name: np.zeros(size) for name in ("mean", "squares", "min", "max")}
    reply |= {"rows": np.zeros(size, dtype=np.int64)}
    held, values = held_columns(data, settings["columns"])
    if len(values) and len(held):
        mean = values.mean(axis=0)
        reply["rows"][held], reply["mean"][held] = len(values), mean
        reply["squares"][held] = np.square(values - mean).sum(axis=0)
        reply["min"][held], reply["max"][held] = values.min(axis=0), values.max(axis=0)
    return reply


def merge_summaries(parts: Sequence[Payload], names: Sequence[str], minimum_count: int = 1) -> Summary:
    """Parties' summaries as one. Squares are taken around each party's own mean, so no digits are lost."""
    empty = np.zeros((0, len(names)))
    rows, means, squares, low, high = (np.stack([part[key] for part in parts]) if parts else empty
                                       for key in ("rows", "mean", "squares", "min", "max"))
    total = rows.sum(axis=0)
    if not total.all():
        missing = names[int(np.flatnonzero(total == 0)[0])]
        raise DataError(f"no party has rows to tell of in column '{missing}'",
                        remedy=f"loosen the minimum count ({minimum_count}), or leave the column out")
    mean = (rows * means).sum(axis=0) / total
    variance = (squares + rows * np.square(means - mean)).sum(axis=0) / total
    return {"rows": total.astype(np.int64), "mean": mean, "variance": variance, "sd": np.sqrt(variance),
            "min": np.where(rows > 0, low, np.inf).min(axis=0), "max": np.where(rows > 0, high, -np.inf).max(axis=0)}
