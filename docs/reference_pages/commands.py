"""The page on the command line, from the commands themselves."""

from __future__ import annotations

from typing import Any

from reference_pages.markup import page, table, text
from tequio.cli.main import make_app


def cli_page() -> str:
    """Every command with its arguments and options."""
    import typer

    command = typer.main.get_command(make_app())
    return page("Command line", f"{command.help} Every command takes `--help`. What a command prints for people "
                 "goes to stdout, progress to stderr; with `--json` stdout holds one JSON document and nothing else.",
                 _options(command), *_commands(command, "tequio"))


def _commands(group: Any, path: str) -> list[str]:
    parts = []
    for name, command in group.commands.items():
        line = " ".join([path, name, *(_usage(one) for one in command.params if one.param_type_name == "argument")])
        parts.append(f"## {path} {name}\n\n{text(command.help or '')}")
        if hasattr(command, "commands"):
            parts += _commands(command, f"{path} {name}")
        else:
            parts += [f"```text\n{line} [OPTIONS]\n```", _options(command)]
    return parts


def _usage(argument: Any) -> str:
    return argument.name.upper() if argument.required else f"[{argument.name.upper()}]"


def _options(command: Any) -> str:
    rows = []
    for one in command.params:
        if one.param_type_name == "argument":
            name = f"`{one.name.upper()}`"
        else:
            word = "" if one.is_flag else f" {one.metavar or one.name.upper()}"
            name = ", ".join(f"`{option}{word}`" for option in one.opts)
        default = "" if one.default in (None, False, "") or callable(one.default) else f"`{one.default}`"
        rows.append([name, default, text(one.help or "")])
    return table(["argument or option", "default", "meaning"], rows) if rows else ""
