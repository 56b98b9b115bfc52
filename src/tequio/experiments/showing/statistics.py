"""Tables of a statistical result, as a run's model holds them under `tables`: for the terminal, and as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.running.table import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table as RichTable

    from tequio.experiments.running.results import Result

TABLES, NOTES = "tables", "notes"
_SMALL_P = 0.001


def statistics_of(result: Result) -> dict[str, list[dict[str, Any]]]:
    """The tables by title, in order; none where the model is no statistical result."""
    model = result.model if str(result.summary["model"]).endswith(".json") else {}
    return dict(model[TABLES]) if isinstance(model.get(TABLES), dict) else {}


def notes_of(result: Result) -> list[str]:
    """What has to be said beside the tables."""
    return [str(note) for note in result.model.get(NOTES, [])]


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All columns that a row has, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def cell_text(name: str, value: Any) -> str:
    """A cell as journals print it."""
    if isinstance(value, float) and (name == "p" or name.endswith(" p")):
        return "< 0.001" if value < _SMALL_P else f"{value:.3f}"
    if isinstance(value, float) and value != value:
        return "undefined"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return "" if value is None else shown(value)


def statistics_table(title: str, rows: Sequence[Mapping[str, Any]]) -> RichTable:
    """One of the tables for a terminal."""
    from rich.markup import escape

    from tequio.experiments.showing.results import titled_table

    table, names = titled_table(title), columns_of(rows)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell_text(name, row.get(name))) for name in names))
    return table
