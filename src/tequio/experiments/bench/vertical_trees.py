"""SecureBoost against the same protocol on Paillier element by element: no packing, nothing worked out beforehand."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partitions.columns import Columns
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.experiments.bench.clock import seconds
from tequio.federation.algorithm import Parts
from tequio.federation.federation import Federation
from tequio.federation.population import Population

if TYPE_CHECKING:
    from collections.abc import Callable

    from tequio.federation.algorithm import State

ROWS, COLUMNS, BINS, DEPTH, KEY_BITS = 20_000, 10, 32, 3, 2048
_MARK = 1 / 8
_SAMPLED = {"encryptions": 40, "additions": 4000, "openings": 40}


def secureboost(repeats: int, workers: int) -> dict[str, Any]:
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

    def __init__(self, encryption: Any) -> None:
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
        learner = build("learner", "boosted_trees", {"bins": BINS, "depth": DEPTH})
        self.algorithm = build("algorithm", "secureboost", {"encryption": encryption, "alignment": "agreed"},
                               parts={"parts": Parts(learner=learner)})
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
