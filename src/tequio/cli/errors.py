"""Errors on one screen: place, cause, remedy, id; the trace only where it is asked for."""

from __future__ import annotations

import json
import re
import shlex
import traceback
from typing import TYPE_CHECKING, Any

import typer

from tequio.cli.run import how_to_resume
from tequio.errors import TequioError

if TYPE_CHECKING:
    from rich.console import RenderableType

_SETTING = re.compile(r"""data\.(?:(ignore|missing|minimum_count|target|id)|columns\.("(?:[^"\\]|\\.)*"|[\w-]+)) = """
                      r"""(\["(?:[^"\\]|\\.)*"\]|"\w+"|'\w+'|\d+)""")

INTERRUPTED = 130
UNEXPECTED = 70


def show(error: BaseException, *, debug: bool) -> int:
    """Print an error to stderr; the exit code it deserves."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if debug and not _is_usage(error):
        traceback.print_exception(error)
    if isinstance(error, TequioError):
        _panel(f"{error.id} error", error.message, error.remedy, _notes(error, debug))
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        typer.echo(f"\nStopped. {how_to_resume()}".rstrip(), err=True)
        return INTERRUPTED
    if _is_usage(error):
        return _show_usage(error)
    _panel("unexpected error", f"{type(error).__name__}: {error}\n{_place(error)}",
           "this is a mistake in tequio or in a plugin; please report it with what --debug prints", "")
    return UNEXPECTED


def as_options(text: str) -> str:
    """What says which key of a config to set, as options of a command that reads one table."""
    def option(found: re.Match[str]) -> str:
        key, column, value = found.groups()
        said = json.loads(f'"{value[1:-1]}"' if value[0] == "'" else value)
        if not column:
            return f"--{key.replace('_', '-')} {shlex.quote(str(said[0] if isinstance(said, list) else said))}"
        name = json.loads(column) if column.startswith('"') else column
        return f"--kind {shlex.quote(f'{name}={said}')}"

    return _SETTING.sub(option, text)


def _notes(error: TequioError, debug: bool) -> str:
    told = f"error id: {error.id} (see the error index in the docs)" + ("" if debug else "; --debug shows the trace")
    return "\n".join(filter(None, [told, how_to_resume()]))


def _panel(title: str, cause: str, remedy: str, notes: str) -> None:
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.text import Text

    parts: list[RenderableType] = [Text(cause)]
    if remedy:
        parts += [Text(), Text.assemble(("What to do: ", "bold green"), remedy)]
    if notes:
        parts += [Text(), Text(notes, style="dim")]
    Console(stderr=True).print(Panel(Group(*parts), title=Text(title, style="bold red"), title_align="left",
                                     border_style="red", padding=(1, 2)))


def _is_usage(error: BaseException) -> bool:
    """Whether the command line itself was wrong (typer brings its own click or uses the installed one)."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _show_usage(error: Any) -> int:
    if not error.format_message():  # no command was given, and the help is on the screen already
        return int(error.exit_code)
    context = getattr(error, "ctx", None)
    hint = f"type: {context.command_path} --help" if context else "type: tequio --help"
    _panel("usage error", error.format_message(), hint, "")
    return int(error.exit_code)


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f"at {frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else ""
