"""Party by party: metrics of runs side by side, how evenly parties were chosen, and how well each does each label."""

from __future__ import annotations

from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import MissingExtra
from tequio.experiments.running.store import explained, write_whole
from tequio.experiments.running.table import Table, shown
from tequio.experiments.showing.results import figure_type, line_style
from tequio.views.heatmap import shade

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from rich.table import Table as RichTable

    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain


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
        row: Plain = {"party": name, "category": first[0].get("category") or "", "rows": _mean(first, "rows")}
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


_MEANINGS = {
    "selection.coverage": "share of the parties that were chosen at all",
    "selection.jain": "evenness of how often (Jain; 1: all alike)",
    "selection.uniform_p": "chance of counts this uneven under equal chances",
    "selection.size_bias": "rows of a chosen party over those of any party",
    "selection.converged": "share of the rounds whose contributions had settled",
}


def renderables(result: Result, metrics: Mapping[str, Any], top: int) -> Iterator[RichTable | str]:
    """What to print, one after the other."""
    told = told_of(metrics)
    yield _table("how parties were chosen", ["", "value"], told) if told else "Everybody took part in every round."
    groups = group_rows(metrics)
    if groups:
        yield _table("categories", list(groups[0]), [[shown(value) for value in row.values()] for row in groups])
    rows = ranked(result)[:top]
    if rows:
        columns = result.participation.columns
        yield _table(f"parties, {_ranked_by(columns)} first", columns,
                     [[shown(row.get(column)) for column in columns] for row in rows])


def told_of(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How evenly parties were chosen: what each number means, and the number; nothing where everybody took part."""
    return [(meaning, shown(metrics[name])) for name, meaning in _MEANINGS.items() if name in metrics]


def group_rows(metrics: Mapping[str, Any]) -> list[Plain]:
    """One row a category: how often its parties were chosen, relative to all, and how well the model serves them."""
    bias = {name.removeprefix("selection.group_bias."): value for name, value in metrics.items()
            if name.startswith("selection.group_bias.")}
    served: dict[str, tuple[str, Any]] = {}
    for name, value in metrics.items():
        if name.startswith("groups."):
            metric, _, group = name.removeprefix("groups.").partition(".")
            served[group] = metric, value
    names = sorted((bias.keys() | served.keys()) - {"worst", "gap"})
    metric = next((metric for metric, _ in served.values()), "")
    return [{"category": name, "chosen, relative to all": bias.get(name, 1.0),
             **({metric: served[name][1] if name in served else None} if metric else {})} for name in names]


def ranked(result: Result) -> list[Plain]:
    """The parties that took part, by what they added where that was scored, else by how often they were chosen."""
    by = _ranked_by(result.participation.columns)
    return sorted(result.participation.rows, key=lambda row: -float(row.get(by) or 0))


def _ranked_by(columns: list[str]) -> str:
    return next((column for column in columns if column.startswith("contribution.")), "chosen")


def _table(title: str, columns: list[str], rows: list[Any]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold",
                  pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


HEATMAP = "labels.png"
MOST_LABELS = 40
MOST_PARTIES = 12
_PARTY_METRICS = ("f1_macro", "f1_micro", "subset_accuracy", "hamming_loss", "average_precision")


def scores_by_label(result: Result, score: str = "f1") -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Labels, parties and a score of each label at each party on its own test rows; NaN where it does not know it."""
    table = result.labels
    labels, parties = (list(dict.fromkeys(str(cell) for cell in table[column])) for column in ("label", "party"))
    scores = np.full((len(labels), len(parties)), np.nan)
    for row in table:
        value = row.get(f"parties.{score}", row.get(f"common.{score}"))
        if value is not None:
            scores[labels.index(str(row["label"])), parties.index(str(row["party"]))] = float(value)
    return labels, parties, scores


def label_table(result: Result) -> RichTable:
    """F1 of every label at every party, the better the lighter, and on the coordinator's rows."""
    from rich.table import Table as RichTable

    labels, parties, scores = scores_by_label(result)
    common = {str(row["label"]): row.get("common.f1") for row in result.labels}
    positives = {label: sum(int(row.get("parties.positives") or 0) for row in result.labels if row["label"] == label)
                 for label in labels}
    more = f"; {len(labels) - MOST_LABELS} more in labels.csv" if len(labels) > MOST_LABELS else ""
    table = RichTable(title=f"F1 of each label at the parties that know it{more}", box=None, padding=(0, 1, 0, 0),
                  title_justify="left", title_style="bold", header_style="bold")
    table.add_column("label")
    for party in parties[:MOST_PARTIES]:
        table.add_column(party, justify="right", min_width=5)
    table.add_column("common rows", justify="right")
    table.add_column("positive rows", justify="right")
    for label, row in zip(labels[:MOST_LABELS], scores, strict=False):
        table.add_row(label, *[_cell(value) for value in row[:MOST_PARTIES]], shown(common.get(label), 3),
                      str(positives[label]))
    return table


def party_table(result: Result) -> RichTable:
    """What each party knows and how it fares on its own test rows."""
    from rich.table import Table as RichTable

    known = {party: sum(row["party"] == party for row in result.labels) for party in result.parties["party"]}
    metrics = [name for name in _PARTY_METRICS if name in result.parties.columns]
    table = RichTable(title="parties on their own test rows", box=None, padding=(0, 1, 0, 0), title_justify="left",
                  title_style="bold", header_style="bold")
    for title in ("party", "labels", "rows", *(name.replace("_", " ") for name in metrics)):
        table.add_column(title, justify="left" if title == "party" else "right")
    for row in result.parties.rows[:MOST_LABELS]:
        table.add_row(str(row["party"]), str(known[row["party"]]), str(row["rows"]),
                      *[shown(row.get(name), 3) for name in metrics])
    return table


def save_label_heatmap(result: Result, path: Path) -> None:
    """Draw F1 by label and party into a PNG or SVG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "a heat map") from None
    labels, parties, scores = scores_by_label(result)
    figure = Figure(figsize=(1.6 + 0.7 * len(parties), 1.2 + 0.28 * min(len(labels), 120)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_invalid(scores), vmin=0, vmax=1, cmap="viridis_r", aspect="auto")
    axes.set_facecolor("#f3f3f3")
    axes.set_xticks(range(len(parties)), parties, fontsize=7)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xlabel("party", fontsize=8)
    axes.set_title(f"{result.summary['name']}: F1 of each label", fontsize=9, loc="left")
    if scores.size <= 400:
        _write_scores(axes, scores)
    figure.colorbar(image, ax=axes).ax.tick_params(labelsize=7)
    figure.savefig(path, dpi=120)


def _write_scores(axes: Any, scores: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(scores):
        if not np.isnan(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7,
                      color="white" if value > 0.45 else "black")


def _cell(value: float) -> Any:
    from rich.text import Text

    return "" if np.isnan(value) else Text(f"{value:.3f}", style=shade(value))
