"""Columns as of the pooled rows: rows, means, spreads and extremes.

In the open each party sends its own summary. Where only totals are seen, extremes come from counts of the rows up to
some edges, in an ever narrower bracket, and means and spreads from sums of what lies between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.analytics.brackets import even_cells, narrowed
from tequio.algorithms.analytics.columns import (
    Scope,
    ScopeSettings,
    check_counts,
    held_columns,
    in_groups,
    moved_by,
    numeric_columns,
    rows_in_scope,
)
from tequio.errors import DataError, PayloadError
from tequio.federation.sums import SumsReply, is_hidden
from tequio.federation.task import Counts, Reveals, Sums, task
from tequio.learners.metrics import LARGEST_SUM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.data.dataset import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party


class Summary(TypedDict):
    """One value per column; variance and sd are those of a population."""

    rows: NDArray[np.int64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    sd: NDArray[np.float64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]


class SummaryReply(TypedDict):
    """Per column: rows, mean, sum of squared deviations from it, smallest and largest value; zeros where not held."""

    rows: Counts
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]


def summarise_columns(federation: Federation, columns: Sequence[str] = (), scope: Scope | None = None) -> Summary:
    """One ask, or several where only sums are seen; the columns come in the given order, or all numeric ones in the
    order of the schema."""
    scope = scope or Scope()
    names = numeric_columns(federation.schema, columns)
    if is_hidden(scope.stages):
        return hidden_summary(federation, names, scope)
    size = (len(names),)
    replies = scope.ask(federation, summarise_here, names, rows=size, mean=size, squares=size, min=size, max=size)
    return merge_summaries(replies.payloads, names, scope.minimum_count)


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
        raise _nobody(names, total, minimum_count)
    rows, means, squares, low, high = (np.array([part[key] for part in parts]).reshape(len(parts), len(names))
                                       for key in ("rows", "mean", "squares", "min", "max"))
    mean = (rows * means).sum(axis=0) / total
    variance = (squares + rows * np.square(means - mean)).sum(axis=0) / total
    return {"rows": total.astype(np.int64), "mean": mean, "variance": variance, "sd": np.sqrt(variance),
            "min": np.where(rows > 0, low, np.inf).min(axis=0, initial=np.inf),
            "max": np.where(rows > 0, high, -np.inf).max(axis=0, initial=-np.inf)}


_POWERS = 2.0 ** np.arange(-62.0, 63.0)
_MAGNITUDES = np.concatenate([-_POWERS[::-1], [np.nextafter(0.0, -1.0), 0.0], _POWERS])
"""A first bracket around a value of unknown size: powers of two, and nought for itself."""

_CELLS = 256


def hidden_summary(federation: Federation, names: Sequence[str], scope: Scope) -> Summary:
    """The same from totals: extremes exactly, by about nine asks, and moments by two."""
    low, high = _extremes(federation, names, scope)
    middle, half = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)
    around = find_moments(federation, names, scope, middle, half)
    # Around the mean itself a spread that is small beside the range loses no digits.
    wide = np.maximum(np.maximum(high - around.mean, around.mean - low), half * 2.0 ** -40)
    found = find_moments(federation, names, scope, around.mean, wide)
    return {"rows": np.rint(found.rows).astype(np.int64), "mean": found.mean, "variance": found.variance,
            "sd": np.sqrt(found.variance), "min": low, "max": high}


def _extremes(federation: Federation, names: Sequence[str],
              scope: Scope) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    edges = np.broadcast_to(_MAGNITUDES, (len(names), 2, len(_MAGNITUDES)))
    shares = np.array([0.0, 1.0])
    while True:
        found = narrowed(federation, scope, names, shares, edges)
        if not found.rows.all():
            raise _nobody(names, found.rows, scope.minimum_count)
        lost = found.rows > found.inside.min(axis=1) if edges.shape[2] == len(_MAGNITUDES) else np.zeros(len(names))
        if lost.any():
            raise DataError(f"column '{names[int(np.flatnonzero(lost)[0])]}' has values beyond {_MAGNITUDES[-1]:.3g}",
                            remedy="leave the column out, or scale it: data.prepare = ['standardise']")
        # Between two neighbouring numbers the upper one is the value itself: a bracket holds its upper edge only.
        if not (np.nextafter(found.low, np.inf) < found.high).any():
            return found.high[:, 0], found.high[:, 1]
        edges = even_cells(found.low, found.high, _CELLS)


@dataclass(frozen=True, eq=False)
class Moments:
    """Rows, means and variances of columns, and the standard errors that noise gives them."""

    rows: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    errors: dict[str, NDArray[np.float64]]


class AroundPayload(TypedDict):
    """From where, and by which unit, values of each column are measured: farther ones count as one unit off."""

    centre: NDArray[np.float64]
    unit: NDArray[np.float64]


def find_moments(federation: Federation, names: Sequence[str], scope: Scope, centre: NDArray[np.float64],
                 unit: NDArray[np.float64]) -> Moments:
    """From rows, and sums of deviations and of their squares."""
    size = (len(names),)
    found = scope.total(federation, moments_here, scope.settings(names), {"centre": centre, "unit": unit}, rows=size,
                        deviations=size, squares=size)
    rows = np.maximum(found["rows"].astype(np.float64), 0.0)
    if not (rows >= 1).all():
        raise _nobody(names, rows >= 1, scope.minimum_count)
    first, second = found["deviations"] / rows, found["squares"] / rows
    variance = np.maximum(second - first**2, 0.0)
    of_rows, of_sums, of_squares = (found.deviations[name] / rows for name in ("rows", "deviations", "squares"))
    # Errors of ratios and of differences of squares, to the first order.
    of_mean = np.hypot(of_sums, first * of_rows)
    of_variance = np.sqrt(of_squares**2 + (2 * first * of_sums)**2 + ((second - 2 * first**2) * of_rows) ** 2)
    of_sd = np.divide(of_variance, 2 * np.sqrt(variance), out=np.sqrt(of_variance), where=variance > of_variance)
    return Moments(rows, centre + unit * first, unit**2 * variance, {
        "rows": of_rows * rows, "mean": unit * of_mean, "sd": unit * of_sd})


def _moved_moments(settings: ScopeSettings, schema: Schema) -> Mapping[str, float]:
    """A row counts once in every column, and is one unit off at most."""
    length = len(settings.columns) ** 0.5
    return moved_by(settings, rows=length, deviations=length, squares=length)


@task("statistics: moments", settings=ScopeSettings, reply=SumsReply, reveals=Sums(_moved_moments), check=check_counts)
def moments_here(party: Party, payload: AroundPayload, settings: ScopeSettings) -> SumsReply:
    """Per column held here: rows, and sums of their deviations and of the squares of these."""
    size = len(settings.columns)
    rows, deviations, squares = np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(size)
    held, values = held_columns(rows_in_scope(party, settings), settings.columns)
    off = np.clip((values - payload["centre"][held]) / payload["unit"][held], -1.0, 1.0)
    rows[held], deviations[held], squares[held] = len(values), off.sum(axis=0), np.square(off).sum(axis=0)
    return {"sums": {"rows": rows, "deviations": deviations, "squares": squares}}


def _nobody(names: Sequence[str], rows: NDArray[np.generic], minimum_count: int) -> DataError:
    return DataError(f"no party has rows to report on in column '{names[int(np.flatnonzero(rows == 0)[0])]}'",
                     remedy=f"loosen the minimum count ({minimum_count}), or leave the column out")
