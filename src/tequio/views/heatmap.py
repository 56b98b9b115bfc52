"""Shaded tables, for the terminal and as figures: who holds what, and sweeps over two keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.skew import label_counts
from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.showing.results import sweep_headline
from tequio.experiments.sweep import short_key
from tequio.learners.metrics import METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from rich.table import Table
    from rich.table import Table as RichTable
    from rich.text import Text

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition
    from tequio.experiments.sweep import SweepResult


TABLE_PARTIES = 40
FIGURE_PARTIES = 600
FORMATS = (".png", ".svg")

# Steps of the colour map 'viridis', which people with any kind of colour vision can read. Many is light in a terminal,
# which is dark as a rule, and dark in a figure, which is white.
_SHADES = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
_FIRST_LIGHT_SHADE = 4
_FIGURE_COLOURS = "viridis_r"
_GREY = "#8a8a8a"
_EMPTY = "#f3f3f3"
_BARS = "#a8adb5"


@dataclass(frozen=True, eq=False)
class Heatmap:
    """Counts of rows, (parties, classes), with names; of `of_parties` parties only those here are shown.

    `sizes` are the parties' rows, which multi-label counts add up to more than.
    """

    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    parties: tuple[str, ...]
    classes: tuple[str, ...]
    of_parties: int
    target: str
    title: str


def heatmap_of(dataset: Dataset, partition: Partition, *, most: int = FIGURE_PARTIES, title: str = "") -> Heatmap:
    """Count the classes of every party; of more than `most` parties, take that many at even distances."""
    counts, classes = label_counts(dataset, partition)
    shown = np.linspace(0, len(partition) - 1, min(most, len(partition))).round().astype(np.int64)
    target = {"classes": "class", "multilabel": "label", "none": ""}.get(dataset.schema.target.kind)
    names = tuple(partition.name(int(party)) for party in shown)
    return Heatmap(counts[shown], partition.sizes[shown], names, classes, len(partition),
                   dataset.schema.target.name if target is None else target, title or f"{dataset.name}: who holds what")


def heatmap_table(heatmap: Heatmap, *, width: int = 100) -> Table:
    """A table for the terminal: the more rows, the lighter the cell. Rare classes are summed where it is narrow."""
    from rich.table import Table
    from rich.text import Text

    counts, classes = _fitted(heatmap, width)
    title = Text(heatmap.title, style="bold", no_wrap=True, overflow="ignore")  # may be wider than the table
    table = Table(title=title, caption=_caption(heatmap), box=None, padding=(0, 0),
                  header_style="bold", title_justify="left", caption_justify="left")
    table.add_column("party ", justify="right")
    for name in classes:
        table.add_column(f" {_short(name, 10)}", justify="right", min_width=5)
    table.add_column(" rows", justify="right", style="bold")
    largest = int(counts.max(initial=0))
    for party, mine, rows in zip(heatmap.parties, counts, heatmap.sizes, strict=True):
        table.add_row(f"{_short(party, 18)} ", *[_shaded(int(count), largest) for count in mine], f" {rows:,}")
    return table


def save_heatmap(heatmap: Heatmap, path: Path) -> None:
    """Draw the figure into a PNG or SVG file."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"a figure cannot be saved as '{path.name}'",
                          remedy=f"end the name in {' or '.join(FORMATS)}")
    figure = draw_heatmap(heatmap)
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the date and random ids the same partition gives the same bytes.
    with mpl.rc_context({"svg.hashsalt": "tequio"}):
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def draw_heatmap(heatmap: Heatmap) -> Figure:
    """The counts with parties from left to right, their sizes above and the classes' totals at the right."""
    try:
        from matplotlib.colors import PowerNorm
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "drawing a heat map") from cause
    parties, classes = heatmap.counts.shape
    width, height = np.clip(2.6 + 0.5 * parties, 6.5, 15), np.clip(2.2 + 0.32 * classes, 3.6, 14)
    figure = Figure(figsize=(float(width), float(height)), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, max(height - 2.2, 1.6)), width_ratios=(width - 2.4, 1.1))
    cells = figure.add_subplot(grid[1, 0])
    held = np.ma.masked_equal(heatmap.counts.T, 0)
    # The square root keeps small parties visible beside large ones.
    norm = PowerNorm(0.5, vmin=0, vmax=max(int(heatmap.counts.max(initial=0)), 1))
    image = cells.imshow(held, aspect="auto", cmap=_FIGURE_COLOURS, norm=norm, interpolation="nearest")
    _label_cells(cells, heatmap)
    _write_counts(cells, heatmap, norm)
    _draw_totals(figure.add_subplot(grid[0, 0], sharex=cells), figure.add_subplot(grid[1, 1], sharey=cells), heatmap)
    _draw_scale(figure, figure.add_subplot(grid[0, 1]), image, f"rows per {heatmap.target or 'party'}")
    figure.suptitle(heatmap.title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _fitted(heatmap: Heatmap, width: int) -> tuple[NDArray[np.int64], list[str]]:
    needed = np.array([max(len(_short(name, 10)), len(f"{count:,}"), 4) + 1
                       for name, count in zip(heatmap.classes, heatmap.counts.max(axis=0, initial=0), strict=True)])
    room = width - max(len(_short(name, 18)) for name in ("party", *heatmap.parties)) - 10
    if needed.sum() <= room:
        return heatmap.counts, list(heatmap.classes)
    commonest = np.argsort(-heatmap.counts.sum(axis=0), kind="stable")
    kept = np.sort(commonest[np.cumsum(needed[commonest]) <= room - 9])
    others = np.delete(heatmap.counts, kept, axis=1).sum(axis=1, keepdims=True)
    names = [heatmap.classes[column] for column in kept]
    return np.hstack([heatmap.counts[:, kept], others]), [*names, f"{len(heatmap.classes) - len(kept)} more"]


def _caption(heatmap: Heatmap) -> str:
    if heatmap.of_parties == len(heatmap.parties):
        return ""
    return f"{len(heatmap.parties)} of {heatmap.of_parties:,} parties, at even distances"


def _shaded(count: int, largest: int) -> Text:
    from rich.text import Text

    if not count:
        return Text("·", style=_GREY)
    return Text(f" {count:,}", style=shade((count / largest) ** 0.5))


def shade(share: float) -> str:
    """A style for the terminal, from dark at 0 to light at 1, with letters that can be read on it."""
    step = min(int(share * len(_SHADES)), len(_SHADES) - 1)
    return f"{'#000000' if step >= _FIRST_LIGHT_SHADE else '#ffffff'} on {_SHADES[step]}"


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[:most - 1] + "…"


def _ticks(names: tuple[str, ...], most: int) -> tuple[list[int], list[str]]:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(names)) if len(names) <= step * most)
    places = list(range(0, len(names), step))
    return places, [_short(names[place], 16) for place in places]


