"""What a report is made of: the runs sorted by method, the metric, and the comparison where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tequio.errors import TequioError
from tequio.experiments.comparing import Comparison, compare_values
from tequio.experiments.finding import contenders
from tequio.experiments.pairing import label_of, method_keys, shared_metric, values_of
from tequio.experiments.scenario import make_scenario
from tequio.experiments.store import BASELINES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tequio.experiments.finding import Contender
    from tequio.experiments.results import Result
    from tequio.experiments.scenario import Scenario

MOST_SHOWN = 6
"""Of how many methods a report shows the details: who holds what, trust, trees."""


@dataclass(frozen=True)
class Material:
    """The finished runs of a report by method, and what was said of the others.

    `main` is the method that the report is about: the best one that is no baseline.
    """

    methods: dict[str, list[Contender]]
    main: str
    metric: str
    comparison: Comparison | None
    not_compared: str
    problems: list[str]

    @property
    def runs(self) -> list[Contender]:
        """All runs, method by method."""
        return [run for runs in self.methods.values() for run in runs]

    @property
    def first(self) -> Result:
        """The run whose data and settings are shown."""
        return self.methods[self.main][0].result

    @cached_property
    def shown(self) -> dict[str, Result]:
        """The first run of each method, whose details are shown."""
        return {method: runs[0].result for method, runs in list(self.methods.items())[:MOST_SHOWN]}

    @cached_property
    def scenario(self) -> Scenario | None:
        """What the first run worked on; nothing where its data is not here."""
        try:
            return make_scenario(self.first.config)
        except TequioError:
            return None


def gather_material(folders: Sequence[Path], metric: str = "") -> Material:
    """Read the runs. A run's baselines are methods of their own where it is the only method."""
    runs, problems = contenders(folders)
    keys = method_keys(runs)
    if not keys:
        runs += contenders([beside.folder for run in runs for beside in run.result.baselines.values()])[0]
        keys = method_keys(runs)
    chosen = metric or shared_metric([run.result for run in runs])
    comparison, reason = _compared(runs, chosen)
    methods: dict[str, list[Contender]] = {}
    for run in runs:
        methods.setdefault(label_of(run, keys) or str(run.result.summary["algorithm"]), []).append(run)
    if comparison is not None:
        order = [standing.method for standing in comparison.standings]
        methods = dict(sorted(methods.items(), key=lambda item: order.index(item[0]) if item[0] in order else 99))
    main = next((method for method, group in methods.items() if not _is_baseline(group[0])), next(iter(methods)))
    return Material(methods, main, chosen, comparison, reason, problems)


def _is_baseline(run: Contender) -> bool:
    return run.result.folder.parent.name == BASELINES


def _compared(runs: list[Contender], metric: str) -> tuple[Comparison | None, str]:
    try:
        return compare_values(values_of(runs, metric)), ""
    except TequioError as cause:
        return None, cause.message if len(runs) > 1 else ""


def numbers_of(result: Result, column: str) -> list[float]:
    """A column of the parties' table."""
    return [float(value) for value in result.parties[column] if isinstance(value, int | float)] \
        if column in result.parties.columns else []


def trust_of(result: Result) -> dict[int, dict[str, float]]:
    """What the aggregator trusted each party with, round by round; empty where it weighs nobody."""
    found: dict[int, dict[str, float]] = {}
    for event in result.events:
        if event["event"] == "aggregation" and "trust" in event:
            pairs: Any = zip(event["parties"], event["trust"], strict=True)
            found[int(event["round"])] = {str(party): float(trust) for party, trust in pairs if trust is not None}
    return found
