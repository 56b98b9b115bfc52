"""The cells of a sweep on several processes: each cell is a run of its own, so cells need nothing of each other.

A process does whole cells, each in itself, which keeps all cores busy where the runs are too small to share out. It is
told of a cell, and tells of its end, in a line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tequio.data.partition import Partition
from tequio.engines.sharing import open_population, shared_folder, write_population
from tequio.engines.threads import ONE_THREAD, one_thread
from tequio.errors import EngineError, RunError, TequioError
from tequio.experiments.config import complete, resolved
from tequio.experiments.runner import run_config
from tequio.federation.population import Population

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tequio.data.dataset import Dataset
    from tequio.experiments.tables import Config

NO_DATASET = "-"


def cell_workers(config: Config, cells: int) -> int:
    """How many processes the cells of a sweep are worth; 1 means: one after the other, here."""
    workers = int(config.engine.get("workers", 1)) or os.cpu_count() or 1
    return min(workers, cells) if config.engine["name"] == "local" and os.name == "posix" else 1


def run_cells(cells: Sequence[tuple[Config, Path]], workers: int, dataset: Dataset | None,
              begin: Callable[[int], None]) -> None:
    """Run every cell in its folder on that many processes; `begin` hears the number of each cell as it is handed out.

    The first cell that fails ends the sweep; what the others have done is kept in their checkpoints.
    """
    folder = _shared(dataset)
    processes = [_start(folder) for _ in range(workers)]
    try:
        _hand_out(cells, processes, begin)
    finally:
        for process in processes:
            process.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Process:
    process: subprocess.Popen[str]
    orders: IO[str]
    answers: IO[str]

    def give(self, config: Config, folder: Path) -> None:
        self.orders.write(json.dumps({"config": resolved(config), "folder": str(folder.resolve())}) + "\n")
        self.orders.flush()

    def hear(self) -> None:
        """The end of a cell; an error if it was not a good one."""
        line = self.answers.readline()
        if not line:
            raise EngineError(f"a process that ran cells of the sweep ended with code {self.process.wait()}",
                              remedy="it may have run out of memory: use fewer workers; finished cells are kept")
        answer = json.loads(line)
        if "error" in answer:
            raise RunError(f"{answer['folder']}: {answer['error']}", remedy=answer["remedy"])

    def close(self) -> None:
        """Let it go; one that is still at work is stopped."""
        self.orders.close()
        self.process.terminate()
        self.process.wait()
        self.answers.close()


def _start(folder: Path | None) -> _Process:
    command = [sys.executable, "-m", "tequio.experiments.cells", NO_DATASET if folder is None else str(folder)]
    process = subprocess.Popen(command, env={**os.environ, **ONE_THREAD}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    return _Process(process, process.stdin, process.stdout)


def _hand_out(cells: Sequence[tuple[Config, Path]], processes: list[_Process], begin: Callable[[int], None]) -> None:
    waiting = list(enumerate(cells))
    with DefaultSelector() as busy:
        free = list(processes)
        while waiting or busy.get_map():
            while waiting and free:
                number, cell = waiting.pop(0)
                begin(number)
                free[-1].give(*cell)
                busy.register(free[-1].answers, EVENT_READ, free.pop())
            for key, _ in busy.select():
                busy.unregister(key.fileobj)
                key.data.hear()
                free.append(key.data)


def _shared(dataset: Dataset | None) -> Path | None:
    """A dataset that was handed over as an object, where the processes can open it."""
    if dataset is None:
        return None
    folder = shared_folder()
    write_population(Population(dataset, Partition.of([np.arange(len(dataset))])), folder)
    return folder


def main() -> None:
    """A process of a sweep: cells come in on stdin, what became of them goes out on stdout."""
    one_thread()
    place = sys.argv[1]
    dataset = None if place == NO_DATASET else open_population(Path(place)).dataset
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    for line in sys.stdin:
        print(json.dumps(_run_cell(json.loads(line), dataset)), file=answers, flush=True)


def _run_cell(order: dict[str, Any], dataset: Dataset | None) -> dict[str, str]:
    folder = Path(order["folder"])
    try:
        config = complete({**order["config"], "engine": {"name": "local", "workers": 1}}, source=folder.name)
        run_config(config, dataset=dataset, folder=folder)
    except TequioError as cause:
        return {"folder": folder.name, "error": cause.message, "remedy": cause.remedy}
    return {"folder": folder.name}


if __name__ == "__main__":
    main()
