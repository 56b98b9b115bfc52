"""`tequio reproduce`: the tables of the sources again, published beside ours."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain
    from tequio.studies.answers import Decided, Row
    from tequio.studies.description import Figure
    from tequio.studies.plans import Plan, Store

_INTERRUPTED = 130
_SOME_FAILED = 1


def reproduce(
    study: Annotated[str | None, typer.Argument(help="A study's name; without one, the studies are listed.",
                                                show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The short form: under a minute, on other data.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds 0 to N - 1 (default: as many as the study "
                                                          "says).")] = None,
    cells: Annotated[str, typer.Option(metavar="PATTERN", help="Run only cells whose name fits, such as "
                                                               "'*CNN*'.")] = "*",
    everything: Annotated[bool, typer.Option("--all", help="All studies, one after the other.")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="Run nothing: show what is stored.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the numbers beside the study, for the page of "
                                                      "results.")] = False,
    workers: Annotated[int | None, typer.Option(min=0, help="Worker processes (default: one a core; in the quick "
                                                            "form 1).", show_default=False)] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs are kept.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Run what a study's table lacks and show: published | ours (mean and sd over seeds) | verdict.

    Every finished run is kept, so a table can be stopped at any moment and completed later or in pieces.
    """
    from tequio.studies.description import studies_folder, study_names

    folder = studies_folder()
    # A quick run is over before worker processes have started.
    options = {"quick": quick, "seeds": seeds, "out": out, "workers": workers if workers is not None else int(quick)}
    if everything:
        return _finish(*_all(study_names(folder), folder, options, cells, stored, keep, as_json))
    if study is None:
        return _list(folder, out, as_json)
    plan, store = _planned(study.rstrip("/"), folder, options)
    problems, interrupted = ({}, False) if stored else _run(plan, store, cells)
    rows = _report(plan, store, out, problems, as_json)
    if keep:
        _keep(plan, store, rows, folder)
    return _finish(bool(problems), interrupted)


def _finish(failed: bool, interrupted: bool) -> None:
    if interrupted:
        typer.echo("Stopped; what is finished is kept. Type the same command to go on.", err=True)
    if interrupted or failed:
        raise typer.Exit(_INTERRUPTED if interrupted else _SOME_FAILED)


def _planned(study: str, folder: Path, options: Plain) -> tuple[Plan, Store]:
    from tequio.studies.description import load_study
    from tequio.studies.plans import make_plan, store_of

    plan = make_plan(load_study(study, folder), **options)
    return plan, store_of(plan, options["out"])


def _all(names: list[str], folder: Path, options: Plain, cells: str, stored: bool, keep: bool,
         as_json: bool) -> tuple[bool, bool]:
    """Every study that has cells which fit; whether runs failed, and whether the user stopped it."""
    from rich.console import Console

    from tequio.studies.answers import answer
    from tequio.views.studies import verdicts_table

    counted, failed = [], False
    for name in names:
        plan, store = _planned(name, folder, options)
        problems, interrupted = ({}, False) if stored or not plan.wanted(cells) else _run(plan, store, cells)
        rows = answer(plan, store, problems)
        counted.append((name, rows))
        failed = failed or bool(problems)
        if keep:
            _keep(plan, store, rows, folder)
        if interrupted:
            return failed, True
    if as_json:
        typer.echo(json.dumps({"studies": [{"study": name, "verdicts": dict(Counter(row.verdict for row in rows))}
                                           for name, rows in counted]}))
    else:
        Console().print(verdicts_table(counted))
    return failed, False


def _keep(plan: Plan, store: Store, rows: list[Row], folder: Path) -> None:
    from tequio.studies.answers import decide
    from tequio.studies.keeping import FILE, keep_results

    place = folder / plan.study.name
    changed = keep_results(plan, rows, decide(plan, store), place)
    typer.echo(f"kept {changed} new numbers in {place / FILE}", err=True)


def _list(folder: Path, out: Path, as_json: bool) -> None:
    from rich.console import Console

    from tequio.studies.description import load_study, study_names
    from tequio.studies.plans import make_plan, store_of
    from tequio.views.studies import studies_table

    found = []
    for name in study_names(folder):
        study = load_study(name, folder)
        plan = make_plan(study, out=out)
        store = store_of(plan, out)
        finished = sum(all(store.finished(planned) for runs in plan.of_cell(cell) for planned in runs)
                       for cell in study.cells)
        found.append({"study": name, "title": study.title, "source": study.source, "cells": len(study.cells),
                      "finished": finished})
    if as_json:
        return typer.echo(json.dumps({"studies": found}))
    return Console().print(studies_table(found))


