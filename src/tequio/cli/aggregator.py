"""`tequio aggregator`: stand between a group of parties and the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tequio.errors import ConfigError

app = typer.Typer(help="Stand between a group of parties and the coordinator.", no_args_is_help=True)

Home = Annotated[Path, typer.Option(help="The aggregator's folder: its key and its audit log.")]
_HOME = Path("aggregator")


@app.command()
def join(
    token: Annotated[str, typer.Argument(help="The join token, or a file that holds it.")],
    name: Annotated[str, typer.Option(help="What this aggregator is called: the name that the token is for.")],
    home: Home = _HOME,
) -> None:
    """Enrol with a token of `tequio coordinator token NAME --aggregator HOST:PORT`."""
    from tequio.cli.coordinator import where
    from tequio.engines.network.enrolment import join as enrol
    from tequio.engines.network.homes import PartyHome, read_token

    read = read_token(token)
    if not read.listen:
        raise ConfigError("this token is for a party", remedy="ask the coordinator for one that is made with: tequio "
                                                             "coordinator token NAME --aggregator HOST:PORT")
    pinned, made = enrol(home, read, name, {}), PartyHome(home)
    typer.echo(f"aggregator    {name}, parties dial {read.listen}\nlistens on    {where(made.bind)}\n"
               f"folder        {home}\ncoordinator   {pinned}\n\n"
               f"Next: tequio aggregator run --home {home}")


@app.command()
def run(
    home: Home = _HOME,
    patience: Annotated[int, typer.Option(help="Give up after so many attempts to dial (0: never).")] = 0,
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="The address of this machine to listen on, kept for the "
                                      "next start (default: loopback if parties dial a loopback address, else "
                                      "all).")] = "",
) -> None:
    """Dial the coordinator, let the group's parties dial in, and pass on merged results until you press Ctrl-C."""
    from tequio.engines.network.homes import PartyHome
    from tequio.experiments.deploying.deploying import serve_aggregator

    PartyHome(home).listen_on(bind)
    serve_aggregator(home, patience)


@app.command()
def audit(home: Home = _HOME, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check that nobody changed the audit log, and show its last entries."""
    from tequio.cli.coordinator import show_audit

    show_audit(home / "audit.jsonl", as_json)
