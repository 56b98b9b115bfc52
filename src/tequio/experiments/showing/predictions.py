"""Predictions for a terminal: a table that fits its width, and below it why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.predicting import WHY
from tequio.experiments.running.table import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table as RichTable

    from tequio.models.model import Model


def as_table(model: Model, lines: Sequence[dict[str, Any]], rows: int, width: int, *, proba: bool) -> RichTable:
    """The first rows; columns of probabilities that do not fit are left out, and the title says so."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if model.target.kind == "multilabel" and not proba:
        lines = [_named_labels(line) for line in lines]
    names = [name for name in (lines[0] if lines else {}) if name != WHY]
    title = f"{rows:,} row{'' if rows == 1 else 's'}"

    def table(some: Sequence[str]) -> RichTable:
        left_out = len(names) - len(some)
        more = f" ({left_out} column{'' if left_out == 1 else 's'} too many for this width)" if left_out else ""
        drawn = Table(box=box.SIMPLE_HEAD, title=title + more, title_justify="left", title_style="bold",
                      header_style="bold", pad_edge=False)
        for name in some:
            numbers = all(isinstance(line[name], int | float) for line in lines)
            drawn.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for line in lines:
            drawn.add_row(*["" if line[name] is None else str(line[name]) if isinstance(line[name], bool) or name in
                            ("row", "id") else shown(line[name]) for name in some])
        return drawn

    fitting = list(names)
    while len(fitting) > 3 and Console(width=10 * width).measure(table(fitting)).maximum > width:
        fitting.remove([name for name in fitting if name != "truth"][-1])
    return table(fitting)


def as_reasons(lines: Sequence[dict[str, Any]]) -> RichTable:
    """Each row's number or id, and why it got its answer."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table.grid(padding=(0, 2))
    drawn.title, drawn.title_justify, drawn.title_style = "why", "left", "bold"
    for line in lines:
        drawn.add_row(Text(str(line[next(iter(line))])), Text(line[WHY] or "no answer"))
    return drawn


def _named_labels(line: dict[str, Any]) -> dict[str, Any]:
    """A row of 0 and 1 as the names of its labels."""
    key = next(iter(line))
    labels = [name for name, value in line.items() if name not in (key, WHY) and value == 1]
    skipped = any(value == -1 for name, value in line.items() if name not in (key, WHY))
    return {key: line[key], "labels": None if skipped else ", ".join(labels) or "none"}
