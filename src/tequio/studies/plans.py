"""Which runs a study needs, and where they lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.errors import ConfigError
from tequio.experiments.comparing.values import fits
from tequio.experiments.config.complete import complete, config_hash, copied
from tequio.experiments.running.results import Result, is_finished
from tequio.experiments.running.store import BASELINES, SUMMARY, explained
from tequio.studies.description import run_and_baseline

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.studies.description import Cell, Study


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study for one seed. The hash says which stored run it is, wherever that lies."""

    run: str
    seed: int
    config: Config
    hash: str


@dataclass(frozen=True)
class Plan:
    """All runs that a study's table is made of, in the order of the table, then by seed."""

    study: Study
    quick: bool
    seeds: int
    runs: dict[str, list[PlannedRun]]

    def of_cell(self, cell: Cell) -> list[list[PlannedRun]]:
        """For each seed the runs that the cell is answered by: its own and the one it is compared with."""
        names = [run_and_baseline(name)[0] for name in (cell.run, cell.against) if name]
        return [list(runs) for runs in zip(*(self.runs[name] for name in names), strict=True)]

    def wanted(self, pattern: str = "*") -> list[PlannedRun]:
        """The runs behind the cells whose name fits the pattern, each once, all first seeds first."""
        fitting = [runs for cell in self.study.cells if fits(cell.name, pattern) for runs in self.of_cell(cell)]
        contests = [contest for contest in self.study.contests if fits(contest.name, pattern)]
        fitting += [self.runs[run_and_baseline(run)[0]] for contest in contests for runs in contest.methods.values()
                    for run in runs]
        once = {planned.hash: planned for runs in fitting for planned in runs}
        return sorted(once.values(), key=lambda planned: planned.seed)


def make_plan(study: Study, *, quick: bool = False, seeds: int | None = None, out: Path, workers: int = 0) -> Plan:
    """The runs of a study; seeds count from 0. In the quick form many cells may share a run."""
    count = seeds or (study.quick.seeds if quick else study.seeds)
    runs = {}
    for name in study.runs_of_cells():
        given = run_config_of(study, name, quick=quick)
        given |= {"name": f"{study.name}-{name}".replace("/", "-")}
        config = complete(merged(given, {"output": {"folder": str(out)}, "engine": {"workers": workers}}),
                          source=f"{study.name}: runs.{name}")
        runs[name] = [_planned(name, config.model_copy(update={"seed": seed})) for seed in range(count)]
    return Plan(study, quick, count, runs)


def run_config_of(study: Study, run: str, *, quick: bool) -> Given:
    """What all runs share, the run's own changes on top, and the quick form's on top of these.

    Of the tables that are shared, those that a run lists under `without` are left out, such as those that its algorithm
    has no use for.
    """
    given = merged(study.config, study.runs[run])
    if quick:
        given = merged(merged(given, study.quick.config), study.quick.runs.get(run, {}))
    left_out = given.pop("without", [])
    return {table: value for table, value in given.items() if table not in left_out}


def merged(below: Mapping[str, object], above: Mapping[str, object]) -> Given:
    """One table on top of another. A table that gets another `name` loses the parameters that came with the old one."""
    result = copied(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, Mapping) or (isinstance(old, str) and isinstance(value, Mapping)):
            result[key] = merged(_for_name(_as_table(old), _as_table(value)), _as_table(value))
        else:
            result[key] = copied(value) if isinstance(value, Mapping) else value
    return result


def _planned(run: str, config: Config) -> PlannedRun:
    return PlannedRun(run, config.seed, config, config_hash(config))


def _as_table(value: object) -> Mapping[str, object]:
    """`learner = "mlp"` is short for `learner = {name = "mlp"}`."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"a study puts {value!r} in the place of a table", remedy="give a table, or a name")
    return value


def _for_name(old: Mapping[str, object], new: Mapping[str, object]) -> Given:
    """What of an old table still applies under a new one's name: tables within it, such as data.partition."""
    if "name" not in old or new.get("name", old["name"]) == old["name"]:
        return dict(old)
    return {key: value for key, value in old.items() if isinstance(value, Mapping)}


_SHORT = 8


@dataclass(frozen=True)
class Store:
    """Where the runs of a study lie: one folder each, its name ending in seed and start of the config's hash."""

    folder: Path

    def finished(self, planned: PlannedRun) -> Result | None:
        """The stored run with this config, if it came to its end."""
        for place in self._places(planned):
            if (place / SUMMARY).is_file():
                summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
                beside = all(is_finished(place / BASELINES / name) for name in planned.config.baselines)
                if summary["config_hash"] == planned.hash and beside:
                    return Result(place)
        return None

    def place_for(self, planned: PlannedRun) -> Path:
        """The folder to run in: that of a run that was stopped half-way, or before its baselines, else a new one."""
        unfinished = self._places(planned)
        place = unfinished[0] if unfinished else self.folder / f"{planned.run}-{planned.seed}-{planned.hash[:_SHORT]}"
        with explained(place):
            place.mkdir(parents=True, exist_ok=True)
        return place

    def _places(self, planned: PlannedRun) -> list[Path]:
        return sorted(self.folder.glob(f"*-{planned.seed}-{planned.hash[:_SHORT]}"))


def store_of(plan: Plan, out: Path) -> Store:
    """Where a study's runs lie under the folder of all runs."""
    return Store(out / (plan.study.store or plan.study.name))