def _run(plan: Plan, store: Store, pattern: str) -> tuple[dict[str, str], bool]:
    """Run what is missing; which runs failed and why, and whether the user stopped it."""
    from tequio.errors import ConfigError
    from tequio.studies.plans import run_missing
    from tequio.views.studies import cells_progress

    if not plan.wanted(pattern):
        raise ConfigError(f"no cell of '{plan.study.name}' fits '{pattern}'",
                          remedy="the cells are: " + "; ".join(cell.name for cell in plan.study.cells))
    with cells_progress() as listen:
        try:
            return run_missing(plan, store, pattern=pattern, listen=listen), False
        except KeyboardInterrupt:
            return {}, True


def _report(plan: Plan, store: Store, out: Path, problems: dict[str, str], as_json: bool) -> list[Row]:
    from rich.console import Console

    from tequio.studies.answers import answer, decide, document
    from tequio.views.studies import contests_table, disagreements, study_table

    rows, contests = answer(plan, store, problems), decide(plan, store)
    drawn = [*_figures(plan, store, contests, out), *_curves(plan, rows, out)]
    whole = document(plan, rows, [str(path) for path in drawn], contests)
    if as_json:
        typer.echo(json.dumps(whole))
        return rows
    console = Console()
    console.print()
    title = f"{whole['title']} ({whole['source']})"
    if rows:
        console.print(study_table(title, rows))
    if contests:
        console.print(contests_table("" if rows else title, contests))
    for heading, lines in (("Disagrees", disagreements(rows)), ("Notes", whole["notes"]), ("Drawn", whole["figures"])):
        for line in lines:
            console.print(f"{heading}: {line}", highlight=False, markup=False, soft_wrap=heading == "Drawn")
    return rows


def _figures(plan: Plan, store: Store, contests: list[Decided], out: Path) -> list[Path]:
    """Draw the study's figure where its runs, or its contests, are finished."""
    figure = plan.study.figure
    if figure is None:
        return []
    if figure.kind == "critical_differences":
        return _critical_differences(plan, contests, out)
    finished = {run: [result for planned in plan.runs[run] if (result := store.finished(planned)) is not None]
                for run in (*figure.runs, *figure.against)}
    if not all(finished.values()):
        return []
    return _draw(plan, figure, finished, store.folder / f"{figure.kind}{'-quick' if plan.quick else ''}.png")


def _critical_differences(plan: Plan, contests: list[Decided], out: Path) -> list[Path]:
    from tequio.experiments.showing.comparison import save_critical_differences

    rankings = {contest.name: contest.ranking for contest in contests if contest.ranking}
    path = out / plan.study.name / f"critical_differences{'-quick' if plan.quick else ''}.png"
    if rankings:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_critical_differences(rankings, path, title=plan.study.title)
    return [path] if rankings else []


def _draw(plan: Plan, figure: Figure, finished: dict[str, list[Result]], path: Path) -> list[Path]:
    """A figure of finished runs; all but that of the parties look at the first seed."""
    from tequio.studies.comparisons import centroids_of
    from tequio.views.clusters import save_agreement, save_centroids
    from tequio.views.parties import save_schools
    from tequio.views.timelines import save_timelines, save_trust

    title, drawn = plan.study.title, {run: finished[run][0] for run in figure.runs}
    if figure.kind == "schools":
        return save_schools({run: finished[run] for run in figure.runs}, path, metric=figure.metric, title=title)
    if figure.kind == "timelines":
        save_timelines(drawn, path, title=title)
    elif figure.kind == "trust":
        return [path] if save_trust(drawn, path, title=title) else []
    elif figure.kind == "jaccard":
        save_agreement(drawn, {run: finished[figure.reference(run)][0] for run in drawn}, path, title=title)
    else:
        save_centroids({run: centroids_of(result) for run, result in drawn.items()}, path, title=title)
    return [path]


def _curves(plan: Plan, rows: list[Row], out: Path) -> list[Path]:
    """Draw the study's cells over each other, as far as they are finished."""
    from tequio.views.studies import save_curves

    path = out / plan.study.name / f"curves{'-quick' if plan.quick else ''}.png"
    if plan.study.curves is None or not save_curves(rows, plan.study.curves, path, title=plan.study.title):
        return []
    return [path]
