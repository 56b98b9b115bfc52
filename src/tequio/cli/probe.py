"""`tequio probe`: how well attacks on privacy do against finished runs."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def probe(
    runs: Annotated[list[str], typer.Argument(help="Runs: their folders, their names under runs/, or 'last'.")],
    attack: Annotated[list[str] | None, typer.Option("--attack", help="gradient-inversion, membership-inference, "
                                                     "property-inference or class-reconstruction; may be given again "
                                                     "(default: all).")] = None,
    picture: Annotated[str, typer.Option(metavar="FILE", help="Draw rows and what gradient inversion makes of them in "
                                         "each run (image data) into this PNG file.", show_default=False)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Attack what runs gave away: reconstruct rows, tell members, tell a property of a party's rows, draw classes.

    Success stands beside that of guessing. Attacks on updates look on as the coordinator, and as somebody who sees
    models only. Nothing is sent anywhere: the attacks play rounds of their own in this process.
    """
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import find_folder
    from tequio.probing.probes import probe_table

    results = [Result(find_folder(run)) for run in runs]
    table = probe_table(results, attack or ())
    if picture:
        from pathlib import Path

        from tequio.views.privacy import draw_reconstructions

        draw_reconstructions(results, Path(picture))
    if as_json:
        typer.echo(json.dumps({"probes": table.rows}))
        return
    from rich.console import Console

    from tequio.views.privacy import plain_table

    for result in results:
        rows = [row for row in table if row["run"] == result.folder.name]
        columns = [column for column in table.columns if column != "run"]
        Console(highlight=False).print(plain_table(result.folder.name, table, columns, rows))
