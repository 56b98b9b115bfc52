"""What happened on the virtual clock: learning over rounds and over time, who was chosen, and how long rounds took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.experiments.store import explained
from tequio.views.plots import dress, figure_type, headline_column, line_style

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.experiments.results import Result

PLOT = "times.png"

# Column, axis and title of each panel; an empty column is the run's main metric.
_PANELS = (("", "round", "learning over rounds"), ("", "clock.seconds", "learning over virtual time"),
           ("clock.round_updates", "round", "updates a round"), ("clock.round_seconds", "round", "seconds a round"),
           ("clock.coverage", "clock.seconds", "parties whose update was used"))


def save_timelines(runs: Mapping[str, Result], path: Path, *, title: str = "") -> None:
    """Draw the runs over each other."""
    figure = draw_timelines(runs, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_timelines(runs: Mapping[str, Result], *, title: str = "") -> Figure:
    """Six panels; runs without a virtual clock are only in those over rounds."""
    figure = figure_type()(figsize=(13.5, 7.2), layout="constrained", dpi=130)
    *panels, last = figure.subplots(2, 3).flat
    metric = next((column for run in runs.values() if (column := headline_column(run))), "")
    for axes, (column, by, name) in zip(panels, _PANELS, strict=True):
        _draw_lines(axes, runs, column or metric, by)
        if column == "clock.round_seconds":
            _draw_deadlines(axes, runs)
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        dress(axes, column or metric, by)
    _draw_selections(last, runs)
    figure.legend(*panels[2].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure


def _draw_lines(axes: Axes, runs: Mapping[str, Result], column: str, by: str) -> None:
    for position, (name, run) in enumerate(runs.items()):
        if column in run.metrics.columns and by in run.metrics.columns:
            colour, style = line_style(position)
            axes.plot(*run.metrics.series(column, by), style, color=colour, linewidth=1.4, label=name)


def _draw_deadlines(axes: Axes, runs: Mapping[str, Result]) -> None:
    """The deadline that a selector set, as a thin dotted line in the colour of its run."""
    for position, run in enumerate(runs.values()):
        if "clock.deadline" in run.metrics.columns:
            axes.plot(*run.metrics.series("clock.deadline"), ":", color=line_style(position)[0], linewidth=0.9)


def _draw_selections(axes: Axes, runs: Mapping[str, Result]) -> None:
    """How many parties were chosen how often."""
    for position, run in enumerate(runs.values()):
        if "chosen" not in run.participation.columns:
            continue
        counts = [float(count or 0) for count in run.participation["chosen"]]
        never = [0.0] * (run.summary["parties"] - len(counts))
        colour, style = line_style(position)
        axes.hist(counts + never, bins=30, histtype="step", color=colour, linestyle=style, linewidth=1.4)
    axes.set_title("how often parties were chosen", loc="left", fontsize=10, fontweight="bold")
    dress(axes, "parties", "times chosen")
