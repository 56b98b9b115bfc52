"""`tequio predict`: what the model of a run says of new rows."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations when the command runs
from typing import Annotated

import typer


def predict(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    data: Annotated[Path, typer.Option(metavar="FILE", help="New rows: CSV or Parquet.")],
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that identifies rows.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this id (repeat for more).")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many rows to show.")] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all predictions as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Predict rows that nobody trained on. Where parties hold different columns, the file has those of all of them."""
    from tequio.experiments.explaining.replaying import predict as predict_rows
    from tequio.experiments.running.store import write_whole

    table = predict_rows(run, data, id=id, ids=only or ())
    if out is not None:
        write_whole(out, table.to_csv().encode())
    if as_json:
        typer.echo(json.dumps({"predictions": table.rows}))
        return
    from rich.console import Console

    from tequio.views.privacy import plain_table

    console = Console(highlight=False)
    console.print(plain_table(f"{len(table)} rows", table, table.columns, table.rows[:top]))
    if out is not None:
        console.print(f"written   {out}", markup=False, soft_wrap=True)
