"""`tequio participation`: who took part in a run, how evenly, and what each party added."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def participation(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    top: Annotated[int, typer.Option(min=1, help="How many parties to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show who was chosen how often, whom that favoured, and the parties that added most.

    Contributions are there where the config has a [contribution] table, or a selector that scores updates.
    """
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import PARTICIPATION, find_folder

    result = Result(find_folder(run))
    metrics = {name: value for name, value in result.summary["metrics"].items()
               if name.startswith(("selection.", "groups."))}
    if as_json:
        typer.echo(json.dumps({"run": result.folder.name, "metrics": metrics, "parties": result.participation.rows}))
        return
    from rich.console import Console

    from tequio.views.parties import renderables

    console = Console(highlight=False)
    for part in renderables(result, metrics, top):
        console.print(part)
    console.print(f"all parties   {result.folder / PARTICIPATION}", markup=False, soft_wrap=True)
