"""A population of a million against one of a thousand: only the chosen parties may cost anything."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.experiments.bench.clock import best_in_turn
from tequio.experiments.bench.problems import Rounds
from tequio.federation.algorithm import Parts
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining

_FEATURES, _ROWS_A_PARTY, _COHORT = 100, 20, 100


def measure(repeats: int) -> dict[str, Any]:
    """Run in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, "-m", __name__, str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _rounds(parties: int) -> Rounds:
    draw = np.random.default_rng(0)
    rows = 60_000
    schema = Schema.of_numbers([f"x{column}" for column in range(_FEATURES)], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, draw.standard_normal((rows, _FEATURES), dtype=np.float32), draw.integers(0, 2, rows))
    partition = build("partition", "sampled", {"parties": parties, "rows": _ROWS_A_PARTY}).deal(dataset, draw)
    parts = Parts(build("learner", "logistic"), LocalTraining(batch=10, learning_rate=0.1),
                  build("selector", "random", {"count": _COHORT}))
    population = Population(dataset, partition, Split(validation=0.0, test=0.0))
    return Rounds(build("algorithm", "fedavg", parts={"parts": parts}), population, InlineEngine())


def main() -> None:
    """Print the comparison as JSON."""
    best = best_in_turn({"million": _rounds(1_000_000), "thousand": _rounds(1_000)}, int(sys.argv[1]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": best["million"], "seconds_with_1000_parties": best["thousand"],
                      "ratio_to_1000_parties": best["million"] / best["thousand"], "peak_megabytes": peak}))


if __name__ == "__main__":
    main()
