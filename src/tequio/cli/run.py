"""`tequio run`: an experiment from a TOML file, or the rest of one that was stopped."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.errors import ConfigError, DivergedError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console

    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain
    from tequio.experiments.sweep import SweepResult
    from tequio.views.heatmap import Grid

FreshLedger = Annotated[bool, typer.Option("--fresh-ledger", help="Count what private runs spend on these rows from "
                                           "here on; results say so.")]

_advice: list[tuple[str, str]] = []
"""How to go on with what was begun, and the folder that has to be there for it."""


def run(
    file: Annotated[Path | None, typer.Argument(help="A config (not needed with --resume).",
                                                show_default=False)] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as "
                        "--set local.learning_rate=0.05 (repeat for more).")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed: same seed, same numbers.")] = None,
    engine: Annotated[str | None, typer.Option(help="What carries the tasks; see: tequio list engine")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes (0: one a core).")] = None,
    address: Annotated[str | None, typer.Option(help="Where the engine's cluster is (host:port or auto).")] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a stopped run: its folder, its name, or "
                      "'last'.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where run folders go (default: runs).")] = None,
    policy: Annotated[str | None, typer.Option(metavar="POLICY", help="What every simulated party allows: open, "
                      "hospital, strict or a file; see: tequio policy list")] = None,
    fresh_ledger: FreshLedger = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no tables.")] = False,
) -> None:
    """Run an experiment and keep everything about it in a run folder.

    A config with a table 'sweep' runs every combination and skips what is finished.
    """
    _advice.clear()
    overrides = [*(settings or []), *shortcuts(seed=seed, engine=engine, workers=workers, address=address, out=out,
                                                policy=policy)]
    with printing(as_json) as write, shown_progress(quiet) as listen:
        document, show = _work(file, resume, overrides, listen, fresh_ledger=fresh_ledger)
        if as_json:
            write(json.dumps(document))
    if not as_json and not quiet:
        show()
    refuse_diverged(document)


def refuse_diverged(summary: Plain) -> None:
    """End with an exit code of its own where a run has diverged, after all that there is to show was shown."""
    if summary.get("stopped") == "diverged":
        _advice.clear()  # going on with it would lead nowhere
        message, _, remedy = summary["warnings"][-1].partition("; ")
        raise DivergedError(message, remedy=remedy)


def how_to_resume() -> str:
    """What to type to go on with the run that was stopped; empty where none had begun."""
    advice, folder = _advice[0] if _advice else ("", "")
    return advice if Path(folder).is_dir() else ""


def _work(file: Path | None, resume: str | None, overrides: list[str], listen: Listener, *,
          fresh_ledger: bool) -> tuple[Plain, Callable[[], None]]:
    from tequio.experiments import api
    from tequio.experiments.config.complete import complete, read_given
    from tequio.experiments.config.toml import parse_setting
    from tequio.experiments.running.scenario import start_ledgers_anew
    from tequio.experiments.sweep import run_sweep, sweep_cells

    if resume is not None:
        if fresh_ledger:
            raise ConfigError("--fresh-ledger is for a run that begins, and --resume goes on with one",
                              remedy="leave out --fresh-ledger or --resume")
        result = api.resume_run(resume, file, dict(map(parse_setting, overrides)), listen=listen)
        return result.to_dict(), lambda: show_run(result)
    if file is None:
        raise ConfigError("there is nothing to run", remedy="type: tequio run FILE.toml, or tequio run --resume RUN")
    given = read_given(file, overrides)
    if given.get("search"):
        raise ConfigError(f"{file.name} has a [search] table", remedy=f"type: tequio search {file}")
    if fresh_ledger:
        start_ledgers_anew(cell.config for cell in sweep_cells({**given, "baselines": []}, source=file.name))
    if given.get("sweep"):
        swept = run_sweep(given, source=file.name, listen=listen)
        return swept.to_dict(), lambda: _show_sweep(swept)
    result = api.run_with_baselines(complete(given, source=file.name), listen=listen)
    return result.to_dict(), lambda: show_run(result)


def shortcuts(*, seed: int | None = None, engine: str | None = None, workers: int | None = None,
              address: str | None = None, out: Path | None = None, policy: str | None = None) -> list[str]:
    """Options that are short for keys of a config."""
    values = {"seed": seed, "engine.name": engine, "engine.workers": workers, "engine.address": address,
              "output.folder": out, "policy": policy}
    return [f"{key}={value}" for key, value in values.items() if value is not None]


@contextmanager
def shown_progress(quiet: bool, command: str = "tequio run --resume") -> Iterator[Listener]:
    """Somebody who listens to a run, shows its progress, and remembers how to go on with it."""
    from tequio.experiments.showing.progress import shown

    def remember(kind: str, facts: Plain) -> None:
        if kind == "cell":
            _advice.append(("To go on, type the same command again: finished cells are kept.", "."))
        if kind in ("start", "resume"):
            _advice.append((f"To go on, type: {command} {facts['folder']}", str(facts["folder"])))

    bar: AbstractContextManager[Listener] = nullcontext(remember) if quiet else shown(remember)
    with bar as listen:
        yield listen


@contextmanager
def printing(wanted: bool) -> Iterator[Callable[[str], None]]:
    """Keep stdout for the document: whatever else is printed, by workers and plugins too, goes to stderr."""
    if not wanted:
        yield typer.echo
        return
    stdout = sys.stdout
    stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    documents: list[str] = []
    try:
        with redirect_stdout(sys.stderr):
            yield documents.append
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    print(*documents, file=stdout, flush=True)


def _reason(stopped: str) -> str:
    """A stop reason in words; algorithms give theirs in words already."""
    from tequio.experiments.showing.results import STOPPED

    return STOPPED.get(stopped, stopped)


def show_run(result: Result) -> None:
    """Print what came of a run."""
    from rich.console import Console

    from tequio.experiments.showing.results import result_table
    from tequio.experiments.showing.statistics import notes_of, statistics_of, statistics_table

    console, summary = Console(), result.summary
    console.print()
    console.print(result_table(result, console.width))
    tables = statistics_of(result)
    for title, rows in tables.items():
        console.print(statistics_table(title, rows))
    for note in notes_of(result) if tables else ():
        console.print(f"note      {note}", highlight=False)
    if len(result.labels):
        _show_labels(result, console)
    console.print(f"stopped   after round {summary['rounds']}: {_reason(summary['stopped'])}", highlight=False)
    if result.privacy:
        console.print(f"privacy   {result.privacy['words']}", highlight=False)
    if result.privacy_over_runs:
        console.print(f"          {result.privacy_over_runs['words']}", highlight=False)
    console.print(f"folder    {result.folder}", highlight=False, soft_wrap=True)
    console.print(f"plot      {_saved_plot(result)}", highlight=False, soft_wrap=True)
    if "clock.seconds" in result.metrics.columns:
        console.print(f"times     {_saved_times(result)}", highlight=False, soft_wrap=True)


def _show_labels(result: Result, console: Console) -> None:
    from tequio.views.parties import HEATMAP, label_table, party_table, save_label_heatmap

    for table in (party_table(result), label_table(result)):
        console.print(table)
        console.print()
    try:
        save_label_heatmap(result, result.folder / HEATMAP)
        console.print(f"heat map  {result.folder / HEATMAP}", highlight=False, soft_wrap=True)
    except MissingExtra as cause:
        console.print(f"heat map  none: {cause}", highlight=False, soft_wrap=True)


def _saved_plot(result: Result) -> str:
    from tequio.experiments.showing.results import PLOT

    try:
        result.plot(path=result.folder / PLOT)
    except (MissingExtra, ConfigError) as cause:
        return f"none: {cause}"
    return str(result.folder / PLOT)


def _saved_times(result: Result) -> str:
    from tequio.views.timelines import PLOT, save_timelines

    try:
        save_timelines({result.summary["name"]: result}, result.folder / PLOT, title=result.summary["name"])
    except MissingExtra as cause:
        return f"none: {cause}"
    return str(result.folder / PLOT)


def _saved_grid(grid: Grid, folder: Path) -> str:
    from tequio.views.heatmap import FIGURE, save_grid

    try:
        save_grid(grid, folder / FIGURE)
    except MissingExtra as cause:
        return f"none: {cause}"
    return str(folder / FIGURE)


def _show_sweep(swept: SweepResult) -> None:
    from rich.console import Console

    from tequio.experiments.showing.results import sweep_table
    from tequio.views.heatmap import grid_of, grid_table

    console = Console()
    console.print()
    grid = grid_of(swept)
    console.print(sweep_table(swept) if grid is None else grid_table(grid))
    console.print(f"folder    {swept.folder}", highlight=False, soft_wrap=True)
    if grid is not None:
        console.print(f"heat map  {_saved_grid(grid, swept.folder)}", highlight=False, soft_wrap=True)
