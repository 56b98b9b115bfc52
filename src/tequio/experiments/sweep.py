"""Sweeps: one run for every combination of some keys and seeds. Finished cells are kept, half-finished ones go on.

With several workers each process does whole cells, which keeps all cores busy where the runs are too small to share
out. A process is sent a cell, and reports its end, in a line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from statistics import fmean, stdev
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tequio.data.catalogue.entry import Loaded
from tequio.data.partition import Partition
from tequio.engines.inline import ONE_THREAD, one_thread
from tequio.engines.local import worker_count
from tequio.engines.sharing import open_population, shared_folder, write_population
from tequio.errors import ConfigError, EngineError, RunError, TequioError
from tequio.experiments.config.complete import complete, config_hash, resolved, with_key
from tequio.experiments.running.recording import ignore
from tequio.experiments.running.results import Result, is_finished
from tequio.experiments.running.runner import run_config
from tequio.experiments.running.store import Plain, safe_name, write_whole
from tequio.experiments.running.table import Table
from tequio.federation.population import Population

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tequio.data.catalogue.entry import Rows
    from tequio.experiments.config.tables import Config
    from tequio.experiments.config.toml import Given
    from tequio.experiments.running.recording import Listener



SEEDS, TABLE = "seeds", "table.csv"


@dataclass(frozen=True)
class SweepCell:
    """One run of a sweep: what is set in it, and its whole config."""

    settings: Given
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

    def to_dict(self) -> Plain:
        """The table and every run's summary: what `tequio run --json` prints."""
        return {"sweep": str(self.folder), "table": self.table.rows, "runs": [one.to_dict() for one in self.results]}

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def run_sweep(given: Given, *, source: str = "config", dataset: Rows | None = None,
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


def finish_cells(cells: Sequence[SweepCell], folder: Path, *, dataset: Rows | None = None,
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


def cell_of(base: Given, settings: Given, seed: int, source: str) -> SweepCell:
    """One run: a config with some keys set."""
    changed = with_key(base, "seed", seed)
    for key, value in settings.items():
        changed = with_key(changed, key, value)
    cell = ", ".join(f"{key} = {short_value(value)}" for key, value in settings.items())
    return SweepCell(settings, complete(changed, source=f"{source} with {cell}" if cell else source))


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


NO_DATASET = "-"


def cell_workers(config: Config, cells: int) -> int:
    """How many processes the cells of a sweep are worth; 1 means: one after the other, here."""
    if config.engine["name"] != "local":
        return 1
    workers = worker_count(config.engine["workers"])
    return min(workers, cells) if os.name == "posix" else 1


def run_cells(cells: Sequence[tuple[Config, Path]], workers: int, dataset: Rows | None,
              begin: Callable[[int], None]) -> None:
    """Run every cell in its folder on that many processes; `begin` hears the number of each cell as it is handed out.

    The first cell that fails ends the sweep; what the others have done is kept in their checkpoints.
    """
    folder = _shared(dataset)
    orders = [{"config": resolved(config), "folder": str(place.resolve())} for config, place in cells]
    try:
        run_orders(__name__, NO_DATASET if folder is None else str(folder), orders, workers, begin)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def run_orders(module: str, argument: str, orders: Sequence[Given], workers: int,
               begin: Callable[[int], None]) -> None:
    """Have orders carried out by that many processes of a module that calls `carry_out`; the first error ends it."""
    processes = [_start(module, argument) for _ in range(workers)]
    try:
        _hand_out(orders, processes, begin)
    finally:
        for process in processes:
            process.close()


@dataclass
class _Process:
    process: subprocess.Popen[str]
    orders: IO[str]
    answers: IO[str]

    def give(self, order: Given) -> None:
        self.orders.write(json.dumps(order) + "\n")
        self.orders.flush()

    def hear(self) -> None:
        """The end of an order; an error if it was not a good one."""
        line = self.answers.readline()
        if not line:
            raise EngineError(f"a process that ran some of many runs ended with code {self.process.wait()}",
                              remedy="it may have run out of memory: use fewer workers; what is finished is kept")
        answer = json.loads(line)
        if answer:
            raise RunError(f"{answer['folder']}: {answer['error']}", remedy=answer["remedy"])

    def close(self) -> None:
        """Let it go; one that is still at work is stopped."""
        self.orders.close()
        self.process.terminate()
        self.process.wait()
        self.answers.close()


def _start(module: str, argument: str) -> _Process:
    process = subprocess.Popen([sys.executable, "-m", module, argument], env={**os.environ, **ONE_THREAD},
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    return _Process(process, process.stdin, process.stdout)


def _hand_out(orders: Sequence[Given], processes: list[_Process], begin: Callable[[int], None]) -> None:
    waiting = list(enumerate(orders))
    with DefaultSelector() as busy:
        free = list(processes)
        while waiting or busy.get_map():
            while waiting and free:
                number, order = waiting.pop(0)
                begin(number)
                free[-1].give(order)
                busy.register(free[-1].answers, EVENT_READ, free.pop())
            for key, _ in busy.select():
                busy.unregister(key.fileobj)
                key.data.hear()
                free.append(key.data)


def _shared(dataset: Rows | None) -> Path | None:
    """A dataset that was handed over as an object, where the processes can open it."""
    if dataset is None:
        return None
    folder = shared_folder()
    for name, rows in (("train", _loaded(dataset).train), ("test", _loaded(dataset).test)):
        if rows is not None:
            (folder / name).mkdir()
            write_population(Population(rows, Partition.of([np.arange(len(rows))])), folder / name)
    return folder


def _loaded(rows: Rows) -> Loaded:
    return rows if isinstance(rows, Loaded) else Loaded(rows)


def _opened(folder: Path) -> Loaded:
    parts = [open_population(folder / name).dataset if (folder / name).is_dir() else None for name in ("train", "test")]
    assert parts[0] is not None
    return Loaded(parts[0], parts[1])


def carry_out(work: Callable[[Given], None]) -> None:
    """In a process of `run_orders`: orders come in on stdin, each with its folder, their ends go out on stdout."""
    one_thread()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    for line in sys.stdin:
        order, answer = json.loads(line), {}
        try:
            work(order)
        except TequioError as cause:
            answer = {"folder": Path(order["folder"]).name, "error": cause.message, "remedy": cause.remedy}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """A process of a sweep."""
    place = sys.argv[1]
    dataset = None if place == NO_DATASET else _opened(Path(place))

    def run_cell(order: Given) -> None:
        folder = Path(order["folder"])
        config = complete({**order["config"], "engine": {"name": "local", "workers": 1}}, source=folder.name)
        run_config(config, dataset=dataset, folder=folder)

    carry_out(run_cell)


if __name__ == "__main__":
    main()
