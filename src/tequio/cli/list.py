"""`tequio list`: every component that a config can name, plugins included."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tequio.registry import Entry


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


def _plain(entry: Entry) -> dict[str, Any]:
    return {"kind": entry.kind, "name": entry.name, "summary": entry.summary, "paper": entry.paper}


def _show(kind: str, meaning: str, found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    if not found:
        return
    console = Console()
    console.print(f"\n[bold]{kind}[/]  [dim]{meaning}[/]", highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True, min_width=22)
    table.add_column(ratio=1)
    table.add_column(style="dim", no_wrap=True, justify="right")
    for entry in found:
        table.add_row(f"  {entry.name}", entry.summary, entry.paper)
    console.print(table)
