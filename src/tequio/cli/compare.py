"""`tequio compare`: methods side by side, with the test that fits and what to be careful about."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations when the command runs
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.experiments.comparing.comparing import Comparison


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, folders of runs (a sweep), patterns "
                                              "such as 'runs/a-*', or one CSV file with a column a method.")],
    metric: Annotated[str, typer.Option(help="What to compare, such as test.accuracy, seconds or "
                                             "'rounds_to(test.accuracy, 0.9)'.", show_default=False)] = "",
    by: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Keys of the config that make the methods "
                  "(default: all that differ and are not about data, devices or attack).")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Only methods whose name fits.")] = None,
    against: Annotated[str, typer.Option(metavar="METHOD", help="Compare this one with each other one.",
                                         show_default=False)] = "",
    over: Annotated[Literal["auto", "seeds", "problems"], typer.Option(help="What a row is: a seed, or a problem's "
                                                                            "mean over its seeds.")] = "auto",
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.5, help="How often a test may be wrong.")] = 0.05,
    rope: Annotated[float | None, typer.Option(min=0, help="Differences below this do not matter (default: 0.01 of "
                                                           "shares, else a hundredth of the mean).")] = None,
    baselines: Annotated[bool, typer.Option("--baselines", help="The runs' baselines are methods too.")] = False,
    lower: Annotated[bool, typer.Option("--lower", help="Less is better, whatever the metric is called.")] = False,
    diagram: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the critical differences (.png, .svg, "
                                                                      ".pdf).")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a method.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare methods on the same seeds and partitions: spread, effect sizes, and the tests that fit.

    Two methods: Wilcoxon's signed-rank test. More: Friedman's, then Nemenyi's, or Wilcoxon's with Holm's correction
    against one method. The Bayesian signed-rank test stands beside them.
    """
    from tequio.experiments.comparing.comparing import compare as compare_runs

    found = compare_runs(*runs, metric=metric, by=by or (), only=only or (), against=against, over=over,
                         alpha=alpha, rope=rope, baselines=baselines, lower_is_better=True if lower else None)
    if diagram is not None:
        _draw(found, diagram)
    wanted = [form for form, chosen in (("markdown", markdown), ("latex", latex), ("csv", as_csv), ("json", as_json))
              if chosen]
    _print(found, wanted, diagram)


def _draw(found: Comparison, path: Path) -> None:
    from tequio.errors import ConfigError
    from tequio.experiments.showing.comparison import save_critical_differences

    if found.ranking is None:
        raise ConfigError("one row has no ranks to draw", remedy="give more seeds or problems")
    # The diagram joins what the decision joined, which is Iman and Davenport's.
    ranking = found.ranking if found.friedman is None else replace(found.ranking, p=found.friedman.f_p)
    save_critical_differences({found.metric: ranking}, path)


def _print(found: Comparison, wanted: list[str], diagram: Path | None) -> None:
    from rich.console import Console

    from tequio.errors import ConfigError
    from tequio.experiments.showing import comparison

    if len(wanted) > 1:
        raise ConfigError(f"--{wanted[0]} and --{wanted[1]} cannot both be printed", remedy="ask for one of them")
    forms: dict[str, Callable[[Comparison], str]] = {
        "markdown": comparison.markdown, "latex": comparison.latex, "csv": comparison.as_csv,
        "json": lambda one: json.dumps(one.to_dict())}
    if wanted:
        return typer.echo(forms[wanted[0]](found).rstrip("\n"))
    console = Console()
    for part in comparison.renderables(found):
        console.print(part)
    if diagram is not None:
        console.print(f"Drawn: {diagram}", highlight=False, soft_wrap=True)
    return None
