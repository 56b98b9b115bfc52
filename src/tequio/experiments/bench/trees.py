"""Trees: all of ICDTA4FL among fifty parties on Adult, and how many rows a second a tree tells apart.

    python -m tequio.experiments.bench.trees PARTIES BUDGET        one fusion, its time and peak memory as JSON
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.preprocessing import preparations, prepare
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.engines.threads import one_thread
from tequio.errors import DataError
from tequio.experiments.bench.clock import seconds
from tequio.federation.algorithm import Parts
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.rng import stream

if TYPE_CHECKING:
    from tequio.learners.trees.tree import Tree

PARTIES, BUDGET = 50, 3000
_ROWS, _COLUMNS = 32_561, 108  # of Adult after one-hot encoding
PREDICTED = 1_000_000


def measure(parties: int = PARTIES, budget: int = BUDGET) -> dict[str, Any]:
    """Run in a process of its own, so that its peak memory is its own."""
    done = subprocess.run([sys.executable, "-m", __name__, str(parties), str(budget)], capture_output=True, text=True,
                          check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def microseconds_a_row(repeats: int) -> float:
    """What it costs a tree of depth 5 to predict one row, on one core."""
    limits, rows = one_thread(), _like_adult()
    tree: Tree = build("learner", "cart").fit(rows, stream(0, "fit"))
    many = np.resize(rows.features, (PREDICTED, rows.features.shape[1]))
    best = min(seconds(lambda: tree.predict(many)) for _ in range(repeats))
    limits.restore_original_limits()
    return best / PREDICTED * 1e6


def _like_adult() -> Dataset:
    """A made-up table of Adult's size: columns of 0 and 1, six of numbers, and a class that depends on some of them."""
    draw = np.random.default_rng(0)
    features = (draw.random((_ROWS, _COLUMNS)) < draw.random(_COLUMNS)).astype(np.float64)
    features[:, :6] = draw.gamma(2.0, 20.0, (_ROWS, 6)).round()
    score = features[:, 0] / 40 + features[:, 6:14] @ draw.normal(size=8) + draw.normal(size=_ROWS)
    schema = Schema.of_numbers([f"x{column}" for column in range(_COLUMNS)], Target("classes", ("no", "yes")))
    return Dataset.of(schema, features, (score > np.quantile(score, 0.76)).astype(np.int64), name="like adult")


def _adult() -> Dataset:
    """Adult, or where it is not at hand a table of its size."""
    try:
        rows = build("dataset", "adult").load().train
    except DataError:
        return _like_adult()
    return prepare(preparations(["onehot"]), [rows], [rows])[0]


def main() -> None:
    """Fuse once and print what it took as JSON."""
    parties, budget = int(sys.argv[1]), int(sys.argv[2])
    one_thread()
    rows = _adult()
    partition = build("partition", "iid", {"parties": parties}).deal(rows, stream(0, "partition"))
    population, engine = Population(rows, partition, Split(validation=0.1, test=0.1)), InlineEngine()
    engine.open(population)
    facts: list[dict[str, Any]] = []
    federation = Federation(population, engine, round=1,
                            record=lambda kind, fact: facts.append(fact) if kind == "fusion" else None)
    algorithm = build("algorithm", "icdta4fl", {"budget": budget}, parts={"parts": Parts(build("learner", "cart"))})
    start = algorithm.start(federation)
    took = seconds(lambda: algorithm.round(federation, start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": took, "fusion_seconds": facts[0]["seconds"], "peak_megabytes": peak, "data": rows.name,
                      "parties": parties, "kept_trees": len(facts[0]["kept"]), "rules": facts[0]["rules"],
                      "pairs": facts[0]["losses"]["pairs"]}))


if __name__ == "__main__":
    main()
