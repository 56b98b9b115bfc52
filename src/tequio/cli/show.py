"""`tequio show`: one component, with its parameters, its paper and an example."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tequio.experiments.running.store import Plain


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

    console = Console(highlight=False)
    console.print(f"\n[bold cyan]{one['name']}[/]  [dim]{one['kind']}[/]\n{one['summary']}")
    if one["about"]:
        console.print(f"\n{one['about']}", markup=False)
    if one["paper"]:
        console.print(f"\n[bold]paper[/]  {one['paper']}")
    if one["parameters"]:
        console.print("\n[bold]parameters[/]")
        console.print(_parameter_table(one["parameters"]))
    console.print("\n[bold]in a config[/]")
    console.print(Padding(Syntax(one["example"].rstrip(), "toml", background_color="default"), (0, 2)))


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
