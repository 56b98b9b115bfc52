"""`tequio leakage`: what each role saw in a run whose parties hold different columns."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def leakage(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    attack: Annotated[bool, typer.Option("--attack", help="Also let parties without labels try to tell them from one "
                                         "more round's gradients (split networks).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show who saw what, what it tells, and how long each party worked, sent and waited.

    It is read from the record of the run's messages: names, kinds and shapes of their fields, never their values.
    """
    from tequio.errors import RunError
    from tequio.experiments.explaining.replaying import label_leakage
    from tequio.experiments.running.store import find_folder
    from tequio.experiments.running.transcripts import leakage_table, message_table

    folder = find_folder(run)
    seen, messages = leakage_table(folder), message_table(folder)
    if not len(seen):
        raise RunError(f"'{folder.name}' has no messages on record",
                       remedy="choose a run of a vertical algorithm, such as 'split-nn'")
    leaks = label_leakage(folder) if attack else {}
    if as_json:
        typer.echo(json.dumps({"run": folder.name, "seen": seen.rows, "messages": messages.rows, "attacks": leaks}))
        return
    from rich.console import Console

    from tequio.views.privacy import renderables

    console = Console(highlight=False)
    for part in renderables(seen, messages, leaks):
        console.print(part)
