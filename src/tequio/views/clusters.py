"""Clusterings: how alike federated clusters are to those of all rows in one place, and centroids as pictures."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.running.store import explained
from tequio.experiments.showing.results import dress, figure_type, line_style
from tequio.studies.comparisons import agreement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.figure import Figure

    from tequio.data.dataset import Array
    from tequio.experiments.running.results import Result
    from tequio.studies.comparisons import Agreement


def save_agreement(runs: Mapping[str, Result], references: Mapping[str, Result], path: Path, *,
                   title: str = "") -> None:
    """Draw each run's agreement with its reference."""
    figure = draw_agreement({name: agreement(run, references[name]) for name, run in runs.items()}, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_agreement(curves: Mapping[str, Agreement], *, title: str = "") -> Figure:
    """A panel for clusters matched one to one and one for pairs of rows; a line a run."""
    figure = figure_type()(figsize=(9.6, 4.2), layout="constrained", dpi=130)
    panels = figure.subplots(1, 2, sharey=True)
    for position, (run, curve) in enumerate(curves.items()):
        colour, style = line_style(position)
        for axes, values in zip(panels, (curve.matched, curve.pairs), strict=True):
            axes.plot(curve.rounds, values, style, color=colour, linewidth=1.4, label=run)
    for axes, heading in zip(panels, ("clusters matched one to one", "pairs of rows"), strict=True):
        axes.set_title(heading, loc="left", fontsize=10, fontweight="bold")
        dress(axes, "Jaccard index")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def save_centroids(clusterings: Mapping[str, Array], path: Path, *, title: str = "") -> None:
    """Draw clusterings under each other, centroid k of one below centroid k of the other."""
    figure = draw_centroids(clusterings, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)


def draw_centroids(clusterings: Mapping[str, Array], *, title: str = "") -> Figure:
    """A figure of square grey images; the darker, the more ink."""
    try:
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "drawing centroids") from cause
    images = {name: _as_images(centroids) for name, centroids in clusterings.items()}
    columns = max(len(stack) for stack in images.values())
    figure = Figure(figsize=(1.5 + 0.9 * columns, 0.6 + 1.05 * len(images)), layout="constrained")
    grid = figure.subplots(len(images), columns, squeeze=False)
    for line, (name, stack) in zip(grid, images.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        for axes, image in zip(line, stack, strict=False):
            axes.imshow(image, cmap="gray_r", vmin=0, vmax=max(float(stack.max()), 1e-9), interpolation="nearest")
        for axes in line:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_color("#d9d9d9")
    for number, axes in enumerate(grid[0]):
        axes.set_title(str(number), fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _as_images(centroids: Array) -> Array:
    side = isqrt(centroids.shape[1])
    if side * side != centroids.shape[1]:
        raise ConfigError(f"centroids of {centroids.shape[1]} values are no square images",
                          remedy="draw centroids of grey square images only")
    return np.asarray(centroids).reshape(-1, side, side)
