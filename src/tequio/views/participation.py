"""Participation for a terminal: how evenly parties were chosen, categories side by side, and who added most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.experiments.table import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from tequio.experiments.results import Result

_MEANINGS = {
    "selection.coverage": "share of the parties that were chosen at all",
    "selection.jain": "evenness of how often (Jain; 1: all alike)",
    "selection.uniform_p": "chance of counts this uneven under equal chances",
    "selection.size_bias": "rows of a chosen party over those of any party",
}


def renderables(result: Result, metrics: Mapping[str, Any], top: int) -> Iterator[Table | str]:
    """What to print, one after the other."""
    told = told_of(metrics)
    yield _table("how parties were chosen", ["", "value"], told) if told else "Everybody took part in every round."
    groups = group_rows(metrics)
    if groups:
        yield _table("categories", list(groups[0]), [[shown(value) for value in row.values()] for row in groups])
    rows = ranked(result)[:top]
    if rows:
        columns = result.participation.columns
        yield _table(f"parties, {_ranked_by(columns)} first", columns,
                     [[shown(row.get(column)) for column in columns] for row in rows])


def told_of(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How evenly parties were chosen: what each number means, and the number; nothing where everybody took part."""
    return [(meaning, shown(metrics[name])) for name, meaning in _MEANINGS.items() if name in metrics]


def group_rows(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a category: how often its parties were chosen, relative to all, and how well the model serves them."""
    bias = {name.removeprefix("selection.group_bias."): value for name, value in metrics.items()
            if name.startswith("selection.group_bias.")}
    served: dict[str, tuple[str, Any]] = {}
    for name, value in metrics.items():
        if name.startswith("groups."):
            metric, _, group = name.removeprefix("groups.").partition(".")
            served[group] = metric, value
    names = sorted((bias.keys() | served.keys()) - {"worst", "gap"})
    metric = next((metric for metric, _ in served.values()), "")
    return [{"category": name, "chosen, relative to all": bias.get(name, 1.0),
             **({metric: served[name][1] if name in served else None} if metric else {})} for name in names]


def ranked(result: Result) -> list[dict[str, Any]]:
    """The parties that took part, by what they added where that was scored, else by how often they were chosen."""
    by = _ranked_by(result.participation.columns)
    return sorted(result.participation.rows, key=lambda row: -float(row.get(by) or 0))


def _ranked_by(columns: list[str]) -> str:
    return next((column for column in columns if column.startswith("contribution.")), "chosen")


def _table(title: str, columns: list[str], rows: list[Any]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", header_style="bold",
                  pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
