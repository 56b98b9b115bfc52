"""`tequio list`: every component that a config can name, plugins included."""

from __future__ import annotations

import json
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tequio.experiments.running.store import Plain
    from tequio.registry import Entry

_WIDE, _NAMES = 110, 19


def list(
    kind: Annotated[str | None, typer.Argument(help="Only this kind, such as algorithm or partition.",
                                               show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what there is: datasets, partitions, learners, algorithms, ..."""
    from tequio import registry
    from tequio.errors import ConfigError, nearest

    if kind is not None and kind not in registry.KINDS:
        raise ConfigError(f"there is no kind of component called '{kind}'", remedy=nearest(kind, registry.KINDS))
    found = registry.entries(kind)
    if as_json:
        typer.echo(json.dumps({"components": [_plain(entry) for entry in found]}))
        return
    for one in registry.KINDS if kind is None else [kind]:
        _show(one, registry.KINDS[one], [entry for entry in found if entry.kind == one])
    typer.echo("\ntequio show NAME says more about one of them.")


def _plain(entry: Entry) -> Plain:
    return {"kind": entry.kind, "name": entry.name, "summary": entry.summary, "paper": entry.paper}


def _show(kind: str, meaning: str, found: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not found:
        return
    console = Console(highlight=False)
    console.print(f"\n[bold]{kind}[/]  [dim]{meaning}[/]")
    # Who wrote it first gives way to what it does where the terminal is narrow.
    wide = console.width >= _WIDE
    names = max(_NAMES, *(len(entry.name) for entry in found))
    room = console.width - names - (max(len(entry.paper) for entry in found) + 3 if wide else 0) - 5
    table = Table(box=None, show_header=False, padding=(0, 3, 0, 0), pad_edge=False)
    for justify in ("left", "left", "right"):
        table.add_column(no_wrap=True, justify=justify, min_width=None if table.columns else names + 2)
    for entry in found:
        table.add_row(Text(f"  {entry.name}", style="cyan"), Text(shorten(entry.summary, room, placeholder="…")),
                      *([Text(entry.paper, style="dim")] if wide else []))
    console.print(table)
