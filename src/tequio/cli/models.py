"""`tequio models`: which version of a model is in production, which is tried out, and whether it fits the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tequio.errors import DataError

if TYPE_CHECKING:
    from tequio.experiments.deploying.model_registry import ModelRegistry
    from tequio.experiments.running.store import Plain

app = typer.Typer(help="Models in use: candidate and production, A/B split, promote, roll back, check for drift.",
                  no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The model's name.")]
Folder = Annotated[Path, typer.Option("--folder", help="Where the models are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
_FOLDER = Path("models")


@app.command()
def add(name: Name, run: Annotated[str, typer.Argument(help="A finished run: its folder, its name, or 'last'.")],
        folder: Folder = _FOLDER) -> None:
    """Make a run's model the candidate."""
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import find_folder

    version = _registry(folder, name).add(Result(find_folder(run)))
    typer.echo(f"'{name}' version {version.number} is the candidate.")


@app.command("list")
def list_models(folder: Folder = _FOLDER, as_json: Json = False) -> None:
    """Show all models with their versions in production and on trial."""
    from tequio.experiments.deploying.model_registry import registries

    found = {registry.name: registry.state for registry in registries(folder)}
    if as_json:
        return typer.echo(json.dumps(found))
    for name, state in found.items():
        candidate = f", candidate {state['candidate']} for {state['share']:.0%} of ids" if state["candidate"] else ""
        typer.echo(f"{name:<20} production {state['production'] or 'none'}{candidate}")
    return None


@app.command()
def promote(name: Name, folder: Folder = _FOLDER) -> None:
    """Put the candidate into production."""
    typer.echo(f"'{name}' version {_registry(folder, name).promote().number} is in production.")


@app.command()
def rollback(name: Name, folder: Folder = _FOLDER) -> None:
    """Put the version that was in production before back."""
    typer.echo(f"'{name}' version {_registry(folder, name).roll_back().number} is in production again.")


@app.command()
def split(name: Name, share: Annotated[float, typer.Argument(help="Share of ids for the candidate, 0 to 1.")],
          folder: Folder = _FOLDER) -> None:
    """Let the candidate answer some of the ids."""
    _registry(folder, name).split(share)
    typer.echo(f"The candidate of '{name}' answers {share:.0%} of the ids.")


@app.command()
def route(name: Name, id: Annotated[str, typer.Argument(help="The id of a row, a person, a request.")],
          folder: Folder = _FOLDER) -> None:
    """Say which version answers an id; the same id always gets the same one."""
    typer.echo(str(_registry(folder, name).route(id).folder))


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
    from tequio.data.skew import drift
    from tequio.experiments.deploying.model_registry import Version

    handed = Version(version)
    handed.check()
    old, new = (read(path, schema=handed.schema, target=handed.schema.target.name) for path in (since, data))
    found = drift(old, new)
    _show(found, as_json)
    worst = max(found, key=lambda column: found[column])
    if found[worst] > largest:
        raise DataError(f"column '{worst}' has changed since training (stability index {found[worst]:.2f}, allowed is "
                        f"{largest:g})", remedy="find out why, train again with the new rows, or raise --largest")


def _show(found: Plain, as_json: bool) -> None:
    if as_json:
        return typer.echo(json.dumps({"drift": found}))
    for column, index in sorted(found.items(), key=lambda pair: -pair[1])[:10]:
        typer.echo(f"{column:<24} {index:.3f}")
    return None


def _registry(folder: Path, name: str) -> ModelRegistry:
    from tequio.experiments.deploying.model_registry import ModelRegistry

    return ModelRegistry(folder, name)
