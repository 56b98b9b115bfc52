"""`tequio models`: versions of a model in use, how they do, which one is promoted, and whether rows have drifted."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.errors import ConfigError, DataError, RunError, TequioError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tequio.models.drift import Change
    from tequio.models.registry import ModelRegistry

app = typer.Typer(help="Models in use: candidate and production, outcomes, comparison, staged roll-out, drift.",
                  no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The model's name.")]
Folder = Annotated[Path, typer.Option("--folder", help="Where the models are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Answers = Annotated[Path | None, typer.Option(metavar="FILE", help="The log that `tequio serve` wrote (default: "
                                              "answers.jsonl beside the versions).")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (.png, .svg, .pdf).")]
Party = Annotated[str, typer.Option(metavar="NAME", help="The party whose own model answers.", show_default=False)]
_FOLDER = Path("models")


@app.command()
def add(name: Name, model: Annotated[str, typer.Argument(metavar="RUN_OR_MODEL", help="A finished run (its folder, its "
        "name, or 'last'), or the folder of a model.")],
        since: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows of the time of training, to see drift "
                         "later; of a simulated run they are known.")] = None, folder: Folder = _FOLDER) -> None:
    """Make a run's model, or one that was handed to you, the candidate."""
    place = _place(model)
    reference, why = _reference(place, since)
    version = _registry(folder, name).add(place, reference)
    typer.echo(f"'{name}' version {version.number} is the candidate.")
    if version.reference is None:
        typer.echo(f"It keeps no reference of its training ({why}); to see drift later: --since FILE", err=True)


@app.command("list")
def list_models(folder: Folder = _FOLDER, as_json: Json = False) -> None:
    """Show all models: versions in production and on trial, the stage of the trial, answers with an outcome."""
    from tequio.models.outcomes import counts_by_version
    from tequio.models.registry import registries

    found = {one.name: {**one.state, "outcomes": counts_by_version(one), "flagged": one.flags()}
             for one in registries(folder)}
    if as_json:
        return typer.echo(json.dumps(found))
    if not found:
        typer.echo(f"There is no model in '{folder}'. Add one: tequio models add NAME RUN", err=True)
    for name, state in found.items():
        counts = state["outcomes"]
        parts = [f"production {_with_count(state['production'], counts)}"]
        if state["candidate"]:
            stage = f"{state['share']:.0%} of ids" if state["share"] else "not on trial"
            parts.append(f"candidate {_with_count(state['candidate'], counts)}, {stage}")
        parts += [f"version {number} is flagged: {why}" for number, why in state["flagged"].items()]
        typer.echo(f"{name:<20} {'; '.join(parts)}")
    return None


@app.command()
def promote(
    name: Name,
    if_better: Annotated[bool, typer.Option("--if-better", help="One stage at a time (1, 10, 50, 100 % of the ids), as "
                                            "far as the outcomes allow.")] = False,
    metric: Annotated[str, typer.Option(help="What to go by (default: accuracy, label_accuracy or absolute_error).",
                                        show_default=False)] = "",
    confidence: Annotated[float | None, typer.Option(help="How sure to be, over all looks (default: 0.95).")] = None,
    margin: Annotated[float | None, typer.Option(help="How much worse is still acceptable at 10 %; twice that at 1 % "
                                                 "(default: 0.05 of a share, else 5 % of the value).")] = None,
    bound: Annotated[list[str] | None, typer.Option(metavar="BOUND", help="Withdraw the candidate if it surely breaks "
                     "this, such as 'accuracy>=0.9' or 'accuracy[sex=f]>=0.8' (repeat for more).")] = None,
    folder: Folder = _FOLDER, as_json: Json = False,
) -> None:
    """Put the candidate into production: at once, or with --if-better in stages that its outcomes have to earn."""
    registry = _registry(folder, name)
    if not if_better:
        if metric or confidence is not None or margin is not None or bound:
            raise ConfigError("a candidate that is promoted at once is measured by nothing", remedy="add --if-better")
        number = registry.promote().number
        return typer.echo(json.dumps({"production": number}) if as_json else f"'{name}' version {number} is in "
                          "production.")
    from tequio.models.rollout import step_up

    step = step_up(registry, metric=metric, confidence=confidence, margin=margin, bounds=bound or ())
    if as_json:
        return typer.echo(json.dumps(asdict(step)))
    heads = {"up": f"goes from {step.before:.0%} to {step.after:.0%} of the ids" if step.after < 1 else
             "is in production: all ids", "stay": f"stays at {step.before:.0%} of the ids",
             "withdrawn": f"is withdrawn at {step.before:.0%} of the ids: back to 0%"}
    _print(f"'{name}' version {step.version} {heads[step.decision]}.", f"Why: {step.why}.")
    if step.decision == "stay":
        _print("No number of outcomes would settle this as it is: the two are alike. Decide by hand: tequio models "
               f"promote {name}, or tequio models split {name} 0." if step.needed is None else
               f"About {step.needed:,} more outcomes of the candidate would settle it.")
    return None


