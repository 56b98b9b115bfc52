"""`tequio export`: a trained model in a format that others read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run (its folder, its name under runs/, or 'last'), "
                                         "or the folder of a model.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="onnx, rules (JSON), torch (a folder of weights), "
                                    "safetensors, or sklearn (in Python only).")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write; by default beside you, named after "
                                             "the run.")] = None,
    party: Annotated[str, typer.Option(metavar="NAME", help="This party's own model, or 'coordinator' for the one that "
                                       "all share.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a trained model as ONNX, rules, torch weights or safetensors.

    ONNX takes raw rows: the preparation is in the file. What a model cannot be exported to says why.
    """
    from tequio.experiments.api import load
    from tequio.models.exporting import SUFFIXES

    trained = load(model, party=party)
    named = "-".join(part for part in (str(trained.facts.get("run") or "model"), party) if part)
    place = out or Path("".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in named)
                        + SUFFIXES.get(to, ""))
    written = trained.export(to, place)  # type: ignore[arg-type]
    files = sorted(written.iterdir()) if written.is_dir() else [written]
    if as_json:
        typer.echo(json.dumps({"format": to, "files": [str(file) for file in files]}))
        return
    for file in files:
        typer.echo(f"written   {file} ({file.stat().st_size:,} bytes)")
