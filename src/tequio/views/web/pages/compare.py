"""Runs compared: a table with statistics, and their curves in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments import store
from tequio.views.web.comparison import judge
from tequio.views.web.curves import AXES, columns_of, metric_names
from tequio.views.web.index import CORRUPT, headline
from tequio.views.web.kit import dashboard_of, page
from tequio.views.web.reading import read_table

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.views.web.index import Entry

MOST_RUNS = 60


def show(request: Request) -> Response:
    """The comparison of the runs that the address names, and a way to name others."""
    dashboard = dashboard_of(request)
    wanted = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_RUNS]
    entries = [dashboard.index.entry(id, dashboard.folder(id)) for id in wanted]
    chosen = [entry for entry in entries if entry.status != CORRUPT]
    tables = [read_table(dashboard.folder(entry.id) / store.METRICS) for entry in chosen]
    curves = [{"label": label, "group": entry.algorithm, "columns": columns_of(table)}
              for label, entry, table in zip(_labels(chosen), chosen, tables, strict=True)]
    metrics = metric_names(curves)
    metric = request.query_params.get("metric", "")
    if metric not in metrics:
        metric = next((name for name in [headline(dict.fromkeys(metrics))[0]] if name in metrics), "")
    values = [table.last(metric) if metric in table.columns else None for table in tables]
    baselines = "baselines" in request.query_params
    verdict = judge([dashboard.folder(entry.id) for entry in chosen], metric, baselines=baselines) if metric else None
    rows = [{"entry": entry, "label": curve["label"], "value": value, "seconds": _last(curve, "seconds"),
             "bytes": _last(curve, "bytes")} for entry, curve, value in zip(chosen, curves, values, strict=True)]
    others = [entry for entry in dashboard.index.entries() if entry.status != CORRUPT and entry.id not in wanted]
    return page(request, "compare.html", rows=rows, metric=metric, verdict=verdict, curves=curves, baselines=baselines,
                metrics=[metric, *(name for name in metrics if name != metric)] if metric else [], axes=AXES,
                others=others[:300], wanted=wanted, corrupt=[entry for entry in entries if entry.status == CORRUPT])


def _labels(entries: list[Entry]) -> list[str]:
    """Short names that tell the runs apart: the algorithm, with the seed or the whole name where that is not enough."""
    for make in (lambda one: one.algorithm, lambda one: f"{one.algorithm}, seed {one.seed}",
                 lambda one: f"{one.name}: {one.algorithm}, seed {one.seed}"):
        labels = [make(entry) for entry in entries]
        if len(set(labels)) == len(labels):
            return labels
    return [entry.id for entry in entries]


def _last(curve: dict[str, Any], name: str) -> float | None:
    column = curve["columns"].get(name)
    return column[-1] if column else None
