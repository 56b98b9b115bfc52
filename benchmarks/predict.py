"""What `predict` costs beside the bare torch module: 100,000 rows of 64 numbers, standardised.

    python benchmarks/predict.py [ROWS]

A data frame of raw numbers goes into `Model.predict`. Beside it, in turns: the same module on a tensor that is prepared
already, which gives outputs and no answers; and the same work by hand with numpy and torch, from the raw numbers
to the class of each row. One thread; seconds are those of the processor, because other work lengthens wall time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas
import torch

from tequio.experiments.api import run

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS, CLASSES, TURNS = 64, 5, 15


def main(rows: int) -> None:
    """Print one line per learner and input."""
    rng = np.random.default_rng(0)
    features = rng.normal(5, 3, (rows, COLUMNS))
    target = (features[:, :10] @ rng.normal(size=(10, CLASSES))).argmax(axis=1)
    names = [f"x{column}" for column in range(COLUMNS)]
    blocks = pandas.DataFrame(features, columns=names)
    by_column = pandas.DataFrame({name: features[:, place].copy() for place, name in enumerate(names)})
    print(f"{rows:,} rows x {COLUMNS} columns, milliseconds of the processor, best of {TURNS} turns\n")
    print("| learner | bare module | by hand | predict, frame | predict, frame of columns | predict, array "
          "| frame / bare | frame / by hand |\n|---|---|---|---|---|---|---|---|")
    for learner in ("mlp", "logistic"):
        with tempfile.TemporaryDirectory() as place:
            made = run(rounds=1, learner=learner, output={"folder": place}, engine={"workers": 1},
                       data={"name": (features[:5_000], target[:5_000]), "prepare": ["standardise"]})
            model, module = made.trained, made.module()
        mean, scale = (model.reading.preparation.statistics[0][name] for name in ("mean", "scale"))
        prepared = torch.from_numpy(((features - mean) / scale).astype(np.float32))

        def bare(module: torch.nn.Module = module, prepared: torch.Tensor = prepared) -> torch.Tensor:
            with torch.inference_mode():
                return module(prepared)

        def by_hand(module: torch.nn.Module = module, mean: object = mean, scale: object = scale) -> np.ndarray:
            with torch.inference_mode():
                values = torch.from_numpy(((features - mean) / scale).astype(np.float32))
                return module(values).softmax(1).numpy().argmax(axis=1)

        assert (model.predict(blocks) == by_hand()).mean() > 0.9999
        ways = [bare, by_hand, *(lambda rows=rows, model=model: model.predict(rows)
                                 for rows in (blocks, by_column, features))]
        seconds = [1_000 * best for best in in_turns(ways)]
        print(f"| {learner} | " + " | ".join(f"{each:.1f}" for each in seconds)
              + f" | {seconds[2] / seconds[0]:.2f} | {seconds[2] / seconds[1]:.2f} |")


def in_turns(ways: list[Callable[[], object]]) -> list[float]:
    """The least time of each, measured one after the other again and again, so that all meet the same machine."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(TURNS):
        for way, seen in zip(ways, times, strict=True):
            started = time.process_time()
            way()
            seen.append(time.process_time() - started)
    return [min(seen) for seen in times]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
