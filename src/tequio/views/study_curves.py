"""Cells of a study against each other: one point a group of cells, one line a pattern, one panel a quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tequio.experiments.store import explained
from tequio.experiments.studies.description import fits
from tequio.views.plots import dress, figure_type, line_style

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tequio.experiments.studies.answers import Row
    from tequio.experiments.studies.description import Curves

    Points = dict[str, dict[str, Row]]
    """Finished cells by what their names say before and after the colon."""


def save_curves(rows: Sequence[Row], curves: Curves, path: Path, *, title: str = "") -> bool:
    """Draw what is finished, with the spread over seeds as bars; whether there was anything to draw."""
    points = _points(rows)
    if not any(curves.x in cells for cells in points.values()):
        return False
    figure = figure_type()(figsize=(4.6 * len(curves.y), 4.2), layout="constrained", dpi=130)
    panels = figure.subplots(1, len(curves.y), squeeze=False)[0]
    for axes, quantity in zip(panels, curves.y, strict=True):
        for position, (name, pattern) in enumerate(curves.lines.items()):
            line = sorted((cells for group, cells in points.items() if fits(group, pattern) and
                           {curves.x, quantity} <= cells.keys()), key=lambda cells: cells[curves.x].ours or 0.0)
            colour, style = line_style(position)
            axes.errorbar([cells[curves.x].ours for cells in line], [cells[quantity].ours for cells in line],
                          yerr=[cells[quantity].sd or 0.0 for cells in line], fmt=style, marker="o", color=colour,
                          markersize=4, linewidth=1.4, capsize=2, label=name)
        axes.set_xscale("log", base=2)
        dress(axes, quantity, curves.x)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return True


def _points(rows: Sequence[Row]) -> Points:
    points: Points = {}
    for row in rows:
        group, _, quantity = row.cell.rpartition(": ")
        if row.ours is not None:
            points.setdefault(group, {})[quantity] = row
    return points