def _label_cells(cells: Axes, heatmap: Heatmap) -> None:
    parties, classes = heatmap.counts.shape
    places, names = _ticks(heatmap.parties, 40)
    long = max(len(name) for name in names) > 3
    cells.set_xticks(places, names, rotation=90 if long and parties > 6 else 0, fontsize=8)
    cells.set_yticks(*_ticks(heatmap.classes, 50), fontsize=8)
    cells.set_xlabel(_caption(heatmap) or ("one party" if parties == 1 else f"{parties} parties"), fontsize=9)
    cells.set_ylabel(heatmap.target, fontsize=9)
    cells.set_facecolor(_EMPTY)
    cells.tick_params(length=0)
    cells.spines[:].set_visible(False)
    if parties <= 60 and classes <= 60:
        cells.set_xticks(np.arange(parties + 1) - 0.5, minor=True)
        cells.set_yticks(np.arange(classes + 1) - 0.5, minor=True)
        cells.grid(which="minor", color="white", linewidth=1)
        cells.tick_params(which="minor", length=0)


def _write_counts(cells: Axes, heatmap: Heatmap, norm: Any) -> None:
    parties, classes = heatmap.counts.shape
    if parties > 20 or classes > 30:
        return
    for (party, column), count in np.ndenumerate(heatmap.counts):
        if count:
            cells.text(party, column, f"{count:,}", ha="center", va="center", fontsize=7,
                       color="white" if norm(count) > 0.45 else "black")


def _draw_totals(above: Axes, right: Axes, heatmap: Heatmap) -> None:
    parties, classes = heatmap.counts.shape
    above.bar(np.arange(parties), heatmap.sizes, width=0.86 if parties <= 60 else 1.0, color=_BARS)
    right.barh(np.arange(classes), heatmap.counts.sum(axis=0), height=0.86, color=_BARS)
    above.set_ylabel("rows", fontsize=8)
    right.set_xlabel("rows", fontsize=8)
    above.tick_params(which="both", labelbottom=False, bottom=False, labelsize=7)
    right.tick_params(which="both", labelleft=False, left=False, labelsize=7)
    above.locator_params(axis="y", nbins=3)
    right.locator_params(axis="x", nbins=2)
    above.yaxis.set_major_formatter("{x:,.0f}")
    right.xaxis.set_major_formatter("{x:,.0f}")
    for axes in (above, right):
        axes.spines[["top", "right"]].set_visible(False)