@app.command()
def require(name: Name, file: Annotated[Path, typer.Argument(help="The gates, as TOML: [data], [preparation], "
            "[training], [evaluation], [deployment], [monitoring].")], folder: Folder = _FOLDER) -> None:
    """Declare what has to hold before a version becomes the candidate, and before it answers."""
    try:
        content = file.read_bytes()
    except OSError as cause:
        raise ConfigError(f"'{file}' cannot be read: {cause.strerror or cause}", remedy="name a TOML file") from cause
    _registry(folder, name).require(content)
    typer.echo(f"From now on versions of '{name}' go on where '{file}' lets them.")


@app.command()
def approve(name: Name, why: Annotated[str, typer.Option(help="What you looked at.")],
            folder: Folder = _FOLDER) -> None:
    """Say that you have looked at the candidate and let it answer; the log keeps who you are."""
    typer.echo(f"'{name}' version {_registry(folder, name).approve(why)} is approved.")


@app.command("gates")
def show_gates(name: Name, folder: Folder = _FOLDER, as_json: Json = False) -> None:
    """Show which gates the candidate (or what is in production) passes; exit code 8 if not all."""
    from tequio.models.gates import as_json as in_json
    from tequio.views.models import gate_parts

    registry = _registry(folder, name)
    state = registry.state
    number = state["candidate"] or state["production"]
    if not number:
        raise ConfigError(f"the model '{name}' has no version yet", remedy=f"add a run: tequio models add {name} RUN")
    version, gates = registry.version(number), registry.gates
    others = registry.version(state["production"]) if state["production"] not in (0, number) else None
    checks = [*gates.of_run(version, others), *gates.of_use(registry, version)]
    if as_json:
        typer.echo(in_json(checks))
    else:
        _print(*gate_parts(number, checks))
    if not all(one.passed for one in checks):
        raise typer.Exit(RunError.exit_code)


@app.command()
def rollback(name: Name, folder: Folder = _FOLDER) -> None:
    """Put the version that was in production before back."""
    typer.echo(f"'{name}' version {_registry(folder, name).roll_back().number} is in production again.")


@app.command()
def split(name: Name, share: Annotated[float, typer.Argument(help="Share of ids for the candidate, 0 to 1.")],
          folder: Folder = _FOLDER) -> None:
    """Let the candidate answer some of the ids; 0 ends its trial."""
    _registry(folder, name).split(share)
    typer.echo(f"The candidate of '{name}' answers {share:.0%} of the ids.")


@app.command()
def route(name: Name, id: Annotated[str, typer.Argument(help="The id of a row, a person, a request.")],
          folder: Folder = _FOLDER) -> None:
    """Say which version answers an id; the same id always gets the same one."""
    typer.echo(str(_registry(folder, name).route(id).folder))


