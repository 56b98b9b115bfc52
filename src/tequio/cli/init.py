"""`tequio init`: look at a table of your own, and write a config that fits it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tequio.experiments.inspecting import Inspection


def init(
    data: Annotated[Path, typer.Argument(metavar="FILE", help="A table of your own: CSV or Parquet.")],
    target: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="The column to predict (repeat for "
                                                     "several labels).")] = None,
    party: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that says whose row it is.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the config goes; by default the table's name "
                                             "with .toml, here.")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the picture goes (.png or .svg); by "
                                                 "default beside the config.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Look at a table and write a commented config that runs, and a picture of what was found.

    It finds ids, dates, texts, constants, copies, gaps, rare classes, small parties, and columns that give the target
    or the party away. Nothing leaves this computer.
    """
    from tequio.errors import ConfigError, DataError, MissingExtra
    from tequio.experiments.inspecting import inspect, refuse_existing

    out = out or Path(f"{data.name.split('.')[0]}.toml")
    picture = picture or out.with_suffix(".png")
    for path in (out, picture):
        refuse_existing(path, force=force)
    found = inspect(data, target=target or None, party=party)
    refused: ConfigError | DataError | None = None
    written: dict[str, str] = {}
    try:
        found.config(out)
        with suppress(MissingExtra):
            found.plot(picture)
            written["picture"] = str(picture)
        written["config"] = str(found.write(out, force=force))
    except (ConfigError, DataError) as cause:
        refused = cause
    if as_json:
        typer.echo(json.dumps({**found.to_dict(), "config": None, "picture": None, **written}))
    else:
        _show(found, written)
    if refused is not None:
        raise refused


def _show(found: Inspection, written: dict[str, str]) -> None:
    from rich.console import Console

    from tequio.experiments.showing.inspection import renderables

    console = Console(highlight=False)
    for part in renderables(found.facts):
        console.print(part)
    console.print()
    if "config" not in written:
        return
    picture = written.get("picture", "not drawn; type: pip install 'tequio[report]'")
    for line in (f"config   {written['config']}", f"picture  {picture}", f"next     tequio run {written['config']}"):
        console.print(line, markup=False, soft_wrap=True)
