"""Survival curves as journals print them: steps with confidence bands, and the numbers at risk below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tequio.experiments.running.table import Cell

# Distinguishable in print and without colour vision (Okabe and Ito), and by their dashes.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_TICKS = 6


def survival_plot(rows: Sequence[Mapping[str, Cell]], *, x: str = "Time", y: str = "Survival") -> Figure:
    """The curves of a table of survival, one per group, which has the columns group, time, at risk, survival, low and
    high. A number at risk is that of rows which had not left before a tick."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "plots") from None
    groups = list(dict.fromkeys(str(row["group"]) for row in rows))
    if not groups:
        raise DataError("there is no curve to draw")
    height = 3.6 + 0.22 * (len(groups) + 1)
    figure = Figure(figsize=(6.4, height))
    axes = figure.add_axes((0.18, 1 - 3.0 / height, 0.78, 2.8 / height))
    last = max(float(row["time"]) for row in rows)  # type: ignore[arg-type]
    ticks = [tick for tick in axes.xaxis.get_major_locator().tick_values(0, last) if 0 <= tick <= last * 1.0001]
    ticks = ticks[::max(1, -(-len(ticks) // (_TICKS + 1)))]
    for place, group in enumerate(groups):
        own = [row for row in rows if str(row["group"]) == group]
        _curve(axes, own, group, _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)])
        line = -(0.86 + 0.22 * place) / 2.8
        axes.text(-0.045, line, group if len(groups) > 1 else "", transform=axes.transAxes, ha="right", va="center",
                  fontsize=8, color=_COLOURS[place % len(_COLOURS)])
        times = np.array([float(row["time"]) for row in own])  # type: ignore[arg-type]
        for tick in ticks:
            at = int(np.searchsorted(times, tick))
            number = own[at]["at risk"] if at < len(own) else 0
            axes.text(tick, line, f"{number}", transform=axes.get_xaxis_transform(), ha="center", va="center",
                      fontsize=8)
    axes.text(-0.045, -0.64 / 2.8, "At risk", transform=axes.transAxes, ha="right", va="center", fontsize=8,
              fontweight="bold")
    axes.set(xlim=(0, last * 1.02), ylim=(0, 1.02), xticks=ticks, xlabel=x, ylabel=y)
    axes.spines[["right", "top"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if len(groups) > 1:
        axes.legend(frameon=False, fontsize=8, loc="best")
    return figure


def _curve(axes: Axes, rows: Sequence[Mapping[str, Cell]], group: str, colour: str, dashes: object) -> None:
    table = np.array([[float(row[name]) for name in ("time", "survival", "low", "high")]  # type: ignore[arg-type]
                      for row in rows])
    table = np.vstack([[0.0, 1.0, 1.0, 1.0], table])
    axes.step(table[:, 0], table[:, 1], where="post", color=colour, linestyle=dashes, linewidth=1.4, label=group)
    axes.fill_between(table[:, 0], table[:, 2], table[:, 3], step="post", color=colour, alpha=0.13, linewidth=0)
