"""`tequio fairness`: whether a model treats groups of rows alike."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations when the command runs
from typing import Annotated

import typer


def fairness(
    model: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Runs or models: folders, names under runs/, "
                                               "or 'last'; several are shown side by side. With --merge: files of "
                                               "counts.")],
    column: Annotated[str, typer.Option(metavar="COLUMN", help="The column that says which group a row is in; the "
                                        "model need not look at it.")] = "",
    data: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows with their true classes (CSV or Parquet); "
                                              "without it, the test rows of the run's parties.")] = None,
    by_party: Annotated[bool, typer.Option("--by-party", help="Show each party of the run for itself too.")] = False,
    positive: Annotated[str, typer.Option(metavar="CLASS", help="The class that is looked at (of two: the "
                                          "second).")] = "",
    cuts: Annotated[str, typer.Option(metavar="NUMBERS", help="Cut a column of numbers into groups: 18,65.")] = "",
    minimum: Annotated[int, typer.Option("--minimum-rows", min=1, help="Smaller groups go together, and are not told "
                                         "where even that is too few.")] = 10,
    counts: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the counts, which is all that has to be "
                                                "handed over.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Add up files of counts that parties wrote.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw rates and calibration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare how groups fare: demographic parity, equal opportunity, equalised odds and calibration.

    A party can count its own rows offline and hand over counts only: --data own.csv --counts counts.json.
    """
    from tequio.experiments.running.store import write_whole
    from tequio.models.fairness import gaps, positive_class, rates
    from tequio.views.fairness import counted, draw, renderables

    found = counted(model, column, data, merge=merge, by_party=by_party, cuts=cuts, minimum=minimum)
    wanted = {name: positive_class(one, positive) for name, one in found.items()}
    if counts is not None:
        write_whole(counts, next(iter(found.values())).to_json().encode())
    if plot is not None:
        draw(found, wanted, plot)
    if as_json:
        typer.echo(json.dumps({name: {"positive": wanted[name], "groups": rates(one, wanted[name]),
                                      "gaps": gaps(one, wanted[name])} for name, one in found.items()}))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for part in renderables(found, wanted):
        console.print(part)
    for path in (counts, plot):
        if path is not None:
            console.print(f"written   {path}", markup=False, soft_wrap=True)
