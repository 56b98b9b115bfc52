"""The rows of a study's table, always from stored runs: published | ours | verdict.

The verdict on a cell follows from the mean of its metric over the seeds that are finished:

- `not run`: no seed is finished;
- `no published number`: the source gives none;
- `not comparable`: the number comes from other data than the published one (the quick form, or a cell that says so);
- `reached`: the mean is at least the published value minus the tolerance (for losses, distances and times: at most the
  published value plus the tolerance; for cells of `both_sides`: no further from it than the tolerance);
- `differs`: a cell of `both_sides` is further from the published value than the tolerance;
- `below`: none of these: ours is worse by more than the tolerance, or a seed never reached the target.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf, isfinite
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from tequio.errors import ConfigError, nearest
from tequio.experiments.recording import as_json
from tequio.experiments.studies.comparisons import COMPARISONS, comparison
from tequio.experiments.studies.curves import curve_metric
from tequio.experiments.studies.description import run_and_baseline
from tequio.learners.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.results import Result
    from tequio.experiments.studies.contests import Decided
    from tequio.experiments.studies.description import Cell, Mean
    from tequio.experiments.studies.plans import Plan
    from tequio.experiments.studies.running import Store

Verdict = Literal["reached", "below", "differs", "no published number", "not comparable", "not run"]


PARTY = "party."
"""What a metric of one party begins with: `party.NAME.accuracy` is on that party's own test rows."""


@dataclass(frozen=True)
class Row:
    """One cell, answered as far as its runs are finished. `sd` is that of a sample, so one seed has none.

    `never` counts seeds that did not reach the target of the cell's metric; mean and spread are those of the others.
    """

    cell: str
    published: float | None
    ours: float | None
    sd: float | None
    seeds: int
    verdict: Verdict
    metric: str
    tolerance: float
    seconds: float | None
    runs: tuple[str, ...]
    note: str
    problem: str
    never: int = 0


def answer(plan: Plan, store: Store, problems: Mapping[str, str] | None = None) -> list[Row]:
    """All rows of the table: the cells, then the means over some of them."""
    values = {cell.name: _values(plan, cell, store) for cell in plan.study.cells}
    return [*(_row(plan, cell, values[cell.name], store, problems or {}) for cell in plan.study.cells),
            *(_mean_row(plan, mean, values) for mean in plan.study.means)]


def document(plan: Plan, rows: list[Row], figures: list[str], contests: list[Decided] | None = None) -> dict[str, Any]:
    """The whole table as plain data."""
    study = plan.study
    notes = [study.quick.note, *study.notes] if plan.quick else list(study.notes)
    return {"study": study.name, "title": study.title, "source": study.source,
            "form": "quick" if plan.quick else "full", "notes": notes,
            "rows": as_json([asdict(row) for row in rows]),
            "contests": as_json([asdict(contest) for contest in contests or []]), "figures": figures}


def judge(line: Cell | Mean, metric: str, value: float | None, *, comparable: bool = True,
          both_sides: bool = False) -> Verdict:
    """The verdict on a mean over seeds, as this module defines it."""
    if value is None:
        return "not run"
    if line.published is None:
        return "no published number"
    if not comparable:
        return "not comparable"
    shortfall = line.published - value if higher_is_better(metric) else value - line.published
    # A mean of exactly the border counts as reached, although 0.99 - 0.005 is not 0.985 in binary.
    if (abs(shortfall) if both_sides else shortfall) <= line.tolerance + 1e-12:
        return "reached"
    return "differs" if both_sides else "below"


def higher_is_better(metric: str) -> bool:
    """Whether more of a study's metric is better: of `test.accuracy` it is, of `seconds` and `train.loss` it is not."""
    compared = comparison(metric)
    if compared is not None:
        return compared.higher_is_better
    curve = curve_metric(metric)
    if curve is not None:
        own = curve.reading.higher_is_better
        return higher_is_better(curve.metric) if own is None else own
    return any(METRICS[part].higher_is_better for part in metric.split(".") if part in METRICS)


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
    reaching = {seed: value for seed, value in values.items() if isfinite(value)}
    mean = fmean(reaching.values()) if reaching else None
    verdict = judge(cell, cell.metric, mean if len(reaching) == len(values) else inf, both_sides=cell.both_sides,
                    comparable=cell.comparable and not plan.quick)
    return Row(cell.name, cell.published, mean, _sd(reaching), len(values), verdict, cell.metric,
               cell.tolerance, fmean(first) if first else None, tuple(str(result.folder) for result in whole),
               cell.note, reasons[0] if reasons else "", len(values) - len(reaching))


def _mean_row(plan: Plan, mean: Mean, values: Mapping[str, Mapping[int, float]]) -> Row:
    """A mean over cells, of the seeds for which all of these are finished."""
    cells = plan.study.cells_of(mean)
    seeds = [seed for seed in range(plan.seeds) if all(seed in values[cell.name] for cell in cells)]
    means = {seed: fmean(values[cell.name][seed] for cell in cells) for seed in seeds}
    ours, metric = fmean(means.values()) if means else None, cells[0].metric
    return Row(mean.name, mean.published, ours, _sd(means), len(means),
               judge(mean, metric, ours, comparable=not plan.quick), metric, mean.tolerance, None, (), mean.note, "")


def _sd(values: Mapping[int, float]) -> float | None:
    """The standard deviation of a sample; none of a single seed, nor where a seed never got there."""
    return stdev(values.values()) if len(values) > 1 and all(map(isfinite, values.values())) else None


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
