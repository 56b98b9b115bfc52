"""Commands that look at finished runs: who took part, who saw what, how attacks do, whether sums are sound."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def participation(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    top: Annotated[int, typer.Option(min=1, help="How many parties to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show who was chosen how often, whom that favoured, and the parties that added most.

    Contributions are there where the config has a [contribution] table, or a selector that scores updates.
    """
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import PARTICIPATION, find_folder

    result = Result(find_folder(run))
    metrics = {name: value for name, value in result.summary["metrics"].items()
               if name.startswith(("selection.", "groups."))}
    if as_json:
        typer.echo(json.dumps({"run": result.folder.name, "metrics": metrics, "parties": result.participation.rows}))
        return
    from rich.console import Console

    from tequio.views.parties import renderables

    console = Console(highlight=False)
    for part in renderables(result, metrics, top):
        console.print(part)
    console.print(f"all parties   {result.folder / PARTICIPATION}", markup=False, soft_wrap=True)


def leakage(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    attack: Annotated[bool, typer.Option("--attack", help="Also let parties without labels try to tell them from one "
                                         "more round's gradients (split networks).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show who saw what, what it tells, and how long each party worked, sent and waited.

    It is read from the record of the run's messages: names, kinds and shapes of their fields, never their values.
    """
    from tequio.errors import RunError
    from tequio.experiments.explaining.replaying import label_leakage
    from tequio.experiments.running.store import find_folder
    from tequio.experiments.running.transcripts import leakage_table, message_table

    folder = find_folder(run)
    seen, messages = leakage_table(folder), message_table(folder)
    if not len(seen):
        raise RunError(f"'{folder.name}' has no messages on record",
                       remedy="choose a run of a vertical algorithm, such as 'split-nn'")
    leaks = label_leakage(folder) if attack else {}
    if as_json:
        typer.echo(json.dumps({"run": folder.name, "seen": seen.rows, "messages": messages.rows, "attacks": leaks}))
        return
    from rich.console import Console

    from tequio.views.privacy import renderables

    console = Console(highlight=False)
    for part in renderables(seen, messages, leaks):
        console.print(part)


def probe(
    runs: Annotated[list[str], typer.Argument(help="Runs: their folders, their names under runs/, or 'last'.")],
    attack: Annotated[list[str] | None, typer.Option("--attack", help="The name of a probe (tequio list probe); may be "
                                                     "given again (default: all that suit the run).")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the "
                                                        "attacks that are named, such as batch=8.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that train shadow models for attacks on membership "
                                         "(0: one a core).")] = 0,
    picture: Annotated[str, typer.Option(metavar="FILE", help="Draw rows and what gradient inversion (or, with "
                                         "--attack batch-inversion, that of batches) makes of them in each run (image "
                                         "data) into this PNG file.", show_default=False)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Attack what runs gave away: rows, members, properties and labels, from updates, models and messages.

    Success stands with its 95 % interval beside that of guessing, and what the attack assumes below. Attacks on updates
    look on as the coordinator, and as somebody who sees models only. Nothing is sent anywhere: the attacks play rounds
    of their own on this machine. Stop it whenever you like: shadow models that are trained are kept.
    """
    from tequio.cli.run import printing, shown_progress
    from tequio.errors import ConfigError
    from tequio.experiments.config.toml import parse_setting
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import find_folder
    from tequio.probing.probe import SHOWN, assumption, probe_table
    from tequio.registry import build

    if overrides and not attack:
        raise ConfigError("--set changes parameters of attacks that are named",
                          remedy="add --attack NAME, as in --attack batch-inversion --set batch=8")
    results, settings = [Result(find_folder(run)) for run in runs], dict(map(parse_setting, overrides or ()))
    with printing(as_json) as write, shown_progress(quiet) as listen:
        table = probe_table(results, attack or (), settings, workers=workers, listen=listen)
        if picture:
            from tequio.views.privacy import draw_reconstructions

            batch = build("probe", "batch-inversion", settings) if "batch-inversion" in (attack or ()) else None
            draw_reconstructions(results, Path(picture), batch)
        if as_json:
            write(json.dumps({"probes": table.rows}))
            return
    from rich.console import Console

    from tequio.views.privacy import plain_table

    for result in results:
        rows = [row for row in table if row["run"] == result.folder.name]
        columns = [column for column in SHOWN if column in table.columns]
        console = Console(highlight=False)
        console.print(plain_table(result.folder.name, table, columns, rows))
        for name in dict.fromkeys(str(row["attack"]) for row in rows):
            console.print(f"{name}: {assumption(name)}", markup=False)


def verify(
    run: Annotated[str, typer.Argument(metavar="RUN_OR_DOSSIER", help="A dossier (its .json or .html file); or a run, "
                                       "to check its transcript: its folder, its name under runs/, or 'last'.")],
    folder_of_run: Annotated[str, typer.Option("--run", metavar="RUN", help="The run or model of a dossier that lies "
                                               "elsewhere.", show_default=False)] = "",
    replay: Annotated[int, typer.Option(min=0, metavar="N", help="Also play this many stretches of rounds again, at "
                                        "random, and compare hashes (simulated parties).")] = 0,
    authority: Annotated[Path | None, typer.Option(metavar="PATH", help="Of a dossier: whose coordinator has to have "
                                                   "signed the model (a party's folder, or authority.pem).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check a dossier with all that it rests on, or the signed transcript of a run; exit code 8 if it is not sound.

    A dossier: the document, the page, every file's hash, transcript, proofs and receipts, and every number made again
    from the files. A run with the stage 'verified': its transcript, line by line.
    """
    from tequio.errors import ConfigError, RunError
    from tequio.experiments.running.store import find_folder
    from tequio.experiments.running.transcripts import verify_run
    from tequio.views.dossier.checking import is_dossier

    if is_dossier(Path(run)):
        _verify_dossier(Path(run), folder_of_run, replay, authority, as_json)
        return
    if folder_of_run or replay or authority is not None:
        raise ConfigError("--run, --replay and --authority are for dossiers",
                          remedy="give the dossier's file: tequio verify RUN/dossier.json --replay 2")
    folder = find_folder(run)
    verdict = verify_run(folder)
    if as_json:
        typer.echo(json.dumps({"run": folder.name, "sound": not verdict.findings, **asdict(verdict)}))
        raise typer.Exit(RunError.exit_code if verdict.findings else 0)
    if verdict.findings:
        first = verdict.findings[0]
        raise RunError(f"the transcript of '{folder.name}' is not sound: line {first.line + 1}: {first.what}",
                       remedy="do not rely on this run; ask the parties what they have seen")
    typer.echo(f"{verdict.lines} lines, all signed and in order")
    typer.echo(f"{verdict.sums} sums proved to be what the parties sent")
    if verdict.counted:
        typer.echo(f"{verdict.counted} sums of which only the parties that were counted can be checked")
    typer.echo(f"{verdict.receipts} receipts of parties that checked a sum themselves")


def _verify_dossier(path: Path, run: str, replay: int, authority: Path | None, as_json: bool) -> None:
    from tequio.errors import RunError
    from tequio.experiments.replaying import replay_rounds
    from tequio.experiments.running.store import find_folder
    from tequio.models.publishing import authority_of
    from tequio.views.dossier.checking import check_dossier

    folder = None if not run else Path(run) if (Path(run) / "model.json").is_file() else find_folder(run)
    check = check_dossier(path, folder, None if authority is None else authority_of(authority))
    if replay and not check.wrong:
        for stretch in replay_rounds(folder or find_folder(path.parent), replay):
            check.done.append(f"rounds {stretch.first} to {stretch.last} played again: {stretch.words}")
            check.wrong += [] if stretch.same else [(stretch.file, "rounds played again end with another hash")]
    if as_json:
        typer.echo(json.dumps({"dossier": str(path), "sound": not check.wrong, "checked": check.done,
                               "wrong": [{"file": file, "what": what} for file, what in check.wrong]}))
        raise typer.Exit(RunError.exit_code if check.wrong else 0)
    if check.wrong:
        file, what = check.wrong[0]
        more = f" (and {len(check.wrong) - 1} more)" if len(check.wrong) > 1 else ""
        raise RunError(f"the dossier '{path.name}' is not sound: {file}: {what}{more}",
                       remedy="do not rely on it; ask for the files as they were, and find out what changed them")
    for line in check.done:
        typer.echo(line)


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
