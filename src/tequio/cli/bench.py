"""`tequio bench`: this engine against a plain loop, and against peers where a checkout has their environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tequio.experiments.running.store import Plain


def bench(
    case: Annotated[list[str] | None, typer.Option(help="Only this case (may be given several times).")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns each contestant takes; the best one counts.")] = 7,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of our engine.")] = 2,
    peers: Annotated[bool, typer.Option(help="Also run the peers installed under benchmarks/peers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure this engine against a plain PyTorch loop (and peers), as ratios within one run."""
    from tequio.bench.cases import CASES, run_case

    measured = []
    for name in case or list(CASES):
        if not as_json:
            typer.echo(f"measuring {name} ...", err=True)
        measured.append(run_case(name, repeats=repeats, workers=workers, checkout=Path.cwd() if peers else None))
    typer.echo(json.dumps({"cases": measured})) if as_json else _show(measured)


def _show(measured: list[Plain]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("case", "seconds", "plain loop", "measured", "mark", "met")
    for case in measured:
        plain = case["plain_loop_seconds"]
        taken = f"{case['seconds']:.4f}" if case["seconds"] else ""
        table.add_row(case["name"], taken, f"{plain:.4f}" if plain else "",
                      f"{case['value']:.3g} {case['unit']}", f"<= {case['mark']:g}", "yes" if case["met"] else "no")
        for peer, report in case["peers"].items():
            best = report.get("best")
            ratio = f"{best / case['seconds']:.1f} x ours" if best else report.get("error", "failed")
            table.add_row(f"  {peer}", f"{best:.4f}" if best else "", "", ratio, "", "")
    Console().print(table)
