"""Hyper-parameter search: the best values of some keys, chosen by validation rows and by no others.

Every trial is a run a seed in a folder of its own. A search that is stopped goes on with the same command: the trials
are proposed again in the same order, and those that are finished are read instead of run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge
from pydantic import Field, ValidationError, model_validator

from tequio.errors import ConfigError, MissingExtra
from tequio.experiments.api import gather, shown_while, source_of
from tequio.experiments.comparing.pairing import curve_metric, more_is_better, value_of
from tequio.experiments.config.complete import complete, resolved_toml, with_key
from tequio.experiments.config.composition import is_private
from tequio.experiments.config.tables import Table as ConfigTable
from tequio.experiments.running.recording import as_json, ignore
from tequio.experiments.running.scenario import start_ledgers_anew
from tequio.experiments.running.store import Plain, safe_name, write_whole
from tequio.experiments.running.table import Table
from tequio.experiments.sweep import SweepCell, cell_of, finish_cells, short_value
from tequio.privacy.dataset_ledger import added, bill_from_plain, epsilon_together
from tequio.registry import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import optuna

    from tequio.data.catalogue.entry import Rows
    from tequio.experiments.api import ConfigLike
    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener
    from tequio.experiments.running.results import Result


BEST, TRIALS = "best.toml", "trials.csv"


@dataclass(frozen=True)
class Trial:
    """One combination: its settings, its runs, and the metric of each (none where a run went astray)."""

    number: int
    settings: Given
    results: list[Result]
    values: list[float]

    @property
    def value(self) -> float | None:
        """The mean over seeds; none where a seed has no value."""
        return fmean(self.values) if len(self.values) == len(self.results) else None


@dataclass(frozen=True)
class SearchResult:
    """All trials, the best first in `table`, and the config of the best one. `privacy` is what all private trials have
    spent together: the choice of the best has looked at every one of them."""

    folder: Path
    metric: str
    best: Trial
    trials: list[Trial]
    table: Table
    privacy: Plain = field(default_factory=dict)

    @property
    def best_config(self) -> Path:
        """The config with the best values set: run it, sweep over its seeds, report its test rows."""
        return self.folder / BEST

    def to_dict(self) -> Plain:
        """What `tequio search --json` prints."""
        plain = {"search": str(self.folder), "metric": self.metric, "best": self.best.settings,
                 "value": self.best.value, "seeds": len(self.best.results), "config": str(self.best_config),
                 "table": self.table.rows, **({"privacy": self.privacy} if self.privacy else {})}
        return as_json(plain)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def search(config: ConfigLike = None, *, listen: Listener = ignore, progress: bool = False,
           **keys: Any) -> SearchResult:
    """Look for the best values of the keys in `search={"space": {"local.learning_rate": [0.01, 0.1]}}`."""
    given, dataset = gather(config, keys)
    with shown_while(progress, listen) as heard:
        return run_search(given, source=source_of(config), dataset=dataset, listen=heard)


def run_search(given: Given, *, source: str = "config", dataset: Rows | None = None,
               listen: Listener = ignore, fresh_ledger: bool = False) -> SearchResult:
    """Run every trial that is not finished yet, choose, and write the best config and the table of trials."""
    how = read_search(given.get("search") or {}, source)
    base = {key: value for key, value in given.items() if key not in ("search", "sweep", "baselines")}
    plain = complete(base, source=source)
    check_rows(plain, source)
    check_privacy(plain, source)
    if fresh_ledger:
        start_ledgers_anew([plain])
    folder = Path(plain.output.folder) / f"{safe_name(plain.name)}-search"
    work = _Work(base, how, how.seeds or [plain.seed], source, folder, dataset, listen)
    trials = list(_grid(work) if how.method == "grid" else _proposed(work, plain.seed))
    sign = -1 if more_is_better(work.metric) else 1
    good = sorted((trial for trial in trials if trial.value is not None), key=lambda trial: sign * (trial.value or 0.0))
    if not good:
        raise ConfigError(f"{source}: no trial has a value of '{work.metric}'",
                          remedy="the runs may have diverged; look at one of them, and search among smaller steps")
    return _written(work, good[0], trials, good)


class _Work:
    """A search under way."""

    def __init__(self, base: Given, how: Search, seeds: list[int], source: str, folder: Path, dataset: Rows | None,
                 listen: Listener) -> None:
        self.base, self.how, self.seeds, self.source = base, how, seeds, source
        self.folder, self.dataset, self.listen, self.metric = folder, dataset, listen, how.metric

    def cells(self, settings: Given) -> list[SweepCell]:
        found = [cell_of(self.base, settings, seed, self.source) for seed in self.seeds]
        for cell in found:
            check_privacy(cell.config, self.source)
        return found

    def finish(self, cells: list[SweepCell]) -> list[Result]:
        results = finish_cells(cells, self.folder, dataset=self.dataset, listen=self.listen)
        self.metric = self.metric or _main_metric(results[0])
        return results

    def trial(self, number: int, settings: Given, results: list[Result]) -> Trial:
        return Trial(number, settings, results, [value for result in results
                                                 if (value := _value(result, self.metric)) is not None])


def _grid(work: _Work) -> Iterator[Trial]:
    """All combinations; their configs are checked before the first run, and their runs share the workers."""
    combinations = work.how.combinations()
    cells = [cell for settings in combinations for cell in work.cells(settings)]
    results, step = work.finish(cells), len(work.seeds)
    for number, settings in enumerate(combinations):
        yield work.trial(number, settings, results[number * step:(number + 1) * step])


def _proposed(work: _Work, seed: int) -> Iterator[Trial]:
    """Trials that Optuna proposes. Its proposals follow from the seed and the values so far, hence they come again."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "search", "search.method = 'tpe'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    first = min(10, max(2, work.how.trials // 3))
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=first))
    for number in range(work.how.trials):
        asked = study.ask()
        settings = {key: _suggested(asked, key, values) for key, values in work.how.space.items()}
        trial = work.trial(number, settings, work.finish(work.cells(settings)))
        if trial.value is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(asked, -trial.value if more_is_better(work.metric) else trial.value)
        yield trial


