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
from tequio.experiments.studies.comparisons import COMPARISONS
from tequio.experiments.studies.curves import curve_metric
from tequio.learners.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.experiments.results import Result
    from tequio.experiments.studies.description import Cell
    from tequio.experiments.studies.plans import Plan
    from tequio.experiments.studies.running import Store

Verdict = Literal["reached", "below", "differs", "no published number", "not comparable", "not run"]


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
    """All rows of the table."""
    return [_row(plan, cell, store, problems or {}) for cell in plan.study.cells]


def document(plan: Plan, rows: list[Row], figures: list[str]) -> dict[str, Any]:
    """The whole table as plain data."""
    study = plan.study
    notes = [study.quick.note, *study.notes] if plan.quick else list(study.notes)
    return {"study": study.name, "title": study.title, "source": study.source,
            "form": "quick" if plan.quick else "full", "notes": notes,
            "rows": as_json([asdict(row) for row in rows]), "figures": figures}


def judge(cell: Cell, mean: float | None, *, comparable: bool = True) -> Verdict:
    """The verdict on a mean, as this module defines it."""
    if mean is None:
        return "not run"
    if cell.published is None:
        return "no published number"
    if not (comparable and cell.comparable):
        return "not comparable"
    shortfall = cell.published - mean if higher_is_better(cell.metric) else mean - cell.published
    shortfall = abs(shortfall) if cell.both_sides else shortfall
    # A mean of exactly the border counts as reached, although 0.99 - 0.005 is not 0.985 in binary.
    if shortfall <= cell.tolerance + 1e-12:
        return "reached"
    return "differs" if cell.both_sides else "below"


def higher_is_better(metric: str) -> bool:
    """Whether more of a study's metric is better: of `test.accuracy` it is, of `seconds` and `train.loss` it is not."""
    if metric in COMPARISONS:
        return COMPARISONS[metric].higher_is_better
    curve = curve_metric(metric)
    if curve is not None:
        own = curve.reading.higher_is_better
        return higher_is_better(curve.metric) if own is None else own
    return any(METRICS[part].higher_is_better for part in metric.split(".") if part in METRICS)


def _row(plan: Plan, cell: Cell, store: Store, problems: Mapping[str, str]) -> Row:
    found = [[store.finished(planned) for planned in runs] for runs in plan.of_cell(cell)]
    whole = [[result for result in results if result is not None] for results in found if None not in results]
    values = [_value(cell, results) for results in whole]
    reaching = [value for value in values if isfinite(value)]
    mean = fmean(reaching) if reaching else None
    judged = mean if len(reaching) == len(values) else inf
    first = [results[0] for results in whole]
    reasons = [problems[planned.hash] for runs in plan.of_cell(cell) for planned in runs if planned.hash in problems]
    return Row(cell.name, cell.published, mean, stdev(reaching) if len(reaching) > 1 else None, len(values),
               judge(cell, judged, comparable=not plan.quick), cell.metric, cell.tolerance,
               fmean(result.summary["seconds"] for result in first) if first else None,
               tuple(str(result.folder) for results in whole for result in results), cell.note,
               reasons[0] if reasons else "", len(values) - len(reaching))


def _value(cell: Cell, results: list[Result]) -> float:
    """What a cell's metric is for one seed."""
    if cell.metric in COMPARISONS:
        return COMPARISONS[cell.metric].measure(*results)
    curve = curve_metric(cell.metric)
    if curve is not None:
        return curve.of(results[0])
    summary = results[0].summary
    value = {**summary, **summary["metrics"]}.get(cell.metric)
    if not isinstance(value, int | float):
        raise ConfigError(f"the cell '{cell.name}' asks for '{cell.metric}', which the run '{cell.run}' does not have",
                          remedy=nearest(cell.metric, [*summary["metrics"], *COMPARISONS, "seconds"]))
    return float(value)
