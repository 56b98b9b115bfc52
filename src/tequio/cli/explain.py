"""`tequio explain`: why a run's tree, forest or boosted trees decide as they do."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations when the command runs
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tequio.experiments.explaining.explaining import Explained
    from tequio.experiments.explaining.sources import PartyTrees


def explain(
    run: Annotated[str, typer.Argument(help="A run: its folder, its name under runs/, or 'last'.")],
    row: Annotated[list[int] | None, typer.Option(metavar="N", help="A test row, counted from 0 (repeat for "
                                                  "more).")] = None,
    party: Annotated[str | None, typer.Option(metavar="NAME", help="Explain this party's test rows instead of the "
                     "coordinator's, with its own tree.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the trees as a page to explore.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the tree as a picture for a "
                                             "document.")] = None,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rules as .txt, .json or .csv.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show where the local and the global tree part.")] = False,
) -> None:
    """Explain decisions: the ordered conditions of the local tree beside those of the global one.

    Then the rules, and the columns that decide most. Ensembles are explained by the votes of their trees. Of trees that
    are spread over parties with different columns, --party shows what that party sees.
    """
    from tequio.experiments.explaining.explaining import explain as explain_run
    from tequio.experiments.explaining.sources import PartyTrees

    explained = explain_run(run, row or (), party=party)
    if isinstance(explained, PartyTrees):
        _show_vertical(explained, as_json, html, svg or rules)
        return
    files = _write(explained, html, svg, rules)
    if as_json:
        typer.echo(json.dumps(explained.to_plain() | {"files": files}))
        return
    _print(explained, diff, files)


def _show_vertical(seen: PartyTrees, as_json: bool, html: Path | None, other: Path | None) -> None:
    from tequio.errors import ConfigError

    if other is not None:
        raise ConfigError(f"vertical trees cannot be written as '{other.name}'", remedy="draw them with --html FILE")
    if html is not None:
        seen.save_tree(html)
    files = [] if html is None else [str(html)]
    if as_json:
        typer.echo(json.dumps(seen.to_plain() | {"files": files}))
        return
    typer.echo("\n".join([str(seen), *(f"written   {file}" for file in files)]))


def _write(explained: Explained, html: Path | None, svg: Path | None, rules: Path | None) -> list[str]:
    from tequio.experiments.showing.explanations import save_rules, save_tree

    if html is not None:
        save_tree(explained, html, ".html")
    if svg is not None:
        save_tree(explained, svg, ".svg")
    if rules is not None:
        save_rules(explained, rules)
    return [str(path) for path in (html, svg, rules) if path is not None]


def _print(explained: Explained, diff: bool, files: list[str]) -> None:
    from rich.console import Console

    from tequio.experiments.showing.explanations import renderables

    console = Console(highlight=False)
    for part in renderables(explained, diff=diff):
        console.print(part)
    for file in files:
        console.print(f"written   {file}", markup=False, soft_wrap=True)
