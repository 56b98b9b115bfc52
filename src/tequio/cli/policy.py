"""`tequio policy`: what a party's owner allows, tried on a laptop before it is signed."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from tequio.errors import ConfigError, PermissionDenied

app = typer.Typer(help="What a party's owner allows: look at policies, and try one on a config.", no_args_is_help=True)

Named = Annotated[str, typer.Argument(metavar="POLICY", help="One that comes with tequio (open, hospital, strict), or "
                                                             "a file.")]


@app.command("list")
def every() -> None:
    """Name the policies that come with tequio, from the most open one to the strictest."""
    from textwrap import fill

    from tequio.gate.policy import policy_file, shipped

    for name in shipped():
        lines = policy_file(name).read_text(encoding="utf-8").splitlines()
        said = " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))
        typer.echo(fill(said.partition(". ")[0] + ".", 80, initial_indent=f"{name:9} ", subsequent_indent=" " * 10))


@app.command()
def show(policy: Named) -> None:
    """Print a policy as a file to start from: tequio policy show hospital > party/policy.toml"""
    from tequio.gate.policy import policy_file, read_policy

    path = policy_file(policy)
    read_policy(path, required=True)
    typer.echo(path.read_text(encoding="utf-8").rstrip())


@app.command("try")
def attempt(
    policy: Named,
    file: Annotated[Path, typer.Argument(metavar="CONFIG", help="The config of a run.")],
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Show what a policy would refuse of a run, why, and what the run would cost.

    Plays the first rounds with simulated parties, each of which has this policy. Ends with code 5 if the policy would
    stop the run.
    """
    from tequio.experiments.config.complete import complete, read_given
    from tequio.experiments.trying import document, tried_lines, tried_table, try_policy

    given = {key: value for key, value in read_given(file, settings or []).items() if key not in ("sweep", "search")}
    config = complete(given, source=file.name)
    if config.data.name == "parties":
        raise ConfigError("this config is for real parties, and a policy is tried on simulated ones",
                          remedy="rehearse it: tequio coordinator ready FILE.toml")
    found = try_policy(config, policy)
    if as_json:
        typer.echo(json.dumps(document(found)))
    else:
        from rich.console import Console

        console = Console()
        console.print(f"[bold]{policy}[/bold] on {file.name}: {found.algorithm}, {found.parties} parties, "
                      f"{found.played} of {found.rounds} rounds played\n", highlight=False)
        console.print(tried_table(found))
        for line in tried_lines(found):
            console.print(line, highlight=False, markup=False)
    if not found.allowed:
        raise typer.Exit(PermissionDenied.exit_code)
