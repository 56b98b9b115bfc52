"""`tequio estimates`: what a run has estimated, as journals print it and as R reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tequio.errors import ConfigError


def estimates(
    run: Annotated[str, typer.Argument(help="A run of 'glm', 'cox', 'kaplan-meier', 'effect', 'meta' or 'test': its "
                                       "folder, its name under runs/, or 'last'.")],
    save: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Write the table: .html (pastes into Word), "
                                                    ".tex, .csv or .json (repeat for more).")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture: .png, .svg or .pdf.")] = None,
    kind: Annotated[str, typer.Option(metavar="PICTURE", help="Which one: forest, funnel (of a meta-analysis) "
                                      "or survival.")] = "forest",
    term: Annotated[str, typer.Option(help="Of a meta-analysis: the term that is drawn (default: the first).")] = "",
    methods: Annotated[bool, typer.Option("--methods", help="Print a paragraph for the methods section.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what .json files hold.")] = False,
) -> None:
    """Show the estimates of a run with intervals and p-values, and save them for a paper or for R."""
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import find_folder
    from tequio.views.estimates import estimates_json, save_estimates
    from tequio.views.forest import save_figure
    from tequio.views.run_estimates import PICTURES, estimates_of, methods_of

    result = Result(find_folder(Path(run)))
    found = estimates_of(result)
    if kind not in PICTURES:
        raise ConfigError(f"there is no picture '{kind}'", remedy=f"write --kind {' or --kind '.join(PICTURES)}")
    for path in save or []:
        save_estimates(found, path)
    if picture is not None:
        save_figure(PICTURES[kind](result, term), picture)
    if as_json:
        typer.echo(estimates_json(found), nl=False)
        return
    if methods:
        typer.echo(methods_of(result))
        return
    from rich.console import Console
    from rich.table import Table

    from tequio.views.estimates import notes_of, printed

    head, rows = printed(found)
    console, table = Console(highlight=False), Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left")
    for row in rows:
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    console.print(f"{found.title}\n", markup=False)
    console.print(table)
    for note in notes_of(found):
        console.print(f"→ {note}", markup=False)
    for path in [*(save or []), *([picture] if picture is not None else [])]:
        console.print(f"written   {path}", markup=False, soft_wrap=True)
