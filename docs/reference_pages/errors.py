"""The page on errors: ids and exit codes, and every message with its remedy, found in the code that raises them."""

from __future__ import annotations

import ast
from pathlib import Path

import tequio
from reference_pages.markup import anchor, first_line, page, table, text
from tequio import errors
from tequio.cli import errors as cli_errors


def errors_page() -> str:
    """Every error: id, exit code, and what its messages say to do, found in the code that raises them."""
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.TequioError)]
    raised = raised_errors({one.__name__ for one in classes})
    overview = [[anchor(one.id), f"`{one.__name__}`", str(one.exit_code), text(first_line(one))] for one in classes]
    overview += [["", "wrong command line", "2", "A command, argument or option is wrong."],
                 ["", "any other exception", str(cli_errors.UNEXPECTED), "A mistake in tequio or in a plugin."],
                 ["", "Ctrl-C", str(cli_errors.INTERRUPTED), "Stopped; the message says how to go on."]]
    sections = [f"## {one.id}\n\n{text(first_line(one))} Exit code {one.exit_code}.\n\n"
                + table(["message", "what to do"], sorted(raised.get(one.__name__, []))) for one in classes]
    return page("Errors", "An error names the place, the cause and what to do, and ends the command with its exit "
                 "code. `--debug` adds the trace. All are `tequio.TequioError`; in the messages below `…` stands for "
                 "the names and numbers of your case.",
                 table(["id", "error", "exit code", "means"], overview), *sections)


def raised_errors(names: set[str]) -> dict[str, list[list[str]]]:
    """Messages and remedies by error, from every place in the package that makes one."""
    found: dict[str, list[list[str]]] = {}
    for path in sorted(Path(tequio.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names and node.args:
                message = _spelt(node.args[0])
                remedy = next((_remedy(one.value) for one in node.keywords if one.arg == "remedy"), "")
                if message.strip("… "):
                    found.setdefault(node.func.id, []).append([text(message), text(remedy)])
    found["MissingExtra"] = [["… needs the package '…', which is not installed", "type: pip install 'tequio[…]'"]]
    return {name: [list(row) for row in {tuple(row) for row in rows}] for name, rows in found.items()}


def _remedy(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "nearest":
        return "the message names the nearest one that there is"
    return _spelt(node) if _spelt(node).strip("… ") else ""


def _spelt(node: ast.expr) -> str:
    """A string as it is written, with `…` for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_spelt(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _spelt(node.left) + _spelt(node.right)
    return "…"