@app.command()
def outcomes(
    name: Name,
    file: Annotated[Path, typer.Argument(help="What really happened: a table with ids and outcomes, and columns of "
                                         "groups if you like (CSV or Parquet).")],
    id: Annotated[str, typer.Option(metavar="COLUMN", help="The column of ids.")] = "id",
    truth: Annotated[str, typer.Option(metavar="COLUMN", help="What happened (default: 'outcome', 'truth', or the name "
                                       "of the target).", show_default=False)] = "",
    group: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Groups to compare later (repeat; default: "
                     "all other columns with few different values).")] = None,
    within: Annotated[float, typer.Option(metavar="DAYS", help="Leave out outcomes that came later than this after the "
                                          "answer; needs a column 'time'.")] = 0.0,
    answers: Answers = None, folder: Folder = _FOLDER, as_json: Json = False,
) -> None:
    """Join what really happened with what was answered, by id, and keep it by version."""
    from tequio.models.outcomes import add_outcomes

    found = add_outcomes(_registry(folder, name), file, answers=answers, id=id, truth=truth, groups=group or (),
                         within_days=within)
    if as_json:
        return typer.echo(json.dumps(asdict(found)))
    by_version = ", ".join(f"version {number}: {count:,}" for number, count in sorted(found.versions.items()))
    _print(f"{found.joined:,} of {found.given:,} outcomes joined" + (f" ({by_version})." if by_version else "."),
           *(f"  {line}." for line in found.lines()))
    return None


@app.command()
def compare(
    name: Name, first: Annotated[int, typer.Argument(metavar="A", help="A version.")],
    second: Annotated[int, typer.Argument(metavar="B", help="The version to compare it with.")],
    metric: Annotated[str, typer.Option(help="What to compare (default: the first that outcomes have).",
                                        show_default=False)] = "",
    by: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Groups to look at (repeat; default: "
                                                                        "all).")] = None,
    data: Annotated[Path | None, typer.Option(help="Compare on these rows instead, whose truth is known: both versions "
                                              "answer all of them.")] = None,
    truth: Annotated[str, typer.Option(metavar="COLUMN", help="The true values in --data.", show_default=False)] = "",
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Of intervals and of the verdict.")] = 0.95,
    party: Party = "", plot: Plot = None, folder: Folder = _FOLDER, as_json: Json = False,
) -> None:
    """Say which of two versions is better, how surely, and for which groups."""
    from tequio.models.versus import compare_versions
    from tequio.views.models import comparison_parts, draw_comparison

    found = compare_versions(_registry(folder, name), first, second, metric=metric, confidence=confidence, data=data,
                             truth=truth, by=by or (), party=party)
    if plot is not None:
        draw_comparison(found, plot)
    if as_json:
        return typer.echo(json.dumps(asdict(found)))
    return _print(*comparison_parts(found), *([f"Drawn: {plot}"] if plot else []))


@app.command()
def audit(
    name: Name,
    head: Annotated[str, typer.Option(metavar="SHA256", help="A last hash that you kept: refuse a log that lacks it.",
                                      show_default=False)] = "",
    folder: Folder = _FOLDER, as_json: Json = False,
) -> None:
    """Show what was done to a model, once nothing in it is known to be changed: log, versions and outcomes."""
    from tequio.models.outcomes import read_outcomes
    from tequio.views.models import audit_parts

    registry = _registry(folder, name)
    _ = registry.state  # a model that is not there is refused here
    entries = registry.audit.entries()
    if head and head not in [entry["sha256"] for entry in entries]:
        raise RunError(f"the log of '{name}' lacks the step {head[:12]}...", remedy="its end was cut off, or it is "
                       "another log: restore the model's folder from a copy")
    for version in registry.versions():
        registry.check(version.number)
    read_outcomes(registry)
    if as_json:
        return typer.echo(json.dumps(entries))
    return _print(*audit_parts(entries), *(f"Careful: {path} is in no step: adding it broke off, or the end of the log "
                                           "was cut off." for path in registry.strays()))


