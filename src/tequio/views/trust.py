"""Trust scores: how an aggregator weighed each party over the rounds, and how its weights spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.experiments.store import explained
from tequio.experiments.trust import odd_parties, trust_series
from tequio.views.plots import dress, figure_type, line_style

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.experiments.results import Result

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
        _draw_lines(lines, series, odd)
        _draw_boxes(boxes, series, odd)
        lines.set_title(name, loc="left", fontsize=10, fontweight="bold")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _draw_lines(axes: Axes, series: Mapping[str, tuple[list[int], list[float]]], odd: list[str]) -> None:
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
