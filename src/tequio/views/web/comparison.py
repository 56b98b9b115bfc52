"""Runs beside each other: means of methods over seeds, and whether they differ by more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from tequio.errors import TequioError
from tequio.experiments.statistics import rank_methods, wilcoxon_p
from tequio.experiments.studies.answers import higher_is_better

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.statistics import Ranking
    from tequio.views.web.index import Entry


@dataclass(frozen=True)
class Standing:
    """A method: how many runs, their mean and standard deviation, and its mean rank where there is one."""

    method: str
    runs: int
    mean: float
    sd: float | None
    rank: float | None


@dataclass(frozen=True)
class Verdict:
    """What the statistics say, in sentences, and the methods in order."""

    standings: list[Standing]
    sentences: list[str]


def judge(entries: Sequence[Entry], values: Sequence[float], metric: str) -> Verdict:
    """Methods are algorithms, and a problem is a dataset with a seed; those that all methods solved are compared."""
    cells: dict[tuple[str, int | None], dict[str, float]] = {}
    by_method: dict[str, list[float]] = {}
    for entry, value in zip(entries, values, strict=True):
        cells.setdefault((entry.data, entry.seed), {})[entry.algorithm] = value
        by_method.setdefault(entry.algorithm, []).append(value)
    whole = [row for row in cells.values() if len(row) == len(by_method)]
    high = _is_higher_better(metric)
    methods = list(by_method)
    ranking = rank_methods([[row[method] for method in methods] for row in whole], methods, higher_is_better=high) \
        if len(whole) > 1 and len(methods) > 1 else None
    standings = [Standing(method, len(found), fmean(found), stdev(found) if len(found) > 1 else None,
                          ranking.ranks[place] if ranking else None)
                 for place, (method, found) in enumerate(by_method.items())]
    order = sorted(standings, key=lambda one: one.rank if one.rank is not None else -one.mean if high else one.mean)
    return Verdict(order, _sentences(ranking, whole, methods))


def _sentences(ranking: Ranking | None, whole: list[dict[str, float]], methods: list[str]) -> list[str]:
    if len(methods) < 2:
        return ["All these runs are of one algorithm, so there is nothing to test."]
    if ranking is None:
        return ["A test needs two or more pairs of dataset and seed that every algorithm was run with."]
    if len(methods) == 2:
        p = wilcoxon_p(*([row[method] for row in whole] for method in methods))
        return [f"Two methods on the same {len(whole)} pairs of dataset and seed: Wilcoxon's test gives p = {p:.3g}."]
    told = "differ" if ranking.differ else "cannot be told apart"
    return [f"{len(methods)} methods on the same {ranking.problems} pairs of dataset and seed: Friedman's test gives "
            f"p = {ranking.p:.3g}, so they {told}. Nemenyi's critical difference of mean ranks is "
            f"{ranking.critical_difference:.3g}."]


def _is_higher_better(metric: str) -> bool:
    try:
        return higher_is_better(metric)
    except TequioError:
        return True
