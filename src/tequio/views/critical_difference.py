"""Critical-difference diagrams: mean ranks on a line, and bars over methods that do not differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tequio.experiments.statistics import Ranking

_BAR = "#2c728e"
_LINE = "#444444"


def save_critical_differences(rankings: Mapping[str, Ranking], path: Path, *, title: str = "") -> None:
    """One diagram under the other, the best method at the left."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "a critical-difference diagram") from None
    figure = Figure(figsize=(7, 1.9 * len(rankings) + 0.5), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=10)
    for number, (name, ranking) in enumerate(rankings.items(), start=1):
        _draw(figure.add_subplot(len(rankings), 1, number), name, ranking)
    figure.savefig(path, dpi=120)


def _draw(axes: Any, name: str, ranking: Ranking) -> None:
    count = len(ranking.methods)
    axes.set_xlim(1 - 0.28 * (count - 1) - 0.1, count + 0.28 * (count - 1) + 0.1)
    axes.set_ylim(-1.4, 1.3)
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
    for height, group in enumerate(ranking.groups() if ranking.differ else [ranking.methods]):
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
