"""Runs as methods on blocks: paired by data, partition and seed, told apart by what else their configs differ in.

A block is a problem (the tables `data`, `devices`, `availability` and `attack` of the config) and a seed: all methods
of a block had the same rows, dealt to the same parties. What else differs makes the methods.

A metric is one of the run's summary, or a reading of a curve over the rounds or over virtual time:
`rounds_to(test.accuracy, 0.9)`, `area(validation.loss)`, `seconds_to(test.accuracy, 0.9)`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, nearest
from tequio.experiments.comparing.values import Values
from tequio.experiments.running.headline import common_headline
from tequio.learners.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.comparing.values import Contender
    from tequio.experiments.running.results import Result
    from tequio.experiments.running.store import Plain

    Cells = dict[tuple[str, str], dict[str, float]]
    from collections.abc import Callable



PROBLEM = ("data", "devices", "availability", "attack")
"""The tables of a config that say what the problem is rather than how it is solved."""

_NEITHER = ("name", "seed", "engine", "output", "baselines", "sweep", "search", "plugins")
_PREFERRED = ("test", "parties", "validation", "train")


def values_of(runs: Sequence[Contender], metric: str = "", *, by: Sequence[str] = (),
              left_out: Sequence[str] = ()) -> Values:
    """The runs as a matrix. `by` names the keys that make the methods, where it is not all but the problem's."""
    chosen = metric or shared_metric([run.result for run in runs])
    keys = method_keys(runs, by)
    problem_keys = _differing(runs, [key for key in _all_keys(runs) if key not in keys and _table(key) not in _NEITHER])
    methods = list(dict.fromkeys(label_of(run, keys) for run in runs))
    _refuse_lonely(methods, runs, problem_keys)
    cells: Cells = {}
    for run in runs:
        problem = label_of(run, problem_keys) or str(run.result.summary["data"])
        cells.setdefault((problem, str(run.seed)), {})[label_of(run, keys)] = value_of(run.result, chosen)
    whole = {block: row for block, row in cells.items() if len(row) == len(methods)}
    _refuse_unpaired(whole, cells, methods, problem_keys)
    return Values(tuple(methods), tuple(problem for problem, _ in whole), tuple(seed for _, seed in whole),
                  np.array([[row[method] for method in methods] for row in whole.values()]), chosen,
                  more_is_better(chosen), tuple(keys), (*left_out, *_notes(runs, cells, whole)))


def value_of(result: Result, metric: str) -> float:
    """A metric of a finished run: of its summary, or a reading of a curve such as `rounds_to(test.accuracy, 0.9)`."""
    curve = curve_metric(metric)
    if curve is not None:
        return curve.of(result)
    known = {**result.summary, **result.summary["metrics"]}
    value = known.get(metric)
    if isinstance(value, bool) or not isinstance(value, int | float):
        numbers = [name for name, one in known.items() if isinstance(one, int | float)]
        raise ConfigError(f"the run '{result.folder}' has no metric '{metric}'", remedy=nearest(metric, numbers))
    return float(value)


def shared_metric(results: Sequence[Result]) -> str:
    """The metric that stands for these runs: their headline, else the first that all have; of test rows if possible."""
    shared = [name for name, value in results[0].summary["metrics"].items() if value is not None
              and all(result.summary["metrics"].get(name) is not None for result in results)]
    headline = common_headline(str(result.summary.get("headline", "")) for result in results)
    for prefix in _PREFERRED:
        suffix = ".mean" if prefix == "parties" else ""
        fitting = [name for name in shared if name.startswith(f"{prefix}.") and name.endswith(suffix)]
        best = [name for name in fitting if not name.removesuffix(suffix).endswith("loss")]
        if fitting:
            wanted = f"{prefix}.{headline}{suffix}"
            return wanted if wanted in fitting else str((best or fitting)[0])
    raise ConfigError("these runs have no metric in common", remedy="name one: --metric; or compare other runs")


def method_keys(runs: Sequence[Contender], by: Sequence[str] = ()) -> list[str]:
    """Which keys tell the methods apart."""
    for key in by:
        if not any(key in run.keys for run in runs):
            raise ConfigError(f"no config has the key '{key}'", remedy=nearest(key, _all_keys(runs)))
    asked = list(by) or [key for key in _all_keys(runs) if _table(key) not in (*PROBLEM, *_NEITHER)]
    return _differing(runs, asked)


def label_of(run: Contender, keys: Sequence[str]) -> str:
    """What is special about a run, in the words of these keys: `fedprox`, `fedavg, epochs 5`."""
    words = []
    for key in keys:
        value = run.keys.get(key)
        if value is not None:
            words.append(str(value) if key.endswith(".name") else
                         f"{key.rpartition('.')[2].replace('_', ' ')} {value}")
    return ", ".join(words)


def _notes(runs: Sequence[Contender], cells: Cells, whole: Cells) -> list[str]:
    """What of the runs could not be used, and what private ones have spent together."""
    lacking, repeated = len(cells) - len(whole), len(runs) - sum(map(len, cells.values()))
    notes = [f"{lacking} of {len(cells)} blocks lack a method and are left out."] if lacking else []
    if repeated:
        notes.append(f"{repeated} runs repeat others with the same settings and seed; the last of each counts.")
    together: dict[tuple[str, str], Plain] = {}
    for spent in (run.result.privacy_over_runs for run in runs):
        rows = (spent.get("fingerprint", ""), spent.get("unit", ""))
        if spent and spent["runs"] >= together.get(rows, spent)["runs"]:
            together[rows] = spent
    alone = sorted(run.result.privacy["epsilon"] for run in runs if run.result.privacy.get("epsilon"))
    said = f"Each private run alone has epsilon {alone[0]:.3g} to {alone[-1]:.3g}. " if alone else ""
    return [*notes, *(said + spent["words"] for spent in together.values())]


