"""Sweeps: one run for every combination of some keys and seeds. Finished cells are kept, half-finished ones go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from tequio.errors import ConfigError
from tequio.experiments.cells import cell_workers, run_cells
from tequio.experiments.config import complete, config_hash, with_key
from tequio.experiments.recording import ignore
from tequio.experiments.results import Result, is_finished
from tequio.experiments.runner import run_config
from tequio.experiments.store import safe_name, write_whole
from tequio.experiments.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.data.dataset import Dataset
    from tequio.experiments.config import Given
    from tequio.experiments.recording import Listener
    from tequio.experiments.tables import Config

SEEDS, TABLE = "seeds", "table.csv"


@dataclass(frozen=True)
class SweepCell:
    """One run of a sweep: what is set in it, and its whole config."""

    settings: dict[str, Any]
    config: Config

    @property
    def label(self) -> str:
        """What is special about this cell, short enough for a folder's name."""
        words = [f"{short_key(key)}={short_value(value)}" for key, value in self.settings.items()]
        return safe_name("-".join([*words, f"seed={self.config.seed}"]))[:80]


@dataclass(frozen=True)
class SweepResult:
    """All runs of a sweep, and a table of means and standard deviations over seeds."""

    folder: Path
    table: Table
    results: list[Result]

    def to_dict(self) -> dict[str, Any]:
        """The table and every run's summary: what `tequio run --json` prints."""
        return {"sweep": str(self.folder), "table": self.table.rows, "runs": [one.to_dict() for one in self.results]}

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def run_sweep(given: Given, *, source: str = "config", dataset: Dataset | None = None,
              listen: Listener = ignore) -> SweepResult:
    """Run every cell that is not finished yet; the table always comes from the stored runs.

    With several workers each process does whole cells, and what happens inside a cell is not heard here.
    """
    cells = sweep_cells(given, source=source)
    folder = sweep_folder(cells[0].config.output.folder, cells[0].config.name)
    results = finish_cells(cells, folder, dataset=dataset, listen=listen)
    table = summary_table(cells, results)
    write_whole(folder / TABLE, table.to_csv().encode())
    return SweepResult(folder, table, results)


def sweep_folder(parent: str, name: str) -> Path:
    """Where the runs of a sweep lie."""
    return Path(parent) / f"{safe_name(name)}-sweep"


def finish_cells(cells: Sequence[SweepCell], folder: Path, *, dataset: Dataset | None = None,
                 listen: Listener = ignore) -> list[Result]:
    """Run the cells that are not finished yet, each in a folder of its own below this one."""
    first = cells[0].config
    places = [folder / f"{cell.label}-{config_hash(cell.config)[:8]}" for cell in cells]
    missing = [number for number, place in enumerate(places) if not is_finished(place)]
    workers = cell_workers(first, len(missing))

    def begin(number: int) -> None:
        listen("cell", {"number": number + 1, "cells": len(cells), "label": cells[number].label,
                        "finished": number not in missing})
        places[number].mkdir(parents=True, exist_ok=True)

    if workers > 1:
        run_cells([(cells[number].config, places[number]) for number in missing], workers, dataset,
                  lambda position: begin(missing[position]))
    else:
        for number, cell in enumerate(cells):
            begin(number)
            if number in missing:
                run_config(cell.config, dataset=dataset, listen=listen, folder=places[number])
    return [Result(place) for place in places]


def sweep_cells(given: Given, *, source: str = "config") -> list[SweepCell]:
    """Every combination of the listed values, seeds fastest; all configs are checked before the first run."""
    axes = axes_of(given.get("sweep") or {}, source)
    seeds = axes.pop(SEEDS, [given.get("seed", 0)])
    if given.get("baselines"):
        raise ConfigError(f"{source}: a sweep has no baselines", remedy="run the baselines with a config of their own")
    base = {key: value for key, value in given.items() if key != "sweep"}
    return [cell_of(base, dict(zip(axes, values, strict=True)), seed, source)
            for values in product(*axes.values()) for seed in seeds]


def summary_table(cells: list[SweepCell], results: list[Result]) -> Table:
    """One row a combination: the number of seeds, and mean and sd of every final metric."""
    groups: dict[str, list[int]] = {}
    for position, cell in enumerate(cells):
        groups.setdefault(json.dumps(cell.settings, sort_keys=True, default=str), []).append(position)
    table = Table()
    for positions in groups.values():
        settings = {key: short_value(value) for key, value in cells[positions[0]].settings.items()}
        finals = [results[position].summary["metrics"] for position in positions]
        table.add({**settings, "seeds": len(positions), **_means(finals)})
    return table


def short_key(key: str) -> str:
    """The part of a dotted key that tells most: 'epochs' of local.epochs, 'algorithm' of algorithm.name."""
    return key.removesuffix(".name").rpartition(".")[2]


def _means(finals: list[dict[str, float | None]]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for metric in finals[0]:
        values = [value for final in finals if (value := final.get(metric)) is not None]
        means[metric] = fmean(values) if values else None
        means[f"{metric} sd"] = stdev(values) if len(values) > 1 else None
    return means


def cell_of(base: Given, settings: dict[str, Any], seed: int, source: str) -> SweepCell:
    """One run: a config with some keys set."""
    changed = with_key(base, "seed", seed)
    for key, value in settings.items():
        changed = with_key(changed, key, value)
    return SweepCell(settings, complete(changed, source=f"{source} with {settings}" if settings else source))


def axes_of(table: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, list[Any]]:
    """Dotted keys and their values; `[sweep.local]` with `epochs = [1, 5]` is the same as `"local.epochs" = [1, 5]`."""
    axes: dict[str, list[Any]] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            axes |= axes_of(value, source, f"{prefix}{key}.")
        elif isinstance(value, list) and value:
            axes[f"{prefix}{key}"] = value
        else:
            raise ConfigError(f"{source}: [sweep] '{prefix}{key}' is not a list of values",
                              remedy=f"write: \"{prefix}{key}\" = [first, second]")
    return axes


def short_value(value: Any) -> Any:
    """A component's table by its name, anything else as it is."""
    if isinstance(value, Mapping):
        return " ".join(str(item) if key == "name" else f"{key}={item}" for key, item in value.items())
    return value if isinstance(value, int | float | str) else str(value)
