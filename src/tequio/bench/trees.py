"""Trees and private set intersection: ICDTA4FL among fifty parties, prediction, SecureBoost, and common ids.

    python -m tequio.bench.trees PARTIES BUDGET        one fusion, its time and peak memory as JSON

SecureBoost is measured against the same protocol on Paillier element by element: no packing, nothing worked out
beforehand.
"""

from __future__ import annotations

import json
import resource
import secrets
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from tequio.algorithms.vertical.alignment import find_common
from tequio.algorithms.vertical.conversation import Conversation, roles_of
from tequio.bench.problems import Measured, seconds
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.data.partitions.columns import Columns
from tequio.data.preprocessing import preparations, prepare
from tequio.engines.inline import InlineEngine, one_thread
from tequio.errors import DataError
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.federation.rng import stream
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.learners.trees.tree import Tree


PARTIES, BUDGET = 50, 3000
_ROWS, _COLUMNS = 32_561, 108  # of Adult after one-hot encoding
PREDICTED = 1_000_000


def measure(parties: int = PARTIES, budget: int = BUDGET) -> Measured:
    """Run in a process of its own, so that its peak memory is its own."""
    done = subprocess.run([sys.executable, "-m", __name__, str(parties), str(budget)], capture_output=True, text=True,
                          check=True)
    measured: Measured = json.loads(done.stdout)
    return measured


def fusion(repeats: int, workers: int) -> Measured:
    """All of ICDTA4FL among fifty parties, in less than 2 GB."""
    measured = measure()
    return {**measured, "value": measured["seconds"] if measured["peak_megabytes"] < 2000 else float("inf"),
            "mark": 60.0, "unit": "s"}


def prediction(repeats: int, workers: int) -> Measured:
    """What it costs a tree of depth 5 to predict one row, on one core."""
    limits, rows = one_thread(), _like_adult()
    tree: Tree = build("learner", "cart").fit(rows, stream(0, "fit"))
    many = np.resize(rows.features, (PREDICTED, rows.features.shape[1]))
    best = min(seconds(lambda: tree.predict(many)) for _ in range(repeats))
    limits.restore_original_limits()
    return {"seconds": best, "value": best / PREDICTED * 1e6, "mark": 1.0, "unit": "microseconds a row"}


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
    return prepare(preparations(["one-hot"]), [rows], [rows])[0]


def main() -> None:
    """Fuse once and print what it took as JSON."""
    parties, budget = int(sys.argv[1]), int(sys.argv[2])
    one_thread()
    rows = _adult()
    partition = build("partition", "iid", {"parties": parties}).deal(rows, stream(0, "partition"))
    population, engine = Population(rows, partition, Split(validation=0.1, test=0.1)), InlineEngine()
    engine.open(population)
    facts: list[Measured] = []
    federation = Federation(population, engine, round=1,
                            record=lambda kind, fact: facts.append(fact) if kind == "fusion" else None)
    algorithm = build("algorithm", "icdta4fl", {"budget": budget}, parts={"learner": build("learner", "cart")})
    start = algorithm.start(federation)
    took = seconds(lambda: algorithm.round(federation, start))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": took, "fusion_seconds": facts[0]["seconds"], "peak_megabytes": peak, "data": rows.name,
                      "parties": parties, "kept_trees": len(facts[0]["kept"]), "rules": facts[0]["rules"],
                      "pairs": facts[0]["losses"]["pairs"]}))


ROWS, COLUMNS, BINS, DEPTH, KEY_BITS = 20_000, 10, 32, 3, 2048
_MARK = 1 / 8
_SAMPLED = {"encryptions": 40, "additions": 4000, "openings": 40}


