"""What happened over rounds and virtual time: learning, who was chosen, how long rounds took, who was trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.experiments.running.participation import coverage_by_round, odd_parties, trust_series
from tequio.experiments.running.store import explained
from tequio.experiments.showing.results import dress, figure_type, headline_column, line_style

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.experiments.running.results import Result


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
    """A panel for each thing that some run has; runs without a virtual clock are only in those over rounds."""
    metric = next((column for run in runs.values() if (column := headline_column(run))), "")
    lines = [panel for panel in _PANELS if any(_has(run, panel[0] or metric, panel[1]) for run in runs.values())]
    chosen = {name: run for name, run in runs.items() if "chosen" in run.participation.columns}
    count = len(lines) + (2 if chosen else 0)
    columns = min(count, 4 if count == 4 else 3) or 1
    figure = figure_type()(figsize=(4.5 * columns, 3.6 * -(-count // columns) or 3.6), layout="constrained", dpi=130)
    panels = list(figure.subplots(-(-count // columns) or 1, columns, squeeze=False).flat)
    for axes, (column, by, name) in zip(panels, lines, strict=False):
        _draw_lines(axes, runs, column or metric, by)
        if column == "clock.round_seconds":
            _draw_deadlines(axes, runs)
        _name(axes, name, column or metric, by)
    if chosen:
        _draw_coverage(panels[count - 2], runs)
        _draw_selections(panels[count - 1], runs)
    for axes in panels[count:]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure


def _has(run: Result, column: str, by: str) -> bool:
    return column in run.metrics.columns and by in run.metrics.columns


def _name(axes: Axes, title: str, y: str, x: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    dress(axes, y, x)


def _draw_lines(axes: Axes, runs: Mapping[str, Result], column: str, by: str) -> None:
    for position, (name, run) in enumerate(runs.items()):
        if _has(run, column, by):
            colour, style = line_style(position)
            axes.plot(*run.metrics.series(column, by), style, color=colour, linewidth=1.4, label=name)


def _draw_deadlines(axes: Axes, runs: Mapping[str, Result]) -> None:
    """The deadline that a selector set, as a thin dotted line in the colour of its run."""
    for position, run in enumerate(runs.values()):
        if "clock.deadline" in run.metrics.columns:
            axes.plot(*run.metrics.series("clock.deadline"), ":", color=line_style(position)[0], linewidth=0.9)


def _draw_coverage(axes: Axes, runs: Mapping[str, Result]) -> None:
    """How fast the choice goes round among the parties."""
    for position, run in enumerate(runs.values()):
        shares = coverage_by_round(run.folder, run.summary["parties"])
        colour, style = line_style(position)
        axes.plot(range(1, len(shares) + 1), shares, style, color=colour, linewidth=1.4)
    _name(axes, "parties that were chosen so far", "share of the parties", "round")


def _draw_selections(axes: Axes, runs: Mapping[str, Result]) -> None:
    """How many parties were chosen how often; on a log scale, or a few that are chosen all the time would not show."""
    counts = {name: _times_chosen(run) for name, run in runs.items()}
    most = max(max(times) for times in counts.values())
    edges = [edge - 0.5 for edge in range(0, most + 2, max(1, -(-most // 40)))]
    for position, times in enumerate(counts.values()):
        colour, style = line_style(position)
        axes.hist(times, bins=[*edges, edges[-1] + max(1, -(-most // 40))], log=True, histtype="step",
                  color=colour, linestyle=style, linewidth=1.4)
    _name(axes, "how often parties were chosen", "parties", "times chosen")


def _times_chosen(run: Result) -> list[int]:
    chosen = [int(count or 0) for count in run.participation["chosen"]] if run.participation.rows else []
    return [*chosen, *[0] * (run.summary["parties"] - len(chosen))]


_ODD, _OTHERS = line_style(1)[0], line_style(0)[0]


def save_trust(runs: Mapping[str, Result], path: Path, *, title: str = "") -> bool:
    """Draw the runs side by side; whether there was anything to draw."""
    judged = {name: run for name, run in runs.items() if trust_series(run)}
    if not judged:
        return False
    figure = draw_trust(judged, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return True


def draw_trust(runs: Mapping[str, Result], *, title: str = "") -> Figure:
    """A column a run: one line a party over the rounds, and below it one box a party over all rounds."""
    figure = figure_type()(figsize=(3.6 * len(runs), 6.4), layout="constrained", dpi=130)
    panels = figure.subplots(2, len(runs), squeeze=False)
    for (lines, boxes), (name, run) in zip(panels.T, runs.items(), strict=True):
        series, odd = trust_series(run), odd_parties(run)
        _draw_scores(lines, series, odd)
        _draw_boxes(boxes, series, odd)
        lines.set_title(name, loc="left", fontsize=10, fontweight="bold")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _draw_scores(axes: Axes, series: Mapping[str, tuple[list[int], list[float]]], odd: list[str]) -> None:
    for party, (rounds, values) in series.items():
        stands_out = party in odd
        axes.plot(rounds, values, color=_ODD if stands_out else _OTHERS, linewidth=2.0 if stands_out else 1.1,
                  alpha=1.0 if stands_out else 0.6)
    dress(axes, "trust")
    axes.set_ylim(bottom=0)


def _draw_boxes(axes: Axes, series: Mapping[str, tuple[list[int], list[float]]], odd: list[str]) -> None:
    drawn = axes.boxplot([values for _, values in series.values()], tick_labels=list(series), patch_artist=True,
                         medianprops={"color": "#000000"})
    for party, box in zip(series, drawn["boxes"], strict=True):
        box.set_facecolor(_ODD if party in odd else _OTHERS)
        box.set_alpha(0.6)
    dress(axes, "trust over all rounds", "party")
    axes.tick_params(axis="x", rotation=45)
    axes.set_ylim(bottom=0)