def _suggested(asked: optuna.Trial, key: str, values: list[object] | Range) -> object:
    if isinstance(values, list):
        return values[asked.suggest_categorical(key, list(range(len(values))))]
    if values.whole:
        return asked.suggest_int(key, int(values.low), int(values.high), log=values.log)
    return asked.suggest_float(key, values.low, values.high, log=values.log)


def _value(result: Result, metric: str) -> float | None:
    """A run that diverged has no value, or none that is a number."""
    try:
        value = value_of(result, metric)
    except ConfigError:
        if metric in result.summary["metrics"]:
            return None
        raise
    return value if isfinite(value) else None


def _main_metric(result: Result) -> str:
    names = [str(name) for name in result.summary["metrics"] if name.startswith(ALLOWED)]
    if not names:
        raise ConfigError("the runs report nothing on validation rows", remedy="set search.metric, or evaluation.at")
    headline = f"{ALLOWED}{result.summary['headline']}"
    return headline if headline in names else next((name for name in names if not name.endswith("loss")), names[0])


def _written(work: _Work, best: Trial, trials: list[Trial], good: list[Trial]) -> SearchResult:
    table = Table()
    for trial in [*good, *(trial for trial in trials if trial.value is None)]:
        spread = stdev(trial.values) if len(trial.values) > 1 else None
        table.add({"trial": trial.number + 1, **{key: short_value(value) for key, value in trial.settings.items()},
                   "seeds": len(trial.results), work.metric: trial.value, f"{work.metric} sd": spread})
    chosen = work.base
    for key, value in best.settings.items():
        chosen = with_key(chosen, key, value)
    write_whole(work.folder / TRIALS, table.to_csv().encode())
    write_whole(work.folder / BEST, resolved_toml(complete(chosen, source=work.source)).encode())
    return SearchResult(work.folder, work.metric, best, trials, table, _spent_together(best, trials))


def _spent_together(best: Trial, trials: list[Trial]) -> Plain:
    """The epsilon of the whole search. Units that are hidden differently do not add up, so the best trial's counts."""
    runs = {result.folder: result for trial in trials for result in trial.results if result.privacy_over_runs}
    if not best.results[0].privacy_over_runs:
        return {}
    unit, delta = best.results[0].privacy_over_runs["unit"], best.results[0].privacy["delta"]
    counted = [run for run in runs.values() if run.privacy_over_runs["unit"] == unit]
    bill = added(bill_from_plain(run.privacy_over_runs["bill"]) for run in counted)
    epsilon = epsilon_together(bill, delta, "pld" if len(bill) <= _TIGHT else "rdp")
    if not isfinite(epsilon):
        return {"epsilon": None, "delta": delta, "runs": len(counted), "unit": unit,
                "words": "The choice of the best trial is not private: at least one trial promised nothing."}
    alone = best.results[0].privacy["epsilon"]
    return {"epsilon": epsilon, "delta": delta, "runs": len(counted), "unit": unit,
            "words": f"The best of {len(trials)} trials was chosen by looking at all {len(counted)} runs: epsilon "
                     f"{epsilon:.3g} at delta {delta:g} for any one {unit}, where one run of the best trial alone has "
                     f"{alone:.3g}."}


