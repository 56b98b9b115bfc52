"""A comparison in words and tables, for a terminal, Markdown, LaTeX, CSV and HTML; and critical-difference diagrams."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.running.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from tequio.experiments.comparing.comparing import Comparison, Pair, Standing
    from tequio.experiments.running.store import Plain
    from tequio.models.statistics import Estimate, Friedman, Ranking


MOST_PAIRS = 45
_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$"}


@dataclass(frozen=True)
class Sheet:
    """A table of texts. `strong` are the numbers of rows to stress."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()


def standings_sheet(comparison: Comparison) -> Sheet:
    """One line a method, the best first."""
    digits = digits_for(comparison)
    rows = [(one.method, number(one.values.mean, digits),
             "" if one.values.sd is None else number(one.values.sd, digits), interval(one.values, digits),
             number(one.median, digits), f"{one.rank:.3f}", f"{one.best} of {comparison.rows}")
            for one in comparison.standings]
    better = "more" if comparison.higher_is_better else "less"
    counted = f"{comparison.rows} rows" if comparison.rows > 1 else "one row"
    title = f"{comparison.metric} ({better} is better), {counted}"
    columns = ("method", "mean", "sd", "95 % interval", "median", "mean rank", "best in")
    if comparison.rows > 1:
        return Sheet(title, columns, tuple(rows), (0,))
    return Sheet(title, ("method", "value", "rank"), tuple((row[0], row[1], row[5]) for row in rows), (0,))


def differences_sheet(comparison: Comparison) -> Sheet:
    """One line a pair: how large the difference is, and how often which is ahead."""
    digits = digits_for(comparison)
    rows = [(f"{pair.first} - {pair.second}", _difference(pair, digits), f"{pair.effect:+.2f}",
             f"{pair.wins}/{pair.ties}/{pair.losses}") for pair in _shown(comparison)]
    return Sheet("differences, turned so that more is better",
                 ("first - second", "mean (95 % interval)", "effect", "won/level/lost"), tuple(rows),
                 _differing(comparison))


def tests_sheet(comparison: Comparison) -> Sheet:
    """One line a pair: what the tests say."""
    rows = [(f"{pair.first} - {pair.second}", p_text(pair.wilcoxon), p_text(pair.holm), p_text(pair.nemenyi),
             f"{pair.belief.first:.2f}/{pair.belief.alike:.2f}/{pair.belief.second:.2f}")
            for pair in _shown(comparison)]
    left = f"; {len(comparison.pairs) - MOST_PAIRS} more pairs in --json" if len(comparison.pairs) > MOST_PAIRS else ""
    return Sheet(f"tests (to the Bayesian one differences below {comparison.rope:.3g} do not matter{left})",
                 ("first - second", "Wilcoxon p", "Holm p", "Nemenyi p", "better/alike/worse"), tuple(rows),
                 _differing(comparison))


def sheets_of(comparison: Comparison) -> list[Sheet]:
    """All tables of a comparison."""
    more = [differences_sheet(comparison), tests_sheet(comparison)] if comparison.pairs else []
    return [standings_sheet(comparison), *more]


def sentences(comparison: Comparison) -> dict[str, list[str]]:
    """What is said beside the tables, by heading."""
    told = [] if comparison.friedman is None else [_omnibus(comparison.friedman)]
    return {"Test": [comparison.why], "Omnibus": told, "Verdict": [comparison.verdict],
            "Careful": list(comparison.cautions)}


def renderables(comparison: Comparison) -> Iterator[RenderableType]:
    """What a terminal shows, one after the other."""
    from rich.text import Text


    yield from map(_rich, sheets_of(comparison))
    if comparison.ranking is not None and len(comparison.ranking.methods) > 2:
        yield Text("\n".join(rank_lines(comparison.ranking, comparison.groups)) + "\n")
    for heading, lines in sentences(comparison).items():
        for line in lines:
            yield Text.assemble((f"{heading}: ", "bold yellow" if heading == "Careful" else "bold"), line)


def markdown(comparison: Comparison) -> str:
    """For a page or a pull request."""
    lines = [f"- **{heading}:** {line}" for heading, told in sentences(comparison).items() for line in told]
    return "\n\n".join([*map(_markdown, sheets_of(comparison)), "\n".join(lines)]) + "\n"


def latex(comparison: Comparison) -> str:
    """For a paper: tabulars with the verdict as a comment above."""
    said = "".join(f"% {heading}: {line}\n" for heading, told in sentences(comparison).items() for line in told)
    return said + "\n".join(map(_latex, sheets_of(comparison)))


def as_csv(comparison: Comparison) -> str:
    """One line a method, with its comparison with the best one."""
    best = comparison.standings[0].method
    table = Table()
    for one in comparison.standings:
        pair = next((pair for pair in comparison.pairs if (pair.first, pair.second) == (best, one.method)), None)
        table.add({"method": one.method, **_numbers(one), **_numbers_of_pair(pair)})
    return table.to_csv()


