"""`tequio verify`: whether a run's transcript is whole, and its sums are what the parties sent."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def verify(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check the signed transcript of a run with the stage 'verified', line by line; exit code 8 if it is not sound."""
    from tequio.errors import RunError
    from tequio.experiments.running.store import find_folder
    from tequio.experiments.running.transcripts import verify_run

    folder = find_folder(run)
    verdict = verify_run(folder)
    if as_json:
        typer.echo(json.dumps({"run": folder.name, "sound": not verdict.findings, **asdict(verdict)}))
        raise typer.Exit(RunError.exit_code if verdict.findings else 0)
    if verdict.findings:
        first = verdict.findings[0]
        raise RunError(f"the transcript of '{folder.name}' is not sound: line {first.line + 1}: {first.what}",
                       remedy="do not rely on this run; ask the parties what they have seen")
    typer.echo(f"{verdict.lines} lines, all signed and in order")
    typer.echo(f"{verdict.sums} sums proved to be what the parties sent")
    if verdict.counted:
        typer.echo(f"{verdict.counted} sums of which only the parties that were counted can be checked")
    typer.echo(f"{verdict.receipts} receipts of parties that checked a sum themselves")
