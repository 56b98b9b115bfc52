"""Learning curves as columns of numbers, for the script that draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments import store
from tequio.experiments.results import BASELINES
from tequio.views.web.events import thinned
from tequio.views.web.reading import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tequio.experiments.table import Table

    Columns = dict[str, list[float | None]]

AXES = {"round": "rounds", "seconds": "seconds", "bytes": "bytes sent", "clock.seconds": "virtual seconds"}
"""What a curve can run along, and what that is called."""

_DIGITS = 7
_NOT_DRAWN = ("messages", "bytes_up", "bytes_down")


def run_curves(folder: Path, label: str) -> list[dict[str, Any]]:
    """The curves of a run and of the baselines beside it."""
    places = {label: folder} | {name: folder / store.BASELINES / name for name in BASELINES}
    found = {name: columns_of(read_table(place / store.METRICS)) for name, place in places.items()}
    return [{"label": name, "columns": columns} for name, columns in found.items() if columns or name == label]


def columns_of(metrics: Table) -> Columns:
    """A run's metrics column by column; seconds and bytes are added up, so that they can be an axis."""
    rows = [dict(row) for row in metrics.rows]
    seconds, sent = 0.0, 0.0
    for row in rows:
        seconds += _number(row.get("seconds")) or 0.0
        sent += (_number(row.get("bytes_up")) or 0.0) + (_number(row.get("bytes_down")) or 0.0)
        row |= {"seconds": seconds, "bytes": sent}
    kept = thinned(rows)
    names = ["round", "seconds", "bytes", *(name for name in metrics.columns if "." in name)]
    return {name: [_number(row.get(name)) for row in kept] for name in names} if rows else {}


def metric_names(curves: Iterable[dict[str, Any]]) -> list[str]:
    """The metrics that some curve has, the most telling first."""
    names = dict.fromkeys(name for one in curves for name in one["columns"])
    drawn = [name for name in names if name not in (*AXES, *_NOT_DRAWN)]
    order = ("test.", "parties.", "validation.", "train.")
    return sorted(drawn, key=lambda name: (next((place for place, prefix in enumerate(order)
                                                 if name.startswith(prefix)), len(order)), name.endswith("loss")))


def _number(value: Any) -> float | None:
    """A number that JSON can hold, short enough to send many of."""
    if not isinstance(value, int | float) or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.{_DIGITS}g}")
