"""The `tequio` command. Each command is a file beside this one; heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, NoReturn

import typer

COMMANDS = ("run", "search", "ui", "list", "show", "compare", "report", "explain", "predict", "participation",
            "leakage", "probe", "verify", "data", "models", "coordinator", "aggregator", "party", "flower",
            "reproduce", "bench", "doctor")
"""A command is `tequio/cli/<name>.py` with a function of that name, or with a group of commands called `app`."""

_INTERRUPTED = 130


def make_app() -> typer.Typer:
    """The application with every command that is there."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
                      context_settings={"help_option_names": ["-h", "--help"]},
                      help="Federated learning: many parties train one model together, and no party's data leaves it.")
    app.callback()(_root)
    for name in COMMANDS:
        if find_spec(f"tequio.cli.{name}") is None:
            continue
        module = import_module(f"tequio.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
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
        from tequio.cli.errors import show

        return show(error, debug=debug)


def main() -> NoReturn:
    """Entry point of the installed command."""
    sys.exit(call(sys.argv[1:]))
