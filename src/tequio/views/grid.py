"""A sweep over two keys as a grid: one shaded cell a combination, for the terminal and as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tequio.errors import MissingExtra
from tequio.experiments.sweep import short_key
from tequio.learners.metrics import METRICS
from tequio.views.heatmap import shade
from tequio.views.tables import headline_metric

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table as RichTable

    from tequio.experiments.sweep import SweepResult

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
    metric = headline_metric(swept.results[0])
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
