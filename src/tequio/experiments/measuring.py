"""Evaluation of a run: metrics at the coordinator, at the parties, and how the parties differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.experiments.fairness import by_group, jain_index
from tequio.experiments.table import Table
from tequio.federation.federation import Traffic
from tequio.federation.rng import stream
from tequio.learners.metrics import higher_is_better, merge, spread, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from tequio.data.schema import Target
    from tequio.experiments.scenario import Scenario
    from tequio.experiments.tables import Evaluation
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.learners.learner import Tally

    Metrics = dict[str, float]


@dataclass(frozen=True)
class Measured:
    """Named metrics of one evaluation, one row a party, and what it cost to ask."""

    metrics: Metrics
    parties: Table
    traffic: Traffic


def measure(scenario: Scenario, how: Evaluation, federation: Federation, state: State) -> Measured:
    """Evaluate a state where the config says. Injected drop-outs are for training: nobody misses an evaluation."""
    asking = replace(federation.off_the_clock(), traffic=Traffic())
    metrics: Metrics = {}
    table = Table()
    target = federation.schema.target
    if "coordinator" in how.at:
        metrics |= _at_coordinator(scenario, asking, state)
    if "parties" in how.at:
        asked = evaluating_parties(asking, how.parties)
        split = scenario.population.split
        if split.validation:
            tallies = scenario.algorithm.evaluate(asking, state, "validation", asked)
            metrics |= named("validation", summarise(target, merge(tallies.values()))) if tallies else {}
        if split.test:
            tallies = scenario.algorithm.evaluate(asking, state, "test", asked)
            table = party_table(asking, target, tallies)
            metrics |= _between_parties(asking, tallies, table) if tallies else {}
    return Measured(metrics, table, asking.traffic)


def _at_coordinator(scenario: Scenario, federation: Federation, state: State) -> Metrics:
    """On the coordinator's own rows: test, and validation too where the parties keep none for that."""
    own = {"test": scenario.test, "validation": None if scenario.population.split.validation else scenario.validation}
    metrics: Metrics = {}
    for name, rows in own.items():
        tally = scenario.algorithm.score(federation, state, rows) if rows is not None and len(rows) else None
        metrics |= named(name, summarise(federation.schema.target, tally)) if tally is not None else {}
    return metrics


def _between_parties(federation: Federation, tallies: Mapping[int, Tally], table: Table) -> Metrics:
    """How the parties differ, and their categories where there are such."""
    found = differences(federation.schema.target, tallies, table)
    metric = next(name.rpartition(".")[0] for name in found)
    if higher_is_better(metric):
        found[f"{metric}.jain"] = jain_index([value for value in table[metric] if value is not None])
    return named("parties", found) | named("groups", by_group(federation, tallies, metric))


def evaluating_parties(federation: Federation, count: int) -> NDArray[np.int64]:
    """The same parties in every round of a run, so that rounds can be compared; 0 asks all that are eligible."""
    eligible = federation.eligible()
    if not count or count >= len(eligible):
        return eligible
    chosen = stream(federation.seed, "evaluating parties").choice(len(eligible), count, replace=False, shuffle=False)
    return eligible[np.sort(chosen)]


def party_table(federation: Federation, target: Target, tallies: Mapping[int, Tally]) -> Table:
    """Each party's name, rows and metrics."""
    table = Table()
    for party, tally in tallies.items():
        table.add({"party": federation.name(party), "rows": int(tally["rows"]), **summarise(target, tally)})
    return table


def main_metric(names: Iterable[str]) -> str:
    """The metric that stands for the rest: the first that is not the loss."""
    known = list(names)
    return next((name for name in known if name != "loss"), "loss")


def named(prefix: str, metrics: Metrics) -> Metrics:
    """Metrics with a prefix to their names."""
    return {f"{prefix}.{name}": value for name, value in metrics.items()}


def differences(target: Target, tallies: Mapping[int, Tally], table: Table) -> Metrics:
    """The main metric, macro-F1 and the loss: of all rows together, and how the parties spread around it."""
    pooled = summarise(target, merge(tallies.values()))
    found: Metrics = {}
    for metric in dict.fromkeys([main_metric(pooled), *(name for name in ("f1_macro", "loss") if name in pooled)]):
        values = spread([float(value) for value in table[metric] if value is not None],
                        high_is_good=higher_is_better(metric))
        del values["count"]
        found |= named(metric, {"pooled": pooled[metric], **values})
    return found
