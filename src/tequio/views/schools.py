"""Party by party, how runs compare: a table of every party's metrics, and a picture of each run against each other."""

from __future__ import annotations

from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tequio.experiments.store import explained, write_whole
from tequio.experiments.table import Table
from tequio.views.plots import figure_type, line_style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.experiments.results import Result

METRICS = ("accuracy", "balanced_accuracy", "f1_macro", "auc")
_MARKS = ("o", "s", "^", "D", "v")


def save_schools(runs: Mapping[str, Sequence[Result]], path: Path, *, metric: str, title: str = "") -> list[Path]:
    """Draw the parties' means over seeds, and write the table beside the picture."""
    table = party_means(runs)
    figure = draw_schools(table, list(runs), metric, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    beside = path.with_suffix(".csv")
    write_whole(beside, table.to_csv().encode())
    return [path, beside]


def party_means(runs: Mapping[str, Sequence[Result]]) -> Table:
    """One row a party: its category, its test rows, and `RUN.METRIC` for each run, all as means over seeds."""
    table, names = Table(), [str(party) for party in next(iter(runs.values()))[0].parties["party"]]
    for name in names:
        found = {run: [row for result in results for row in result.parties if str(row["party"]) == name]
                 for run, results in runs.items()}
        if not all(found.values()):
            continue
        first = next(iter(found.values()))
        row: dict[str, Any] = {"party": name, "category": first[0].get("category") or "", "rows": _mean(first, "rows")}
        row |= {f"{run}.{metric}": _mean(rows, metric) for metric in METRICS for run, rows in found.items()
                if metric in rows[0]}
        table.add(row)
    return table


def draw_schools(table: Table, runs: Sequence[str], metric: str, *, title: str = "") -> Figure:
    """Runs against each other, a point a party, coloured by category; histograms on the diagonal."""
    count = len(runs)
    figure = figure_type()(figsize=(2.7 * count + 0.6, 2.5 * count + 0.8), layout="constrained", dpi=130)
    panels = figure.subplots(count, count, squeeze=False)
    values = {run: [row.get(f"{run}.{metric}") for row in table] for run in runs}
    categories = [str(category) for category in table["category"]]
    for line, below in enumerate(runs):
        for column, across in enumerate(runs):
            axes = panels[line][column]
            if line == column:
                axes.hist([value for value in values[below] if isinstance(value, int | float)], bins=12,
                          color="#b0b0b0")
            else:
                _draw_points(axes, values[across], values[below], categories)
            axes.tick_params(labelsize=7)
            if line == count - 1:
                axes.set_xlabel(across, fontsize=9)
            if not column:
                axes.set_ylabel(below, fontsize=9)
    handles, labels = panels[0][1].get_legend_handles_labels() if count > 1 else ([], [])
    if any(labels):
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"{title}\n{metric.replace('_', ' ')} at each party" if title else "", x=0.01, ha="left",
                    fontsize=10, fontweight="bold", wrap=True)
    return figure


def _draw_points(axes: Axes, across: Sequence[Any], below: Sequence[Any], categories: Sequence[str]) -> None:
    """One mark a category, and the line on which both runs are alike."""
    known = [(x, y, category) for x, y, category in zip(across, below, categories, strict=True)
             if isinstance(x, int | float) and isinstance(y, int | float)]
    for position, category in enumerate(dict.fromkeys(categories)):
        mine = [(x, y) for x, y, own in known if own == category]
        axes.plot([x for x, _ in mine], [y for _, y in mine], _MARKS[position % len(_MARKS)], label=category,
                  color=line_style(position)[0], markersize=4, alpha=0.8)
    ends = [value for x, y, _ in known for value in (x, y)] or [0.0, 1.0]
    axes.plot([min(ends), max(ends)], [min(ends), max(ends)], ":", color="#777777", linewidth=0.9)


def _mean(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """The mean over the seeds that have it; an AUC needs rows of both classes."""
    values = [float(row[metric]) for row in rows if isinstance(row.get(metric), int | float) and isfinite(row[metric])]
    return fmean(values) if values else None
