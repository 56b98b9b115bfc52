"""Runs compared: a table with the statistics of `tequio compare`, and their curves in one picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.experiments.comparing.comparing import compare_values
from tequio.experiments.comparing.pairing import values_of
from tequio.experiments.comparing.values import contenders
from tequio.experiments.running import store
from tequio.experiments.running.headline import common_headline
from tequio.experiments.running.results import BASELINES, is_finished
from tequio.experiments.running.store import BASELINES as BASELINE_FOLDER
from tequio.experiments.showing.comparison import Sheet, rank_lines, sentences, sheets_of
from tequio.views.web.index import CORRUPT, headline
from tequio.views.web.kit import dashboard_of, page
from tequio.views.web.reading import AXES, columns_of, metric_names, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from tequio.experiments.running.store import Plain
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
        likely = common_headline(entry.metric.removesuffix(".mean").rpartition(".")[2] for entry in chosen)
        metric = next((name for name in [headline(dict.fromkeys(metrics), likely)[0]] if name in metrics), "")
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


def _last(curve: Plain, name: str) -> float | None:
    column = curve["columns"].get(name)
    return column[-1] if column else None


@dataclass(frozen=True)
class Verdict:
    """What a comparison says; `trouble` where it can say nothing."""

    sheets: list[Sheet] = field(default_factory=list)
    sentences: dict[str, list[str]] = field(default_factory=dict)
    diagram: str = ""
    trouble: str = ""


def judge(folders: Sequence[Path], metric: str, *, baselines: bool = False) -> Verdict:
    """Compare finished runs, and the baselines beside them if wanted."""
    beside = [path for folder in folders for name in BASELINES
              if baselines and is_finished(path := folder / BASELINE_FOLDER / name)]
    runs, left_out = contenders([*folders, *beside])
    if not runs:
        return Verdict(trouble="None of these runs is finished, so there is nothing to compare yet.")
    try:
        comparison = compare_values(values_of(runs, metric, left_out=left_out))
    except TequioError as cause:
        return Verdict(trouble=f"No statistics: {cause}")
    ranking = comparison.ranking
    diagram = "\n".join(rank_lines(ranking, comparison.groups)) if ranking and len(ranking.methods) > 2 else ""
    return Verdict(sheets_of(comparison), sentences(comparison), diagram)
