"""Contests of a study: which method ranks best over all finished problems and seeds, and whether it is chance."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from tequio.experiments.statistics import Ranking, rank_methods, wilcoxon_p
from tequio.experiments.studies.answers import higher_is_better, metric_of
from tequio.experiments.studies.description import run_and_baseline

if TYPE_CHECKING:
    from tequio.experiments.studies.description import Contest
    from tequio.experiments.studies.plans import Plan
    from tequio.experiments.studies.running import Store


@dataclass(frozen=True)
class Decided:
    """A contest as far as its runs are finished.

    `ranking` takes every seed of every problem as a row, as the sources do; `by_means` takes a problem's mean as a row,
    which does not count seeds of one problem as if they were independent. `wilcoxon` is that of two methods' means,
    or of their seeds where there is but one problem.
    """

    name: str
    metric: str
    published: float | None
    published_ranks: tuple[float, ...]
    ranking: Ranking | None
    by_means: Ranking | None
    wilcoxon: float | None
    wins: dict[str, int]
    note: str


def decide(plan: Plan, store: Store) -> list[Decided]:
    """All contests of a study."""
    return [_decided(plan, store, contest) for contest in plan.study.contests]


def _decided(plan: Plan, store: Store, contest: Contest) -> Decided:
    problems = [rows for metric, problem in contest.problems() if (rows := _rows(plan, store, metric, problem))]
    metric = contest.metric or contest.metrics[0]
    problems = _never_is_last(problems)
    rows, methods = [row for problem in problems for row in problem], list(contest.methods)
    if not rows:
        return Decided(contest.name, metric, contest.published, tuple(contest.ranks), None, None, None, {},
                       contest.note)
    higher = higher_is_better(metric)
    means = [[fmean(values) for values in zip(*problem, strict=True)] for problem in problems]
    best = [max(row) if higher else min(row) for row in rows]
    wins = {method: sum(row[place] == top for row, top in zip(rows, best, strict=True))
            for place, method in enumerate(methods)}
    pairs = means if len(means) > 1 else rows
    signed = wilcoxon_p(*zip(*pairs, strict=True)) if len(methods) == 2 and len(pairs) > 1 else None
    return Decided(contest.name, metric, contest.published, tuple(contest.ranks),
                   rank_methods(rows, methods, higher_is_better=higher),
                   rank_methods(means, methods, higher_is_better=higher), signed, wins, contest.note)


def _never_is_last(problems: list[list[list[float]]]) -> list[list[list[float]]]:
    """A seed that never got there (to an accuracy, say) counts as worse than all that did, and alike."""
    reached = [abs(value) for rows in problems for row in rows for value in row if isfinite(value)]
    last = 2 * max(reached, default=1.0)
    return [[[min(value, last) for value in row] for row in rows] for rows in problems]


def _rows(plan: Plan, store: Store, metric: str, problem: tuple[str, ...]) -> list[list[float]]:
    """One row a seed for which every method has come to its end on this problem."""
    found = []
    for planned in zip(*(plan.runs[run_and_baseline(run)[0]] for run in problem), strict=True):
        results = [store.finished(run) for run in planned]
        if None not in results:
            found.append([metric_of(result, run, metric)  # type: ignore[arg-type]
                          for result, run in zip(results, problem, strict=True)])
    return found
