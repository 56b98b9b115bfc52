"""Runs as methods on blocks: paired by data, partition and seed, told apart by what else their configs differ in.

A block is a problem (the tables `data`, `devices`, `availability` and `attack` of the config) and a seed: all methods
of a block had the same rows, dealt to the same parties. What else differs makes the methods.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, nearest
from tequio.experiments.studies.answers import higher_is_better
from tequio.experiments.studies.curves import curve_metric
from tequio.experiments.values import Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.experiments.finding import Contender
    from tequio.experiments.results import Result

    Cells = dict[tuple[str, str], dict[str, float]]

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
                  higher_is_better(chosen), tuple(keys), (*left_out, *_notes(runs, cells, whole)))


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
    """The metric that stands for these runs: the first that all of them have, on test rows if there are any."""
    shared = [name for name, value in results[0].summary["metrics"].items() if value is not None
              and all(result.summary["metrics"].get(name) is not None for result in results)]
    for prefix in _PREFERRED:
        suffix = ".mean" if prefix == "parties" else ""
        fitting = [name for name in shared if name.startswith(f"{prefix}.") and name.endswith(suffix)]
        best = [name for name in fitting if not name.removesuffix(suffix).endswith("loss")]
        if fitting:
            return str((best or fitting)[0])
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
    """What of the runs could not be used."""
    lacking, repeated = len(cells) - len(whole), len(runs) - sum(map(len, cells.values()))
    notes = [f"{lacking} of {len(cells)} blocks lack a method and are left out."] if lacking else []
    return notes + ([f"{repeated} runs repeat others with the same settings and seed; the last of each counts."]
                    if repeated else [])


def _all_keys(runs: Sequence[Contender]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.keys))


def _table(key: str) -> str:
    return key.partition(".")[0]


def _differing(runs: Sequence[Contender], keys: Sequence[str]) -> list[str]:
    """The keys with several values; of a component's own parameters those that differ under one name."""
    found = []
    for key in keys:
        groups: dict[Any, set[str]] = {}
        for run in runs:
            groups.setdefault(_component(run, key), set()).add(json.dumps(run.keys.get(key), sort_keys=True))
        if any(len(values) > 1 for values in groups.values()):
            found.append(key)
    return found


def _component(run: Contender, key: str) -> Any:
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
