"""What studies ask of runs party by party: who does better under which scheme, and what always guessing would give."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.experiments.scenario import make_scenario
from tequio.learners.metrics import higher_is_better

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.experiments.results import Result


def parties_ahead(run: Result, other: Result, metric: str) -> float:
    """Share of the parties that do better in one run than in another on their own test rows; equals count half."""
    mine, theirs = (_by_party(result, metric) for result in (run, other))
    common = [party for party in mine if party in theirs]
    if not common:
        raise ConfigError(f"the runs '{run.folder.name}' and '{other.folder.name}' have no party in common",
                          remedy="give both the same data, partition and seed")
    sign = 1 if higher_is_better(metric) else -1
    return fmean(0.5 + 0.5 * float(np.sign(sign * (mine[party] - theirs[party]))) for party in common)


def majority_accuracy(run: Result) -> float:
    """Accuracy of always giving the class that is most frequent among the parties' rows, on the coordinator's test
    rows, or on the parties' own where it has none."""
    scenario = make_scenario(run.config)
    population, test = scenario.population, scenario.test
    if test is not None and len(test):
        return _share(test, _most_frequent(population.dataset))
    return majority_at_parties(run, own=False)


def majority_at_parties(run: Result, *, own: bool = True) -> float:
    """Mean over the parties of the accuracy of always giving the class that is most frequent at the party itself (or
    among all parties' rows), on its own test rows."""
    population = make_scenario(run.config).population
    common = _most_frequent(population.dataset)
    views = [population.view(party) for party in range(len(population))]
    return fmean(_share(view.test, _most_frequent(view.train) if own else common) for view in views if len(view.test))


def _by_party(result: Result, metric: str) -> dict[str, float]:
    """A metric of each party that has it."""
    pairs = zip(result.parties["party"], result.parties[metric], strict=True)
    return {str(party): float(value) for party, value in pairs if isinstance(value, int | float)}


def _most_frequent(rows: Dataset) -> int:
    if rows.schema.target.kind != "classes":
        raise ConfigError("there is no most frequent class where the target has no classes",
                          remedy="ask for another metric")
    return int(np.bincount(rows.target.astype(np.int64), minlength=1).argmax())


def _share(rows: Dataset, code: int) -> float:
    return float((rows.target == code).mean())