def _all_keys(runs: Sequence[Contender]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.keys))


def _table(key: str) -> str:
    return key.partition(".")[0]


def _differing(runs: Sequence[Contender], keys: Sequence[str]) -> list[str]:
    """The keys with several values; of a component's own parameters those that differ under one name."""
    found = []
    for key in keys:
        groups: dict[object, set[str]] = {}
        for run in runs:
            groups.setdefault(_component(run, key), set()).add(json.dumps(run.keys.get(key), sort_keys=True))
        if any(len(values) > 1 for values in groups.values()):
            found.append(key)
    return found


def _component(run: Contender, key: str) -> object:
    """The name of the component whose parameter a key is."""
    home = f"{key.rpartition('.')[0]}.name"
    return None if home == key else run.keys.get(home)


def _refuse_lonely(methods: Sequence[str], runs: Sequence[Contender], problem_keys: Sequence[str]) -> None:
    if len(methods) > 1:
        return
    if problem_keys:
        remedy = f"say which key makes the methods: --by {problem_keys[0]}"
    elif len({run.seed for run in runs}) > 1:
        remedy = "these runs differ in their seed only; add runs of another method, or --baselines"
    else:
        remedy = "give several runs, folders or a pattern such as 'runs/study-*'"
    raise ConfigError("there is one method only, so there is nothing to compare", remedy=remedy)


def _refuse_unpaired(whole: Cells, cells: Cells, methods: Sequence[str], problem_keys: Sequence[str]) -> None:
    if whole:
        return
    apart = f"; the problems differ in {', '.join(problem_keys[:4])}" if problem_keys else ""
    seeds = {method: sorted({seed for (_, seed), row in cells.items() if method in row}) for method in methods[:3]}
    told = "; ".join(f"'{method}' has seeds {', '.join(own)}" for method, own in seeds.items())
    raise ConfigError("no seed and problem is shared by all methods, so nothing can be paired",
                      remedy=f"run every method with the same seeds on the same data ({told}{apart})")


_FORM = re.compile(r"(\w+)\(\s*([\w.]+)\s*(?:,\s*(-?[\d.]+)\s*)?\)")


@dataclass(frozen=True)
class Reading:
    """A function of the rounds, the values there and the target, if it takes one. Better is what it says, or (none)
    what is better for the metric itself."""

    read: Callable[[Sequence[float], Sequence[float], float], float]
    has_target: bool = False
    higher_is_better: bool | None = None
    by: str = "round"


def rounds_to(rounds: Sequence[float], values: Sequence[float], target: float) -> float:
    """The first round, counted from 1 (or moment), whose value is at least the target; infinite where none is."""
    return next((place for place, value in zip(rounds, values, strict=True) if value >= target), inf)


def area(rounds: Sequence[float], values: Sequence[float], target: float = 0.0) -> float:
    """The area under the curve by the trapezoid rule, over its length: the mean height of the curve."""
    if len(rounds) < 2:
        return float(values[0])
    return float(np.trapezoid(values, rounds) / (rounds[-1] - rounds[0]))


READINGS = {
    "rounds_to": Reading(rounds_to, has_target=True, higher_is_better=False),
    "seconds_to": Reading(rounds_to, has_target=True, higher_is_better=False, by="clock.seconds"),
    "area": Reading(area),
    "mean": Reading(lambda rounds, values, target: float(np.mean(values))),
    "lowest": Reading(lambda rounds, values, target: float(np.min(values))),
    "highest": Reading(lambda rounds, values, target: float(np.max(values))),
}
"""By the name under which a cell asks for it."""


@dataclass(frozen=True)
class CurveMetric:
    """A reading of one metric."""

    reading: Reading
    metric: str
    target: float = 0.0

    def of(self, result: Result) -> float:
        """The number for one run."""
        if self.reading.by not in result.metrics.columns:
            raise ConfigError(f"the run '{result.folder.name}' has no virtual clock",
                              remedy="add a [devices] table to its config, or ask for rounds")
        rounds, values = result.metrics.series(self.metric, by=self.reading.by)
        if not values:
            raise ConfigError(f"the run '{result.folder.name}' has no value of '{self.metric}'",
                              remedy="evaluate it, or ask for another metric")
        return self.reading.read(rounds, values, self.target)


def curve_metric(text: str) -> CurveMetric | None:
    """The reading that a cell's metric asks for; nothing where it is a plain name."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    name, metric, target = found.groups()
    if name not in READINGS:
        raise ConfigError(f"there is no reading '{name}' of a curve", remedy=nearest(name, READINGS))
    if (target is not None) != READINGS[name].has_target:
        raise ConfigError(f"'{text}': '{name}' takes {'a' if READINGS[name].has_target else 'no'} target",
                          remedy="write, for instance, rounds_to(test.accuracy, 0.9) or area(validation.loss)")
    return CurveMetric(READINGS[name], metric, float(target or 0))


def more_is_better(metric: str) -> bool:
    """Whether more of a metric is better: of `test.accuracy` it is, of `seconds` and `rounds_to(...)` it is not."""
    curve = curve_metric(metric)
    if curve is not None:
        own = curve.reading.higher_is_better
        return more_is_better(curve.metric) if own is None else own
    return any(METRICS[part].higher_is_better for part in metric.split(".") if part in METRICS)
