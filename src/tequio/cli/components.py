"""`tequio list` and `tequio show`: the components that a config can name, plugins included, and one of them."""

from __future__ import annotations

import json
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tequio.experiments.running.store import Plain
    from tequio.registry import Entry

_WIDE, _NAMES = 110, 19


def every(
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


def show(
    name: Annotated[str, typer.Argument(help="A component's name; see: tequio list")],
    kind: Annotated[str | None, typer.Option(help="Which kind, where several have one of that name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show a component: parameters with type, default and meaning, the paper, an example."""
    from tequio import registry
    from tequio.errors import ConfigError, nearest
    from tequio.views.components import describe

    known = registry.entries(kind)
    found = [describe(entry) for entry in known if entry.name == name]
    if not found:
        raise ConfigError(f"there is no component called '{name}'", remedy=nearest(name, {one.name for one in known}))
    if as_json:
        typer.echo(json.dumps({"components": found}))
        return
    for one in found:
        _print(one)


def _print(one: Plain) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.syntax import Syntax

    from tequio.views.components import ON_COMMAND_LINE

    console = Console(highlight=False)
    console.print(f"\n[bold cyan]{one['name']}[/]  [dim]{one['kind']}[/]\n{one['summary']}")
    if one["about"]:
        console.print(f"\n{one['about']}", markup=False)
    if one["paper"]:
        console.print(f"\n[bold]paper[/]  {one['paper']}")
    if one["parameters"]:
        console.print("\n[bold]parameters[/]")
        console.print(_parameter_table(one["parameters"]))
    place, language = ("on the command line", "bash") if one["kind"] == ON_COMMAND_LINE else ("in a config", "toml")
    console.print(f"\n[bold]{place}[/]")
    console.print(Padding(Syntax(one["example"].rstrip(), language, background_color="default"), (0, 2)))


def _parameter_table(parameters: list[Plain]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 3, 0, 2), pad_edge=False, header_style="dim")
    for title in ("  name", "type", "default", "meaning"):
        table.add_column(title)
    for one in parameters:
        default = Text("needed", style="yellow") if one["required"] else Text(json.dumps(one["default"]))
        table.add_row(Text(f"  {one['name']}", style="cyan"), Text(one["type"]), default, Text(one["meaning"]))
    return table