@app.command()
def drift(
    name: Name,
    data: Annotated[Path | None, typer.Option(help="Rows of today, to compare with those of the training (CSV or "
                                              "Parquet).")] = None,
    since: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows of the time of training, where the version "
                     "keeps no reference.")] = None,
    version: Annotated[int, typer.Option(help="Which version's (default: the one in production, else the candidate).",
                                         show_default=False)] = 0,
    party: Party = "", answers: Answers = None, plot: Plot = None, folder: Folder = _FOLDER, as_json: Json = False,
) -> None:
    """Show how far inputs, scores and outcomes have moved: since training, over time, and between versions."""
    from tequio.models.drift import drift_in_use, input_drift, note_drift, reference_for
    from tequio.views.models import draw_drift, drift_parts

    registry = _registry(folder, name)
    state, unseen = registry.state, 0
    changes: list[Change] = []
    if data is not None:
        chosen = registry.version(version or state["production"] or state["candidate"])
        model = chosen.load().of(party) if party else chosen.load()
        changes, unseen = input_drift(reference_for(chosen, model, since), data, model)
        note_drift(registry, chosen.number, changes, unseen)
    in_use, windows = drift_in_use(registry, answers)
    if not changes and not windows:
        raise DataError(f"there is nothing to look at: no rows, and no answers in '{registry.answers}'",
                        remedy="give rows: --data FILE; or the log that `tequio serve` wrote: --answers FILE")
    changes += in_use
    if plot is not None:
        draw_drift(changes, windows, plot)
    if as_json:
        return typer.echo(json.dumps({"changes": [asdict(one) for one in changes], "unseen_rows": unseen,
                                      "windows": [asdict(one) for one in windows]}))
    return _print(*drift_parts(changes, windows, unseen), *([f"Drawn: {plot}"] if plot else []))


@app.command()
def check(
    version: Annotated[Path, typer.Argument(help="The folder of a version, as it was handed to you.")],
    data: Annotated[Path, typer.Option(help="The rows that it would be used on (CSV or Parquet).")],
    since: Annotated[Path, typer.Option(help="Your rows at the time of training, to see what changed since.")],
    largest: Annotated[float, typer.Option(help="Refuse when a column's stability index is above this.")] = 0.25,
    as_json: Json = False,
) -> None:
    """Before you adopt a model: is it what its run made, does it fit your table, and are your rows still the same?"""
    from tequio.data.inputs import read
    from tequio.data.skew import drift as moved
    from tequio.models.registry import Version

    handed = Version(version)
    handed.check()
    old, new = (read(path, schema=handed.schema, target=handed.schema.target.name) for path in (since, data))
    found = moved(old, new)
    if as_json:
        typer.echo(json.dumps({"drift": found}))
    else:
        largest_first = sorted(found.items(), key=lambda pair: -pair[1])
        _print(*(f"{column:<24} {index:.3f}" for column, index in largest_first[:10]))
    worst = max(found, key=lambda column: found[column])
    if found[worst] > largest:
        raise DataError(f"column '{worst}' has changed since training (stability index {found[worst]:.2f}, allowed is "
                        f"{largest:g})", remedy="find out why, train again with the new rows, or raise --largest")


def _place(model: str) -> Path:
    """The folder of a model or of a run."""
    from tequio.experiments.running.store import find_folder
    from tequio.models.folder import find

    try:
        find(Path(model))
        return Path(model)
    except ConfigError:
        return find_folder(model)


def _reference(place: Path, since: Path | None) -> tuple[str, str]:
    """What rows of the training were like, or why that is not known."""
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.scenario import training_rows
    from tequio.experiments.running.store import CONFIG
    from tequio.models.drift import reference_of, reference_of_file
    from tequio.models.folder import load

    model = load(place)
    if since is not None:
        return reference_of_file(since, model).to_json(), ""
    if not (place / CONFIG).is_file():
        return "", "the rows stay with whoever trained it"
    try:
        result = Result(place)
        if result.privacy:
            return "", "exact counts would undo the privacy of the run"
        return reference_of(training_rows(result.config), model).to_json(), ""
    except TequioError as cause:
        return "", cause.message


def _with_count(version: int, counts: dict[int, int]) -> str:
    return f"{version} ({counts.get(version, 0):,} outcomes)" if version else "none"


def _print(*parts: RenderableType) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for part in parts:
        console.print(part)


def _registry(folder: Path, name: str) -> ModelRegistry:
    from tequio.models.registry import ModelRegistry

    return ModelRegistry(folder, name)
