"""`tequio report`: one HTML file about one run or many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, folders of runs (a sweep), "
                                              "patterns, or 'last'.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the report goes.")] = Path("report.html"),
    metric: Annotated[str, typer.Option(help="What to compare and draw (default: the main metric of the runs).",
                                        show_default=False)] = "",
    title: Annotated[str, typer.Option(help="The heading (default: the names of the runs).", show_default=False)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a self-contained HTML report: settings, data, learning, cost, parties, trees, tables with tests."""
    from tequio.experiments.running.store import find_folder
    from tequio.views.report import save_report

    places = [str(find_folder(run)) if run == "last" else run for run in runs]
    save_report(places, out, metric=metric, title=title)
    typer.echo(json.dumps({"report": str(out)}) if as_json else f"report    {out}")
