"""`tequio search`: the best values of some keys, chosen by validation rows."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations when the command runs
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.cli.run import FreshLedger  # noqa: TC001 - typer reads the annotations when the command runs

if TYPE_CHECKING:
    from tequio.experiments.searching import SearchResult

_SHOWN = 15


def search(
    file: Annotated[Path, typer.Argument(help="A config with a [search] table.")],
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as "
                        "--set search.trials=50 (repeat for more).")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes (0: one a core).")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where run folders go (default: runs).")] = None,
    fresh_ledger: FreshLedger = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
) -> None:
    """Try many settings and write the config of the best one, judged by validation rows only.

    Stop it whenever you like: the same command goes on, and what is finished is not run again.
    """
    from tequio.cli.run import printing, shortcuts, shown_progress
    from tequio.experiments.config.complete import read_given
    from tequio.experiments.searching import run_search

    overrides = [*(settings or []), *shortcuts(workers=workers, out=out)]
    with printing(as_json) as write, shown_progress(quiet) as listen:
        found = run_search(read_given(file, overrides), source=file.name, listen=listen, fresh_ledger=fresh_ledger)
        if as_json:
            write(json.dumps(found.to_dict()))
    if not as_json and not quiet:
        _show(found)


def _show(found: SearchResult) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tequio.experiments.running.table import shown
    from tequio.experiments.showing.results import plus_minus
    from tequio.experiments.sweep import short_key

    console, metric = Console(), found.metric
    keys = [column for column in found.table.columns if column not in ("seeds", metric, f"{metric} sd")]
    table = Table(box=box.SIMPLE_HEAD, title=f"{found.folder.name}: best of {len(found.trials)} trials",
                  title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    for column in [*map(short_key, keys), "seeds", metric]:
        table.add_column(column, justify="right")
    for place, row in enumerate(found.table.rows[:_SHOWN]):
        table.add_row(*(shown(row.get(key)) for key in [*keys, "seeds"]),
                      plus_minus(row.get(metric), row.get(f"{metric} sd")) or "diverged",
                      style="bold cyan" if not place else "")
    console.print()
    console.print(table)
    if found.privacy:
        console.print(f"privacy   {found.privacy['words']}", highlight=False)
    console.print(f"config    {found.best_config}", highlight=False, soft_wrap=True)
    console.print(f"folder    {found.folder}", highlight=False, soft_wrap=True)
