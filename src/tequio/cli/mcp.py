"""`tequio mcp`: tools for a program that speaks for somebody, on a leash."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def mcp(
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="The folder of the tables; runs go into its "
                                         "folder runs.")] = Path(),
) -> None:
    """Serve tools over stdin and stdout to a program that speaks the Model Context Protocol.

    It may list, validate, run in simulation, compare, explain errors, and read dossiers. No call returns rows, loads
    code, reaches real parties or changes a policy, and every call is in runs/agents.jsonl.
    """
    from tequio.errors import ConfigError
    from tequio.views.json_rpc import serve
    from tequio.views.tools import Tools

    if not folder.is_dir():
        raise ConfigError(f"there is no folder '{folder}'", remedy="give one that holds tables: --folder DIR")
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    with os.fdopen(kept, "wb") as out:
        serve(Tools(folder.resolve()), sys.stdin.buffer, out)
