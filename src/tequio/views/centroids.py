"""Centroids of images as pictures: one line a clustering, one column a centroid."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.store import explained

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray


def save_centroids(clusterings: Mapping[str, NDArray[Any]], path: Path, *, title: str = "") -> None:
    """Draw clusterings under each other, centroid k of one below centroid k of the other."""
    figure = draw_centroids(clusterings, title=title)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)


def draw_centroids(clusterings: Mapping[str, NDArray[Any]], *, title: str = "") -> Figure:
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


def _as_images(centroids: NDArray[Any]) -> NDArray[Any]:
    side = isqrt(centroids.shape[1])
    if side * side != centroids.shape[1]:
        raise ConfigError(f"centroids of {centroids.shape[1]} values are no square images",
                          remedy="draw centroids of grey square images only")
    return np.asarray(centroids).reshape(-1, side, side)
