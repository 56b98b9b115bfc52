"""Logistic regression under encryption: what a batch costs with each scheme, and without packing and precomputation.

All times are those of one core, whatever else the machine does.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partitions.columns import Columns
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.federation.algorithm import Parts
from tequio.federation.federation import Federation
from tequio.federation.population import Population
from tequio.learners.learner import LocalTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.privacy.encryption.paillier_keys import Factors

KEY_BITS, COLUMNS = 2048, 15
SIZES, ROWS_OF_THE_REFERENCE = (256, 1024, 4096), 256
_FRACTION, _FACTOR_FRACTION = 32, 16


def ckks_and_paillier(repeats: int, workers: int) -> dict[str, Any]:
    """A batch with CKKS, with Paillier and in clear: two parties, 15 columns each.

    The mark is for 4,096 rows, which fill a CKKS ciphertext; smaller batches, where they do not, are told beside it.
    """
    by_rows = {rows: _schemes(rows, max(repeats // 4, 1)) for rows in SIZES}
    full = by_rows[SIZES[-1]]
    return {"seconds": full["ckks"], "value": full["ckks"] / full["paillier"], "mark": 1 / 20,
            "unit": "x the time of a batch with Paillier-2048", "columns": [COLUMNS, COLUMNS],
            "by_rows": {str(rows): measured for rows, measured in by_rows.items()}}


def _schemes(rows: int, turns: int) -> dict[str, Any]:
    """Seconds and bytes of a batch with each scheme, and how many times the twin in clear that is."""
    schemes: dict[str, Any] = {"ckks": "ckks", "paillier": {"name": "paillier", "bits": KEY_BITS}, "plain": "plain"}
    batches = {name: Batches(scheme, rows) for name, scheme in schemes.items()}
    times = [{name: processor_seconds(batch.next) for name, batch in batches.items()} for _ in range(turns)]
    best = {name: min(turn[name] for turn in times) for name in schemes}
    return {**best, "bytes": {name: batch.bytes() for name, batch in batches.items()},
            "price": {name: best[name] / best["plain"] for name in ("ckks", "paillier")}}


def paillier_and_element_by_element(repeats: int, workers: int) -> dict[str, Any]:
    """A batch of 256 rows of ours, and of the same exchange with textbook Paillier, element by element."""
    ours = Batches({"name": "paillier", "bits": KEY_BITS}, ROWS_OF_THE_REFERENCE)
    reference = ElementByElement(ours)
    turns = [(processor_seconds(ours.next), processor_seconds(reference.batch)) for _ in range(max(repeats // 3, 1))]
    best, textbook = (min(times) for times in zip(*turns, strict=True))
    return {"seconds": best, "value": best / textbook, "mark": 1 / 5, "unit": "x the time of per-element Paillier-2048",
            "reference_seconds": textbook, "rows_a_second": ROWS_OF_THE_REFERENCE / best,
            "reference_rows_a_second": ROWS_OF_THE_REFERENCE / textbook}


def processor_seconds(work: Callable[[], object]) -> float:
    """How long a piece of work keeps the processor busy."""
    started = time.process_time()
    work()
    return time.process_time() - started


class Batches:
    """A regression whose rounds are one batch each: two parties with 15 columns, a key holder, no loss worked out."""

    def __init__(self, encryption: Any, rows: int) -> None:
        draw = np.random.default_rng(0)
        self.features = draw.standard_normal((rows, 2 * COLUMNS))
        target = (self.features @ draw.standard_normal(2 * COLUMNS) > 0).astype(np.int64)
        names = [f"x{column}" for column in range(2 * COLUMNS)]
        dataset = Dataset.of(Schema.of_numbers(names, Target("classes", ("no", "yes"))), self.features, target)
        population = Population(dataset, Columns(parties=2, key_holder=True).deal(dataset, draw), Split(0.0, 0.0))
        engine = InlineEngine()
        engine.open(population)
        self.federation = Federation(population, engine)
        self.algorithm = build("algorithm", "vertical-logistic", {
            "encryption": encryption, "alignment": "agreed", "patience": 0},
            parts={"parts": Parts(local=LocalTraining(batch=0))})
        self.state = self.algorithm.start(self.federation)
        self.next()  # alignment, keys and the tables of powers

    def next(self) -> None:
        """One batch."""
        self.federation.round += 1
        self.state = self.algorithm.round(self.federation, self.state)

    def bytes(self) -> int:
        """What a batch sends in both directions."""
        traffic = self.federation.traffic
        before = traffic.bytes_up + traffic.bytes_down
        self.next()
        return traffic.bytes_up + traffic.bytes_down - before


@dataclass
class ElementByElement:
    """The same batch as libraries for single numbers do it: one ciphertext a value, each randomised by a full power.

    A factor below zero goes by the inverse of the ciphertext, which keeps its power short; opening goes by the Chinese
    remainder theorem. Nothing is packed, nothing shared between powers, and nothing worked out beforehand.
    """

    like: Batches

    def __post_init__(self) -> None:
        from tequio.privacy.encryption.paillier_keys import generate

        self.factors: Factors = generate(KEY_BITS, secrets.randbits)
        wide = np.insert(self.like.features, 0, 1.0, axis=1)
        scaled = np.rint(np.ldexp(wide, _FACTOR_FRACTION)).astype(np.int64)
        self.blocks = [scaled[:, :COLUMNS + 1], scaled[:, COLUMNS + 1:]]

    def batch(self) -> list[list[int]]:
        """Residuals of both parties, their sum, products with columns, pads, and what the key holder opens."""
        rows = len(self.like.features)
        parts = [[self._encrypt(1 << _FRACTION) for _ in range(rows)] for _ in self.blocks]
        residuals = [first * second % self.factors.public.squared for first, second in zip(*parts, strict=True)]
        return [[self.factors.open(self._padded(residuals, column)) for column in block.T] for block in self.blocks]

    def _encrypt(self, number: int) -> Any:
        from gmpy2 import mpz, powmod

        public = self.factors.public
        random = powmod(mpz(secrets.randbits(KEY_BITS - 1)), public.n, public.squared)
        return (1 + number * public.n) * random % public.squared

    def _padded(self, residuals: list[Any], column: NDArray[np.int64]) -> Any:
        from gmpy2 import invert, powmod

        square = self.factors.public.squared
        total = self._encrypt(secrets.randbits(120))
        for residual, factor in zip(residuals, column.tolist(), strict=True):
            base = residual if factor >= 0 else invert(residual, square)
            total = total * powmod(base, abs(factor), square) % square
        return total
