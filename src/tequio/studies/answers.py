"""The rows of a study's table, from stored runs or from what is kept of them: published | ours | verdict.

Verdicts are those of `tequio.studies.verdicts`. Contests say which method ranks best over all finished problems and
seeds, and whether that may be chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from tequio.errors import ConfigError, nearest
from tequio.experiments.comparing.pairing import curve_metric, more_is_better
from tequio.models.statistics import Ranking, rank_methods, wilcoxon_p
from tequio.studies.comparisons import COMPARISONS, comparison
from tequio.studies.description import Cell, run_and_baseline
from tequio.studies.verdicts import Sample, interval, judge, judge_requirement, sample_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.running.results import Result
    from tequio.studies.description import Contest, Mean, Study
    from tequio.studies.plans import Plan, Store
    from tequio.studies.verdicts import Direction, Verdict


PARTY = "party."
"""What a metric of one party begins with: `party.NAME.accuracy` is on that party's own test rows."""


@dataclass(frozen=True)
class Row:
    """One line, answered as far as its runs are finished. `sd` is that of a sample, so one seed has none.

    `never` counts seeds that did not reach the target of the cell's metric; mean and spread are those of the others.
    `low` and `high` are the ends of the interval that the verdict rests on, `values` the numbers by seed where known.
    """

    cell: str
    published: float | None
    ours: float | None
    sd: float | None
    seeds: int
    verdict: Verdict
    metric: str
    direction: Direction
    margin: float | None
    low: float | None
    high: float | None
    required: float | None
    repeats: str
    seconds: float | None
    runs: tuple[str, ...]
    note: str
    problem: str
    never: int = 0
    values: Mapping[int, float] = field(default_factory=dict)
    deterministic: bool = False

    @property
    def sample(self) -> Sample:
        """What the seeds say."""
        return Sample(self.ours, self.sd, self.seeds, self.never, self.values)

    @property
    def counts(self) -> bool:
        """Whether the line is a published number of its own."""
        return self.published is not None and not self.repeats


def answer(plan: Plan, store: Store, problems: Mapping[str, str] | None = None) -> list[Row]:
    """All rows of the table: the cells, then the means over some of them."""
    values = {cell.name: _values(plan, cell, store) for cell in plan.study.cells}
    return [*(_row(plan, cell, values[cell.name], store, problems or {}) for cell in plan.study.cells),
            *(row_of(plan.study, mean, sample_of(_means(plan, mean, values)), other_data=plan.quick)
              for mean in plan.study.means)]


def row_of(study: Study, line: Cell | Mean, sample: Sample, *, other_data: bool = False,
           seconds: float | None = None, runs: tuple[str, ...] = (), note: str = "", problem: str = "") -> Row:
    """A line with its verdict."""
    cell = line if isinstance(line, Cell) else study.cells_of(line)[0].model_copy(
        update={"published": line.published, "required": None, "published_sd": None, "published_seeds": None})
    direction = cell.direction or ("higher" if higher_is_better(cell.metric) else "lower")
    margin = None if cell.published is None else study.margin_of(line.name, cell.metric, cell.published)
    spread = None if cell.published_seeds is None else Sample(cell.published, cell.published_sd, cell.published_seeds)
    found = interval(sample, published=spread, deterministic=cell.deterministic)
    if not sample.seeds:
        verdict: Verdict = "not run"
    elif cell.required is not None:
        verdict = "other data" if other_data else judge_requirement(cell.required, direction, found,
                                                                    never=bool(sample.never))
    elif cell.published is None or margin is None:
        verdict = "no published number"
    elif other_data or not cell.comparable:
        verdict = "other data"
    else:
        verdict = judge(cell.published, margin, direction, found, never=bool(sample.never))
    return Row(line.name, cell.published, sample.mean, sample.sd, sample.seeds, verdict, cell.metric, direction, margin,
               found.low if found else None, found.high if found else None, cell.required, line.repeats, seconds, runs,
               "; ".join(filter(None, (line.note, note))), problem, sample.never, sample.values, cell.deterministic)


def higher_is_better(metric: str) -> bool:
    """Whether more of a study's metric is better: of `test.accuracy` it is, of `seconds` and `train.loss` it is not."""
    compared = comparison(metric)
    return more_is_better(metric) if compared is None else compared.higher_is_better


def _values(plan: Plan, cell: Cell, store: Store) -> dict[int, float]:
    """The cell's metric by seed, of the seeds that are finished."""
    found = {runs[0].seed: [store.finished(planned) for planned in runs] for runs in plan.of_cell(cell)}
    return {seed: _value(cell, [result for result in results if result is not None])
            for seed, results in found.items() if None not in results}


def _row(plan: Plan, cell: Cell, values: Mapping[int, float], store: Store, problems: Mapping[str, str]) -> Row:
    planned = [one for runs in plan.of_cell(cell) if runs[0].seed in values for one in runs]
    whole = [result for one in planned if (result := store.finished(one)) is not None]
    first = [result.summary["seconds"] for one, result in zip(planned, whole, strict=True) if one.run == cell.run]
    reasons = [problems[one.hash] for runs in plan.of_cell(cell) for one in runs if one.hash in problems]
    return row_of(plan.study, cell, sample_of(values), other_data=plan.quick, seconds=fmean(first) if first else None,
                  runs=tuple(str(result.folder) for result in whole), problem=reasons[0] if reasons else "")


def _means(plan: Plan, mean: Mean, values: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """A mean over cells, of the seeds for which all of these are finished."""
    cells = plan.study.cells_of(mean)
    return {seed: fmean(values[cell.name][seed] for cell in cells) for seed in range(plan.seeds)
            if all(seed in values[cell.name] for cell in cells)}


def _value(cell: Cell, results: list[Result]) -> float:
    """What a cell's metric is for one seed."""
    compared = comparison(cell.metric)
    if compared is not None:
        return compared.measure(*results)
    return metric_of(results[0], cell.run, cell.metric)


def metric_of(result: Result, run: str, metric: str) -> float:
    """A metric of a stored run or of its curve, or of the baseline that a study's name of the run asks for."""
    baseline = run_and_baseline(run)[1]
    if baseline and baseline not in result.baselines:
        raise ConfigError(f"there is no baseline '{baseline}' beside the run '{run_and_baseline(run)[0]}'",
                          remedy=f"add it to the run: baselines = ['{baseline}']")
    asked, curve = result.baselines[baseline] if baseline else result, curve_metric(metric)
    if curve is not None:
        return curve.of(asked)
    if metric.startswith(PARTY):
        return _of_party(asked, metric)
    summary = asked.summary
    value = {**summary, **summary["metrics"]}.get(metric)
    if not isinstance(value, int | float):
        raise ConfigError(f"the study asks for '{metric}', which the run '{run}' does not have",
                          remedy=nearest(metric, [*summary["metrics"], *COMPARISONS, "seconds"]))
    return float(value)


def _of_party(result: Result, metric: str) -> float:
    """`party.NAME.METRIC` from the run's table of parties."""
    name, _, column = metric.removeprefix(PARTY).rpartition(".")
    found = next((row for row in result.parties if str(row["party"]) == name), None)
    if found is None:
        raise ConfigError(f"the study asks for '{metric}', and the run '{result.folder.name}' has no such party",
                          remedy=nearest(name, [str(party) for party in result.parties["party"]]))
    value = found.get(column)
    if not isinstance(value, int | float):
        raise ConfigError(f"the study asks for '{metric}', which the party '{name}' does not have",
                          remedy=nearest(column, result.parties.columns))
    return float(value)


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
