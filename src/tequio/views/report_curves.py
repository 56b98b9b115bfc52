"""Curves of methods: the mean over seeds with the spread around it."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import TYPE_CHECKING

from tequio.views.charts import Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.finding import Contender
    from tequio.experiments.results import Result

MOST_POINTS = 200


def curve(name: str, runs: Sequence[Contender], column: str, by: str = "round") -> Line:
    """A method's metric over rounds, megabytes or virtual seconds, as far as all of its runs have come."""
    series = [points for run in runs if (points := _points(run.result, column, by))]
    if not series:
        return Line(name, (), ())
    places = sorted(set.intersection(*(set(points) for points in series)))
    places = places[::-(-len(places) // MOST_POINTS)] + ([places[-1]] if len(places) > MOST_POINTS else []) \
        if places else []
    x = [fmean(points[place][0] for points in series) for place in places]
    y = [fmean(points[place][1] for points in series) for place in places]
    if len(series) < 2:
        return Line(name, x, y)
    spread = [stdev([points[place][1] for points in series]) for place in places]
    return Line(name, x, y, [value - sd for value, sd in zip(y, spread, strict=True)],
                [value + sd for value, sd in zip(y, spread, strict=True)])


def _points(result: Result, column: str, by: str) -> dict[int, tuple[float, float]]:
    """By round: the place on the axis, and the value."""
    sent, found = 0.0, {}
    for row in result.metrics:
        sent += float(row.get("bytes_up") or 0) + float(row.get("bytes_down") or 0)
        value, place = row.get(column), sent / 1e6 if by == "megabytes" else row.get(by)
        if isinstance(value, int | float) and isinstance(place, int | float):
            found[int(row["round"] or 0)] = float(place), float(value)
    return found
