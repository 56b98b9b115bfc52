"""`tequio flower`: the same runs inside a Flower federation that is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tequio.cli.party import (
    Data,
    Id,
    Ignore,
    Kind,
    MappingFile,
    MinimumCount,
    Missing,
    Partition,
    Prepare,
    Query,
    SchemaFile,
    Share,
    Target,
    data_facts,
    look_at,
)

app = typer.Typer(help="Run inside a Flower federation: its SuperNodes are the parties.", no_args_is_help=True)

Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the config.")]
Home = Annotated[Path, typer.Option(help="The party's folder: its policy, its audit log, its states.")]
_HOME = Path("party")


@app.command("app")
def write(
    file: Annotated[Path, typer.Argument(help="A config.")],
    folder: Annotated[Path, typer.Argument(help="Where the app goes.")],
    settings: Settings = None,
    run: Annotated[str, typer.Option(help="What the run is called (default: its config's name, the time and a hash).",
                                     metavar="NAME")] = "",
) -> None:
    """Write the folder of a Flower app that runs a config. Run again, it goes on where it stopped."""
    from tequio.experiments.deploying.flower_coordinator import write_app

    name = write_app(file, folder, settings or [], run,
                     lambda kind, facts: typer.echo(f"{kind}: {facts['message']}", err=True))
    typer.echo(f"app           {folder}\nrun           {name}\n\nNext: FLWR_TELEMETRY_ENABLED=0 flwr run {folder} "
               "SUPERLINK --stream")


@app.command()
def join(
    data: Data,
    name: Annotated[str, typer.Option(help="What this party is called.")] = "",
    home: Home = _HOME,
    query: Query = "",
    target: Target = "",
    id: Id = "",
    schema: SchemaFile = None,
    mapping: MappingFile = None,
    ignore: Ignore = None,
    kind: Kind = None,
    minimum_count: MinimumCount = 10,
    missing: Missing = "error",
    prepare: Prepare = None,
    partition: Partition = None,
    party: Share = "",
) -> None:
    """Make a party's folder for its SuperNode. Nothing is sent anywhere."""
    from tequio.engines.network.homes import PartyHome

    facts = data_facts(data, target, id, schema, missing, prepare, partition, query, mapping, ignore, minimum_count,
                       kind)
    called, holding = look_at(name or party, facts)
    PartyHome.create(home, called, {"data": facts})
    typer.echo(f"party         {called}, {holding.rows} rows\nfolder        {home}\n\n"
               f"Next: write a policy in {home / 'policy.toml'} if you want one, then start the SuperNode with\n"
               f"  --node-config 'tequio-home=\"{home.resolve()}\"'")


@app.command()
def serve(home: Home = _HOME) -> None:
    """Stay up beside the party's SuperNode, with its rows open: tasks then start in a second. Logs JSON lines."""
    from tequio.experiments.deploying.flower_party import serve as stay

    stay(home)