def digits_for(comparison: Comparison) -> int:
    """Four digits of shares, fewer of large numbers."""
    largest = max(abs(one.values.mean) for one in comparison.standings)
    return 4 if largest <= 10 else 2 if largest < 1000 else 0


def number(value: float, digits: int) -> str:
    """A number as people read it."""
    if not isfinite(value):
        return "never" if value > 0 else "-∞"
    return f"{value:.{digits}f}" if abs(value) >= 10.0 ** -digits or value == 0 or not digits else f"{value:.2g}"


def interval(values: Estimate, digits: int) -> str:
    """'0.91 to 0.93'; empty for a single row."""
    return "" if values.low is None or values.high is None else \
        f"{number(values.low, digits)} to {number(values.high, digits)}"


def p_text(p: float) -> str:
    """'0.0137', '2.2e-18'."""
    return f"{p:.4f}" if p >= 0.0001 or p == 0 else f"{p:.1e}"


def _difference(pair: Pair, digits: int) -> str:
    spread = interval(pair.difference, digits)
    return f"{pair.difference.mean:+.{digits}f}" + (f" ({spread})" if spread else "")


def _shown(comparison: Comparison) -> tuple[Pair, ...]:
    return comparison.pairs[:MOST_PAIRS]


def _differing(comparison: Comparison) -> tuple[int, ...]:
    return tuple(place for place, pair in enumerate(_shown(comparison)) if pair.differ)


def _omnibus(friedman: Friedman) -> str:
    ties = "" if friedman.corrected == friedman.statistic else \
        f" (corrected for ties: {friedman.corrected:.4f}, p = {p_text(friedman.corrected_p)})"
    return (f"Friedman's Q = {friedman.statistic:.4f}, p = {p_text(friedman.p)}{ties}; "
            f"Iman and Davenport's F = {friedman.f:.4f}, p = {p_text(friedman.f_p)}.")


def _numbers(one: Standing) -> Plain:
    values = one.values
    return {"mean": values.mean, "sd": values.sd, "low": values.low, "high": values.high, "rows": values.rows,
            "median": one.median, "mean rank": one.rank, "best": one.best}


def _numbers_of_pair(pair: Pair | None) -> Plain:
    if pair is None:
        return {}
    return {"behind best": pair.difference.mean, "behind best low": pair.difference.low,
            "behind best high": pair.difference.high, "effect": pair.effect, "cohen d": pair.cohen_d,
            "wilcoxon p": pair.wilcoxon, "holm p": pair.holm, "nemenyi p": pair.nemenyi,
            "probability best is better": pair.belief.first, "probability alike": pair.belief.alike}


def _rich(sheet: Sheet) -> RenderableType:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, title=sheet.title, title_justify="left", title_style="bold",
                      header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(sheet.columns):
        table.add_column(Text(column), justify="right" if place else "left", overflow="fold")
    for place, row in enumerate(sheet.rows):
        table.add_row(*(Text(cell) for cell in row), style="bold cyan" if place in sheet.strong else "")
    return table


def _markdown(sheet: Sheet) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rows = [[f"**{cell}**" if place in sheet.strong and not column else cell for column, cell in enumerate(row)]
            for place, row in enumerate(sheet.rows)]
    rule = "|---|" + "---:|" * (len(sheet.columns) - 1)
    return "\n".join([f"**{sheet.title}**", "", line(sheet.columns), rule, *map(line, rows)])


def _latex(sheet: Sheet) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(_LATEX.get(mark, mark) for mark in cell) for cell in cells) + r" \\"

    return "\n".join([f"% {sheet.title}", r"\begin{tabular}{l" + "r" * (len(sheet.columns) - 1) + "}", r"\hline",
                      line(sheet.columns), r"\hline", *map(line, sheet.rows), r"\hline", r"\end{tabular}", ""])


def comparison_html(comparison: Comparison) -> str:
    """Tables and sentences."""
    told = "".join(f"<p><strong>{heading}:</strong> {escape(line)}</p>"
                   for heading, lines in sentences(comparison).items() for line in lines)
    return "".join(map(sheet_html, sheets_of(comparison))) + told