def _draw_scale(figure: Figure, corner: Axes, image: Any, label: str) -> None:
    corner.axis("off")
    place = corner.inset_axes((0.0, 0.5, 1.0, 0.14))
    largest = image.norm.vmax
    bar = figure.colorbar(image, cax=place, orientation="horizontal", ticks=[0, largest], format="{x:,.0f}")
    bar.outline.set_visible(False)
    place.tick_params(labelsize=7, length=0)
    place.set_title(label, fontsize=8, loc="left")


FIGURE = "grid.png"


@dataclass(frozen=True)
class Grid:
    """Means over seeds of one metric: rows are values of the first key, columns those of the second."""

    title: str
    keys: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: dict[tuple[str, str], float]

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the largest value."""
        return min(self.values.values()), max(self.values.values())


_WIDEST = 60  # characters of all columns' names
_FEWEST = 3  # values of each key; a smaller sweep is read from its table, which has the spread over seeds too


def grid_of(swept: SweepResult) -> Grid | None:
    """The grid of a sweep over exactly two keys with several values each; nothing where a table says it as well."""
    keys = swept.table.columns[:swept.table.columns.index("seeds")]
    metric = sweep_headline(swept)
    column = next((name for name in (f"test.{metric}", f"parties.{metric}.mean") if name in swept.table.columns), "")
    if len(keys) != 2 or not column:
        return None
    values = {(_word(row[keys[0]]), _word(row[keys[1]])): float(row[column] or 0.0) for row in swept.table}
    rows, columns = (tuple(dict.fromkeys(pair[place] for pair in values)) for place in (0, 1))
    if min(len(rows), len(columns)) < _FEWEST:
        return None
    seeds = max(int(count or 0) for count in swept.table["seeds"])
    title = f"{column} ({METRICS[metric].meaning}), mean over {seeds} seed{'s' * (seeds > 1)}"
    return Grid(title, (short_key(keys[0]), short_key(keys[1])), rows, columns, values)


def grid_table(grid: Grid) -> RichTable:
    """For the terminal: the better, the lighter. Columns whose names are too long for it are numbered."""
    from rich.table import Table
    from rich.text import Text

    numbered = sum(len(name) + 1 for name in grid.columns) > _WIDEST
    names = [str(number) for number in range(1, len(grid.columns) + 1)] if numbered else grid.columns
    listed = ", ".join(map(" ".join, zip(names, grid.columns, strict=True)))
    caption = f"{grid.keys[1]}: {listed}" if numbered else None
    table = Table(title=Text(grid.title, style="bold"), box=None, padding=(0, 0), title_justify="left",
                  header_style="bold", caption=caption, caption_justify="left")
    table.add_column(f"{grid.keys[0]} ", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f" {name} ", justify="right", no_wrap=True)
    for row in grid.rows:
        table.add_row(f"{row} ", *[_cell(grid, row, column) for column in grid.columns])
    return table


def save_grid(grid: Grid, path: Path) -> None:
    """Draw the figure into a file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise MissingExtra("matplotlib", "report", "drawing a grid") from cause
    values = [[grid.values.get((row, column), float("nan")) for column in grid.columns] for row in grid.rows]
    figure = Figure(figsize=(2.2 + 0.75 * len(grid.columns), 1.8 + 0.45 * len(grid.rows)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(grid.columns)), grid.columns, rotation=35, ha="right")
    axes.set_yticks(range(len(grid.rows)), grid.rows)
    axes.set_xlabel(grid.keys[1])
    axes.set_ylabel(grid.keys[0])
    low, high = grid.reach
    for place, line in enumerate(values):
        for across, value in enumerate(line):
            colour = "black" if value > (low + high) / 2 else "white"
            axes.text(across, place, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=axes)
    figure.suptitle(grid.title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    figure.savefig(path, dpi=160)


def _cell(grid: Grid, row: str, column: str) -> Any:
    from rich.text import Text

    if (row, column) not in grid.values:
        return Text("")
    value, (low, high) = grid.values[row, column], grid.reach
    return Text(f" {value:.2f} ", style=shade((value - low) / (high - low) if high > low else 1.0))


def _word(value: Any) -> str:
    return str(value) or "none"
