"""`tequio reproduce`: the tables of the sources again, published beside ours."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain
    from tequio.studies.answered import Answered
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
    stored: Annotated[bool, typer.Option("--stored", help="Run nothing: show what is stored, and where nothing is "
                                                          "the numbers that are kept with the study.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Run only what kept numbers lack, too, and first what "
                                                          "open claims rest on.")] = False,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Stop cleanly after that long, such as 30m or "
                                                             "2h.")] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the numbers beside the study, for the page of "
                                                      "results.")] = False,
    workers: Annotated[int | None, typer.Option(min=0, help="Worker processes (default: one a core; in the quick "
                                                            "form 1).", show_default=False)] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs are kept.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Run what a study's table lacks and show: published | ours (mean and sd over seeds) | interval | verdict.

    Every finished run is kept, so a table can be stopped at any moment and completed later or in pieces.
    """
    from tequio.studies.description import studies_folder, study_names

    folder, until = studies_folder(), _deadline(budget)
    if study is None and not everything:
        return _list(folder, out, as_json)
    # A quick run is over before worker processes have started.
    options = {"quick": quick, "seeds": seeds, "out": out, "workers": workers if workers is not None else int(quick)}
    names = study_names(folder) if study is None else [study.rstrip("/")]
    planned = [_planned(name, folder, options) for name in names]
    problems, stopped = ({}, "") if stored else _run(planned, folder, cells, until, resume)
    _show(planned, folder, problems, None if everything else out, as_json=as_json, kept=stored or resume)
    for plan, store in planned if keep else ():
        _keep(plan, store, folder)
    if stopped:
        typer.echo(f"{stopped}; what is finished is kept. Type the same command to go on.", err=True)
    if problems or stopped == "Stopped":
        raise typer.Exit(_INTERRUPTED if stopped == "Stopped" else _SOME_FAILED)
    return None


def _deadline(budget: str) -> float | None:
    """The second of the monotonic clock at which the budget is spent."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if budget and found is None:
        raise typer.BadParameter(f"'{budget}' is no time; type, for instance, 90s, 30m or 2h", param_hint="--budget")
    return time.monotonic() + float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else None


def _planned(study: str, folder: Path, options: Plain) -> tuple[Plan, Store]:
    from tequio.studies.description import load_study
    from tequio.studies.plans import make_plan, store_of

    plan = make_plan(load_study(study, folder), **options)
    return plan, store_of(plan, options["out"])


def _keep(plan: Plan, store: Store, folder: Path) -> None:
    from tequio.studies.answers import answer, decide
    from tequio.studies.keeping import FILE, keep_results

    place = folder / plan.study.name
    changed = keep_results(plan, answer(plan, store), decide(plan, store), place)
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


def _run(planned: list[tuple[Plan, Store]], folder: Path, pattern: str, until: float | None,
         resume: bool) -> tuple[dict[str, str], str]:
    """Run what is missing; which runs failed and why, and what stopped it, if anything did."""
    from tequio.errors import ConfigError
    from tequio.studies.keeping import read_kept
    from tequio.studies.missing import BudgetSpent, missing_runs, run_all, wanted_first
    from tequio.views.studies import cells_progress

    if len(planned) == 1 and not planned[0][0].wanted(pattern):
        study = planned[0][0].study
        raise ConfigError(f"no cell of '{study.name}' fits '{pattern}'",
                          remedy="the cells are: " + "; ".join(cell.name for cell in study.cells))
    if resume:
        errands = wanted_first([(plan, store, read_kept(folder / plan.study.name)) for plan, store in planned], pattern)
    else:
        errands = [errand for plan, store in planned for errand in missing_runs(plan, store, pattern)]
    problems: dict[str, str] = {}
    with cells_progress() as listen:
        try:
            run_all(errands, problems, until=until, listen=listen)
        except BudgetSpent:
            return problems, "The budget is spent"
        except KeyboardInterrupt:
            return problems, "Stopped"
    return problems, ""


def _show(planned: list[tuple[Plan, Store]], folder: Path, problems: dict[str, str], out: Path | None, *,
          as_json: bool, kept: bool) -> None:
    """Print one study, drawn too, or without a folder for pictures all of them."""
    from rich.console import Console

    from tequio.studies.answered import from_runs
    from tequio.studies.keeping import read_kept
    from tequio.views.studies import claims_table, verdicts_table

    found = [from_runs(plan, store, problems, read_kept(folder / plan.study.name) if kept else None)
             for plan, store in planned]
    drawn: list[Path] = []
    if out is not None:
        drawn = [*_figures(*planned[0], list(found[0].contests), out), *_curves(planned[0][0], found[0].rows, out)]
    if as_json:
        whole = [one.document(list(map(str, drawn)), quick=plan.quick)
                 for one, (plan, _) in zip(found, planned, strict=True)]
        return typer.echo(json.dumps({"studies": whole} if out is None else whole[0]))
    console = Console()
    for one, (plan, _) in zip(found, planned, strict=True):
        _print(console, one, drawn, plan)
    if any(one.claims for one in found):
        console.print(claims_table(found))
    if out is None:
        console.print(verdicts_table(found))
    return None


def _print(console: Console, one: Answered, drawn: list[Path], plan: Plan) -> None:
    """A study's table, with what to know about it below."""
    from tequio.views.studies import contests_table, disagreements, ranking_line, study_table

    title = f"{one.study.title} ({one.study.source})"
    console.print()
    if one.rows:
        console.print(study_table(title, one.rows))
    if one.contests:
        console.print(contests_table("" if one.rows else title, list(one.contests)))
    notes = [one.study.quick.note, *one.study.notes] if plan.quick else one.study.notes
    for heading, lines in (("Ranking", map(ranking_line, one.orders)), ("Disagrees", disagreements(one.rows)),
                           ("Notes", notes), ("Drawn", map(str, drawn))):
        for line in lines:
            console.print(f"{heading}: {line}", highlight=False, markup=False, soft_wrap=heading == "Drawn")


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


def _curves(plan: Plan, rows: Sequence[Row], out: Path) -> list[Path]:
    """Draw the study's cells over each other, as far as they are finished."""
    from tequio.views.studies import save_curves

    path = out / plan.study.name / f"curves{'-quick' if plan.quick else ''}.png"
    if plan.study.curves is None or not save_curves(rows, plan.study.curves, path, title=plan.study.title):
        return []
    return [path]
