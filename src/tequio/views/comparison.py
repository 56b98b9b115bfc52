"""A comparison in words and tables: for a terminal, for Markdown, LaTeX and CSV."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from tequio.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from tequio.experiments.comparing import Comparison, Pair, Standing
    from tequio.experiments.statistics import Friedman
    from tequio.experiments.statistics_pairs import Estimate

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

    from tequio.views.critical_difference import rank_lines

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


def _numbers(one: Standing) -> dict[str, Any]:
    values = one.values
    return {"mean": values.mean, "sd": values.sd, "low": values.low, "high": values.high, "rows": values.rows,
            "median": one.median, "mean rank": one.rank, "best": one.best}


def _numbers_of_pair(pair: Pair | None) -> dict[str, Any]:
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