_TIGHT = 8
"""With more kinds of noise than this, Renyi divergences count: privacy loss distributions would take seconds."""

ALLOWED = "validation."
"""A model may be chosen by rows that are kept for that, and by no others."""

_BOUNDS = frozenset({"low", "high"})


class Range(ConfigTable):
    """Values from `low` to `high`, both included; whole numbers where both are. `log` spreads them over magnitudes."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _in_order(self) -> Range:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"low = {self.low} and high = {self.high} are no range"
                             + (" over magnitudes" if self.log else ""))
        return self

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Search(ConfigTable):
    """How to look for the best values.

    Parameters:
        method: try all combinations, or let Optuna's tree-structured Parzen estimator propose them
        metric: the validation metric that decides (empty: the main one of the data)
        trials: how many combinations the estimator proposes
        seeds: every combination is run with each of them (empty: the seed of the config)
        space: dotted keys with lists of values or, for the estimator, `{low = 0.001, high = 1.0, log = true}`
    """

    method: Literal["grid", "tpe"] = "grid"
    metric: str = ""
    trials: Annotated[int, Ge(1)] = 20
    seeds: list[Annotated[int, Ge(0)]] = Field(default_factory=list)
    space: dict[str, list[object] | Range]

    def combinations(self) -> list[Given]:
        """All of them, the last key fastest."""
        return [dict(zip(self.space, values, strict=True)) for values in product(*self.space.values())]


def read_search(table: Given, source: str) -> Search:
    """The table, checked; errors name the key."""
    if not table:
        raise ConfigError(f"{source} has no [search] table",
                          remedy='add one: [search.space] with "local.learning_rate" = [0.01, 0.1]')
    where = "search"
    try:
        space = {}
        for key, value in _flat(table.get("space", {})).items():
            where = f"search.space.{key}"
            space[key] = Range.model_validate(value) if isinstance(value, Mapping) else value
        where = "search"
        found = Search.model_validate({**table, "space": space})
    except ValidationError as cause:
        raise ConfigError(f"{source}: [{where}] {explain(cause)}", remedy="see the how-to on searching") from None
    _check_space(found, source)
    _check_metric(found.metric, source)
    return found


def check_rows(config: Config, source: str) -> None:
    """Whether there are rows to choose by."""
    if not config.data.split.validation and not config.data.validation:
        raise ConfigError(f"{source}: nobody keeps validation rows, so there is nothing to choose by",
                          remedy="set data.split.validation, or data.validation for rows at the coordinator")


def check_privacy(config: Config, source: str) -> None:
    """Refuse to choose a private model by rows that its noise protects: nothing would account for the choice."""
    if is_private(config) and config.data.split.validation and config.privacy.when_void == "refuse":
        raise ConfigError(f"{source}: the trials are private, and the search would choose among them by the parties' "
                          "own validation rows, which no noise protects",
                          remedy="set data.validation = 0.1, data.split.validation = 0 and evaluation.at = "
                                 "['coordinator'], so that rows of the coordinator decide")


def _check_space(search: Search, source: str) -> None:
    if not search.space:
        raise ConfigError(f"{source}: [search.space] is empty",
                          remedy='name keys and values: "local.learning_rate" = [0.01, 0.1]')
    for key, values in search.space.items():
        if isinstance(values, list) and not values:
            raise ConfigError(f"{source}: [search.space] '{key}' has no values", remedy="list at least one")
        if search.method == "grid" and isinstance(values, Range):
            raise ConfigError(f"{source}: a grid cannot try all of '{key}'",
                              remedy="list its values, or set search.method = 'tpe'")


def _check_metric(metric: str, source: str) -> None:
    curve = curve_metric(metric) if metric else None
    name = curve.metric if curve is not None else metric
    if name and not name.startswith(ALLOWED):
        raise ConfigError(f"{source}: [search] may not choose by '{metric}': what is chosen by test or training rows "
                          "looks better than it is", remedy="choose by a metric such as validation.accuracy")


def _flat(space: object, prefix: str = "") -> Given:
    """`[search.space.local]` with `epochs = [1, 5]` is the same as `"local.epochs" = [1, 5]`."""
    if not isinstance(space, Mapping):
        return {"": space}
    keys: Given = {}
    for key, value in space.items():
        if isinstance(value, Mapping) and not _BOUNDS & value.keys():
            keys |= _flat(value, f"{prefix}{key}.")
        else:
            keys[f"{prefix}{key}"] = value
    return keys
