"""Critical-difference diagrams: mean ranks on a line, bars over methods that do not differ; figure and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tequio.experiments.statistics import Ranking

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