def secureboost(repeats: int, workers: int) -> Measured:
    """A tree of ours, of its plaintext twin, and of the reference.

    The reference does the same encryptions, additions and openings one by one. It would take minutes, so a sample of
    each kind is timed right after our tree, and scaled by how many the tree takes.
    """
    twin, ours = _Trees("plain"), _Trees({"name": "paillier", "bits": KEY_BITS})
    turns = []
    for _ in range(max(repeats // 3, 1)):
        turns.append({"twin": seconds(twin.next), "ours": seconds(ours.next), "reference": _reference(ours.work())})
    best = {name: min(turn[name] for turn in turns) for name in turns[0]}
    return {"seconds": best["ours"], "value": best["ours"] / best["reference"], "mark": _MARK,
            "unit": "x the time of per-element Paillier-2048", "reference_seconds": best["reference"],
            "reference": f"scaled from {_SAMPLED}",
            "plaintext_twin_seconds": best["twin"], "price_of_encryption": best["ours"] / best["twin"]}


class _Trees:
    """One tree after the other: 20,000 rows, 10 columns at either party."""

    def __init__(self, encryption: object) -> None:
        draw = np.random.default_rng(0)
        features = draw.standard_normal((ROWS, 2 * COLUMNS))
        target = (features @ draw.standard_normal(2 * COLUMNS) + draw.standard_normal(ROWS) > 0).astype(np.int64)
        schema = Schema.of_numbers([f"x{column}" for column in range(2 * COLUMNS)], Target("classes", ("no", "yes")))
        dataset = Dataset.of(schema, features, target)
        partition = Columns(parties=2).deal(dataset, draw)
        engine = InlineEngine()
        population = Population(dataset, partition, Split(0.0, 0.0))
        engine.open(population)
        self.federation = Federation(population, engine)
        learner = build("learner", "boosted-trees", {"bins": BINS, "depth": DEPTH})
        self.algorithm = build("algorithm", "secureboost", {"encryption": encryption, "alignment": "agreed"},
                               parts={"learner": learner})
        self.state: State = self.algorithm.start(self.federation)
        self.next()  # alignment, bins and keys

    def next(self) -> None:
        """One round."""
        self.federation.round += 1
        self.state = self.algorithm.round(self.federation, self.state)

    def work(self) -> dict[str, int]:
        """What the protocol takes for a tree, a gradient and a second derivative apart.

        Only the lighter child of each split is added up, as ours does it; it is counted as half of its parent.
        """
        nodes = 1 + sum(2 ** level // 2 for level in range(1, DEPTH))
        rows_added = ROWS + (DEPTH - 1) * ROWS // 2
        return {"encryptions": 2 * ROWS, "additions": 2 * COLUMNS * rows_added,
                "openings": 2 * COLUMNS * (BINS - 1) * nodes}


def _reference(work: dict[str, int]) -> float:
    """Seconds for so many operations of textbook Paillier, with opening by the Chinese remainder theorem."""
    from tequio.privacy.encryption.paillier_keys import generate

    factors = generate(KEY_BITS, secrets.randbits)
    public, made = factors.public, []

    def encrypt() -> None:
        from gmpy2 import mpz, powmod

        random = powmod(mpz(secrets.randbits(KEY_BITS)), public.n, public.squared)
        made.append((1 + secrets.randbits(40) * public.n) * random % public.squared)

    def add() -> None:
        made[0] = made[0] * made[1] % public.squared

    one = {"encryptions": encrypt, "additions": add, "openings": lambda: factors.open(made[0])}
    return sum(seconds(_times(one[name], count)) / count * work[name] for name, count in _SAMPLED.items())


def _times(work: Callable[[], object], count: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(count):
            work()

    return repeated


IDS = 100_000


def intersect(repeats: int, workers: int) -> Measured:
    """One alignment of two sets of which half is common, in seconds of one core, whatever else the machine does."""
    federation = _two_parties(IDS)
    started = time.process_time()
    common = find_common(Conversation(federation, roles_of(federation)), "psi", ())
    took = time.process_time() - started
    federation.engine.close()
    return {"seconds": took, "value": took, "mark": 60.0, "unit": "s", "ids": [IDS, IDS], "common": common,
            "bytes": federation.traffic.bytes_up + federation.traffic.bytes_down}


def _two_parties(size: int) -> Federation:
    total = size + size // 2
    schema = Schema.of_numbers(["a", "b"], Target("classes", ("no", "yes")))
    dataset = Dataset.of(schema, np.zeros((total, 2), np.float32), np.arange(total) % 2)
    rows: list[NDArray[np.int64]] = [np.arange(size), np.arange(size // 2, total)]
    partition = Partition.of(rows, columns=(np.array([0]), np.array([1])), holds_target=(True, False))
    engine = InlineEngine()
    engine.open(Population(dataset, partition, Split(0.0, 0.0)))
    return Federation(Population(dataset, partition, Split(0.0, 0.0)), engine)


if __name__ == "__main__":
    main()
