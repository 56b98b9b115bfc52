"""`tequio forget`: a run as it would be if a party, or some of its rows, had never been there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def forget(
    run: Annotated[str, typer.Argument(help="A finished run: its folder, its name under runs/, or 'last'.")],
    party: Annotated[str, typer.Option(metavar="NAME", help="The party to forget, or whose rows to forget.")],
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Forget these rows only: a file with one id per "
                                              "line.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the folder of the new run goes (default: where "
                                             "the config says).")] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the record.", show_default=False)] = "",
    models: Annotated[Path, typer.Option(metavar="DIR", help="Models in use, of which those that learned from it are "
                                         "flagged.")] = Path("models"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Make a run anew without a party: its model is, bit for bit, that of a run that never had it.

    Rounds are played again from the last kept checkpoint (output.keep_every) before the party took part, where nothing
    else could have come from it by then, and from the start otherwise. Works on simulated parties.
    """
    from tequio.cli.run import printing, shown_progress
    from tequio.experiments.forgetting import forget as make_anew
    from tequio.experiments.running.store import FORGOTTEN

    with printing(as_json) as write, shown_progress(quiet) as listen:
        result = make_anew(run, party=party, rows=rows or (), out=out, why=why, models=models, listen=listen)
        record = json.loads((result.folder / FORGOTTEN).read_bytes())
        if as_json:
            write(json.dumps({**record, "folder": str(result.folder)}))
            return
    rows_of = "" if record["rows"] == "all" else f"{record['rows']} rows of "
    typer.echo(f"forgotten   {rows_of}party '{party}'")
    typer.echo(f"replayed    from round {record['from_round'] + 1}: {record['because']}")
    typer.echo(f"before      {record['model_sha256_before']}")
    typer.echo(f"now         {record['model_sha256']}")
    typer.echo(f"exact       {record['exact']}")
    for version in record["flagged"]:
        typer.echo(f"flagged     {version}")
    typer.echo(f"folder      {result.folder}")
