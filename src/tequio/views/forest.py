"""Forest plots of estimates and funnel plots of studies, as journals print them: black on white, at any size."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError, MissingExtra
from tequio.views.estimates import interval_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE_RATIOS = 2.0
_LINE = 0.3
"""Inches per line of a forest plot."""


@dataclass(frozen=True)
class ForestLine:
    """One line: an estimate with its interval; `weight` (a share) sets the size of its square, a `summary` is drawn as
    a diamond, with the interval of a further study beside it, where it has one."""

    name: str
    estimate: float
    low: float
    high: float
    weight: float | None = None
    summary: bool = False
    prediction: tuple[float, float] | None = None


def forest_plot(lines: Sequence[ForestLine], *, x: str = "Estimate", ratio: bool = False) -> Figure:
    """A forest plot. With `ratio` estimates are logs, and their ratios stand on a log scale around 1."""
    drawn = [line for line in lines if isfinite(line.estimate) and isfinite(line.low) and isfinite(line.high)]
    if not drawn:
        raise DataError("there is no estimate to draw", remedy="look at the notes of the table")
    height = _LINE * (len(lines) + 1) + 0.9
    figure = _figure(7.2, height)
    axes = figure.add_axes((0.33, 0.62 / height, 0.32, (height - 0.9) / height))
    weighted = any(line.weight is not None for line in lines)
    heaviest = max((line.weight or 0.0 for line in lines), default=0.0) or 1.0
    for place, line in enumerate(lines):
        y = -place - (0.25 if line.summary else 0.0)
        axes.text(-0.98, y, line.name, transform=axes.get_yaxis_transform(), va="center", ha="left",
                  fontweight="bold" if line.summary else "normal", fontsize=9)
        shown = [exp(one) if ratio else one for one in (line.estimate, line.low, line.high)]
        axes.text(1.04, y, interval_text(*shown, ratio=ratio), transform=axes.get_yaxis_transform(), va="center",
                  fontsize=9)
        if weighted and line.weight is not None:
            axes.text(2.02, y, f"{100 * line.weight:.1f}%", transform=axes.get_yaxis_transform(), va="center",
                      ha="right", fontsize=9)
        if line in drawn:
            _draw(axes, line, y, 3.5 if line.weight is None else 2.5 + 5 * (line.weight / heaviest) ** 0.5)
    axes.text(1.04, 0.95, "Estimate (CI)" if not ratio else f"{x} (CI)", transform=axes.get_yaxis_transform(),
              va="center", fontsize=9, fontweight="bold")
    if weighted:
        axes.text(2.02, 0.95, "Weight", transform=axes.get_yaxis_transform(), va="center", ha="right", fontsize=9,
                  fontweight="bold")
    axes.axvline(0.0, color="0.5", linewidth=0.8, zorder=0)
    axes.set_ylim(-len(lines) + 0.25, 1.4)
    axes.set_yticks([])
    axes.set_xlabel(x, fontsize=9)
    if weighted:
        _clip_outliers(axes, drawn, lines)
    if ratio:
        _ratio_ticks(axes)
    axes.tick_params(labelsize=8)
    axes.spines[["left", "right", "top"]].set_visible(False)
    return figure


def funnel_plot(estimates: Sequence[float], errors: Sequence[float], centre: float, *, x: str = "Estimate",
                ratio: bool = False) -> Figure:
    """Studies by their estimate and standard error, and where 95 % of them would lie if nothing but chance moved
    them."""
    if not len(estimates):
        raise DataError("there is no study to draw", remedy="fit at two parties or more")
    figure = _figure(4.6, 3.8)
    axes = figure.add_axes((0.15, 0.15, 0.8, 0.8))
    deepest = 1.08 * max(errors)
    axes.fill([centre, centre - 1.96 * deepest, centre + 1.96 * deepest], [0, deepest, deepest], color="0.93", zorder=0)
    axes.plot([centre - 1.96 * deepest, centre, centre + 1.96 * deepest], [deepest, 0, deepest], color="0.4",
              linewidth=0.8, linestyle="--")
    axes.axvline(centre, color="0.4", linewidth=0.8)
    axes.plot(estimates, errors, "o", color="black", markersize=4.5)
    axes.set_ylim(deepest, 0)
    if ratio:
        _ratio_ticks(axes)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel("Standard error", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["right", "top"]].set_visible(False)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write it as PNG, SVG or PDF, by the name of the file."""
    figure.savefig(path, dpi=200, facecolor="white")


def _draw(axes: Axes, line: ForestLine, y: float, size: float) -> None:
    if not line.summary:
        axes.plot([line.low, line.high], [y, y], color="black", linewidth=1)
        axes.plot([line.estimate], [y], "s", color="black", markersize=size)
        return
    axes.fill([line.low, line.estimate, line.high, line.estimate], [y, y + 0.3, y, y - 0.3], color="black")
    if line.prediction is not None and all(map(isfinite, line.prediction)):
        axes.plot(line.prediction, [y, y], color="black", linewidth=1.6)


def _clip_outliers(axes: Axes, lines: Sequence[ForestLine], places: Sequence[ForestLine]) -> None:
    """Let no single wide interval squeeze the others: beyond four typical widths it ends in an arrow."""
    estimates = np.array([line.estimate for line in lines] + [0.0])
    typical = float(np.median([line.high - line.low for line in lines]))
    low, high = (float(edge) for edge in axes.dataLim.intervalx)
    low, high = max(low, float(estimates.min()) - 2 * typical), min(high, float(estimates.max()) + 2 * typical)
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    axes.set_xlim(low, high)
    for line in lines:
        y = -places.index(line) - (0.25 if line.summary else 0.0)
        for end, marker, clipped in ((low, "<", line.low < low), (high, ">", line.high > high)):
            if clipped:
                axes.plot([end], [y], marker, color="black", markersize=5, clip_on=False)


def _ratio_ticks(axes: Axes) -> None:
    """At 1, 2 and 5 where the scale is wide, else at round numbers."""
    from matplotlib.ticker import MaxNLocator

    low, high = axes.get_xlim()
    steps = [digit * 10.0 ** power for power in range(-4, 5) for digit in ((1, 2, 5) if high - low < 7 else (1,))]
    if high - low < _WIDE_RATIOS:
        steps = [round(float(step), 9) for step in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(exp(low), exp(high))]
    places = [step for step in steps if step > 0 and low <= np.log(step) <= high]
    axes.set_xticks([float(np.log(step)) for step in places], [f"{step:g}" for step in places])


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "forest plots") from cause
    return Figure(figsize=(width, height))
