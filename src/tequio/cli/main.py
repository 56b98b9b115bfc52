"""The `tequio` command. Each command is a file beside this one; heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tequio.cli import (
    aggregator,
    ask,
    bench,
    compare,
    components,
    coordinator,
    data,
    doctor,
    dossier,
    estimates,
    explain,
    export,
    fairness,
    flower,
    forget,
    init,
    looking,
    mcp,
    models,
    party,
    policy,
    predict,
    reproduce,
    run,
    search,
    serve,
    ui,
)

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "init": init.init, "run": run.run, "search": search.search, "ask": ask.ask,
    "estimates": estimates.estimates, "ui": ui.ui, "list": components.every,
    "show": components.show,
    "compare": compare.compare, "report": looking.report, "explain": explain.explain, "predict": predict.predict,
    "export": export.export, "serve": serve.serve, "models": models.app, "fairness": fairness.fairness,
    "participation": looking.participation, "leakage": looking.leakage, "probe": looking.probe,
    "forget": forget.forget, "dossier": dossier.dossier, "verify": looking.verify, "data": data.app,
    "coordinator": coordinator.app,
    "aggregator": aggregator.app, "party": party.app, "policy": policy.app, "flower": flower.app, "mcp": mcp.mcp,
    "reproduce": reproduce.reproduce,
    "bench": bench.bench, "doctor": doctor.doctor}
"""Each a function, or a group of commands; in the order of the help."""

_INTERRUPTED = 130


def make_app() -> typer.Typer:
    """The application with every command that is there."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
                      context_settings={"help_option_names": ["-h", "--help"]},
                      help="Federated learning: many parties train one model together, and no party's data leaves it.")
    app.callback()(_root)
    for name, command in COMMANDS.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from tequio import __version__

        typer.echo(f"tequio {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.",
                                          show_default=False)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error; goes anywhere.",
                                        show_default=False)] = False,
) -> None:
    pass


def call(arguments: list[str]) -> int:
    """Run a command line; the exit code. Every error becomes one screen on stderr."""
    debug = "--debug" in arguments
    try:
        command = typer.main.get_command(make_app())
        outcome = command.main([word for word in arguments if word != "--debug"], prog_name="tequio",
                               standalone_mode=False)
        if outcome == _INTERRUPTED:
            raise KeyboardInterrupt  # some versions of typer turn Ctrl-C into this code
        return outcome if isinstance(outcome, int) else 0
    except BaseException as error:
        from tequio.cli import errors

        return errors.show(error, debug=debug)


def main() -> NoReturn:
    """Entry point of the installed command."""
    sys.exit(call(sys.argv[1:]))
