"""A picture of what gradient inversion makes of rows: the rows, and below them each run's reconstructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.probing.target import probed
from tequio.experiments.probing.updates import inverted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tequio.experiments.results import Result

_MOST = 8


def draw_reconstructions(results: Sequence[Result], path: Path) -> None:
    """Write the picture as the coordinator of each run would get it; the runs must hold the same rows."""
    runs = [probed(result) for result in results]
    if len(runs[0].own.schema.shape) < 2:
        raise ConfigError(f"rows of '{results[0].config.data.name}' are no images", remedy="leave --picture out")
    found = [inverted(run, "coordinator", _MOST) for run in runs]
    lines = {"original": [one.truth for one in found[0]]}
    for result, rows in zip(results, found, strict=True):
        lines[result.config.name] = [one.guess for one in rows]
    _draw(lines, runs[0].bounds, path)


def _draw(lines: dict[str, list[Any]], bounds: tuple[float, float], path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "pictures") from cause
    columns = max(map(len, lines.values()))
    figure = Figure(figsize=(1.2 + 0.7 * columns, 0.75 * len(lines)), dpi=100)
    axes = figure.subplots(len(lines), columns, squeeze=False)
    for line, (name, images) in zip(axes, lines.items(), strict=True):
        for place in line:
            place.set_axis_off()
        for place, image in zip(line, images, strict=False):
            grey = image.mean(0) if image.ndim == 3 else image
            place.imshow(grey, cmap="gray_r", vmin=bounds[0], vmax=bounds[1])
        line[0].text(-0.3, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=9)
    figure.savefig(path, bbox_inches="tight")