def sheet_html(sheet: Sheet) -> str:
    """A table; stressed rows are bold. It scrolls by itself where the page is narrow."""
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in sheet.columns)
    body = "".join(_row(row, place in sheet.strong) for place, row in enumerate(sheet.rows))
    return (f"<div class='scroll' tabindex='0'><table><caption>{escape(sheet.title)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def _row(cells: tuple[str, ...], strong: bool) -> str:
    first, *rest = cells
    style = " class='strong' style='font-weight:bold'" if strong else ""
    return f"<tr{style}><th scope='row'>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"


_BAR = "#2c728e"
_LINE = "#444444"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def save_critical_differences(rankings: Mapping[str, Ranking], path: Path, *, title: str = "") -> None:
    """One diagram under the other, the best method at the left."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "a critical-difference diagram") from None
    heights = [2.0 + _depth(ranking) for ranking in rankings.values()]
    figure = Figure(figsize=(7, 0.78 * sum(heights) + 0.3), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=10)
    places = figure.add_gridspec(len(rankings), 1, height_ratios=heights)
    for number, (name, ranking) in enumerate(rankings.items()):
        _draw(figure.add_subplot(places[number]), name, ranking)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"the diagram cannot be saved as '{path}': {cause}",
                          remedy="give a .png, .svg or .pdf file in a folder that may be written") from cause


def rank_lines(ranking: Ranking, groups: Sequence[Sequence[str]], width: int = 41) -> list[str]:
    """The diagram for a terminal: a line a method, the best first; those of one group share a letter."""
    order = sorted(range(len(ranking.methods)), key=lambda place: ranking.ranks[place])
    longest = max(map(len, ranking.methods))
    lines = [" " * (longest + 2) + _axis(len(order), width)]
    for place in order:
        method, rank = ranking.methods[place], ranking.ranks[place]
        letters = "".join(_LETTERS[number % 26] if method in group else " " for number, group in enumerate(groups))
        lines.append(f"{method:<{longest}}  {_with_point(rank, len(order), width)}  {rank:6.3f}  {letters}".rstrip())
    told = "methods that share a letter cannot be told apart; " if groups else ""
    return [*lines, f"{told}critical difference {ranking.critical_difference:.4f}"]


def _column(rank: float, count: int, width: int) -> int:
    return round((rank - 1) / (count - 1) * (width - 1))


def _axis(count: int, width: int) -> str:
    marks = [" "] * (width + 2)
    for tick in range(1, count + 1):
        column = _column(tick, count, width)
        if count <= 12 or tick in (1, count):
            marks[column:column + len(str(tick))] = str(tick)
    return "".join(marks).rstrip()


def _with_point(rank: float, count: int, width: int) -> str:
    line = ["─"] * width
    for tick in range(1, count + 1):
        line[_column(tick, count, width)] = "┼"
    line[_column(rank, count, width)] = "●"
    return "".join(line)


def _depth(ranking: Ranking) -> float:
    """How far names and bars reach below the line."""
    names = 0.55 + 0.3 * ((len(ranking.methods) + 1) // 2 - 1)
    return max(0.85, names + 0.25, 0.3 + 0.1 * len(_bars(ranking)))


def _bars(ranking: Ranking) -> list[tuple[str, ...]]:
    return ranking.groups() if ranking.differ else [ranking.methods]


def _draw(axes: Any, name: str, ranking: Ranking) -> None:
    count = len(ranking.methods)
    axes.set_xlim(1 - 0.28 * (count - 1) - 0.1, count + 0.28 * (count - 1) + 0.1)
    axes.set_ylim(-_depth(ranking), 1.3)
    axes.axis("off")
    verdict = "differ" if ranking.differ else "no difference shown"
    axes.set_title(f"{name}: p = {ranking.p:.3g}, {verdict} (n = {ranking.problems})", fontsize=9, loc="left")
    axes.hlines(0, 1, count, color=_LINE, linewidth=1)
    for tick in range(1, count + 1):
        axes.vlines(tick, -0.05, 0.1, color=_LINE, linewidth=1)
        axes.text(tick, 0.16, str(tick), ha="center", fontsize=8)
    shown = min(ranking.critical_difference, count - 1)
    axes.hlines(0.75, 1, 1 + shown, color=_LINE, linewidth=2)
    axes.text(1 + shown / 2, 0.85, f"CD = {ranking.critical_difference:.4f}", ha="center", fontsize=8)
    _write_methods(axes, ranking)
    for height, group in enumerate(_bars(ranking)):
        ranks = [ranking.ranks[ranking.methods.index(method)] for method in group]
        axes.hlines(-0.14 - 0.1 * height, min(ranks) - 0.02, max(ranks) + 0.02, color=_BAR, linewidth=4)


def _write_methods(axes: Any, ranking: Ranking) -> None:
    """Names below the line, the better half to the left and the worse half to the right, so that none overlap."""
    count = len(ranking.methods)
    order = sorted(range(count), key=lambda method: ranking.ranks[method])
    for place, method in enumerate(order):
        rank, is_left = ranking.ranks[method], place < (count + 1) // 2
        height = -0.55 - 0.3 * (place if is_left else count - 1 - place)
        edge = 0.97 if is_left else count + 0.03
        axes.plot([rank, rank, edge], [0, height, height], color=_LINE, linewidth=0.8)
        axes.text(edge, height, f" {ranking.methods[method]} ({rank:.3f}) ", fontsize=8,
                  ha="right" if is_left else "left", va="center")
