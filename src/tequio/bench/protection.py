"""What protection costs: masks, one-shot sums, compression, noise, and regression under encryption.

Times of encrypted regression are those of one core, whatever else the machine does.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.training import UpdateReply, train
from tequio.bench.problems import PROBLEMS, Measured, Rounds, best_in_turn, seconds
from tequio.data.dataset import Dataset, Schema, Target
from tequio.data.partition import Partition, Split
from tequio.data.partitions.columns import Columns
from tequio.engines.inline import InlineEngine, one_thread
from tequio.federation.aggregation import zeros
from tequio.federation.exchange import Replies, Reply
from tequio.federation.federation import Federation
from tequio.federation.population import Party, Population, state_name
from tequio.federation.stages import Aggregated, Stage
from tequio.federation.task import TrainSettings
from tequio.learners.learner import LocalTraining
from tequio.privacy.aggregation.keys import STRETCH, add_masks, fresh_key
from tequio.privacy.noising import norm
from tequio.privacy.updates import Held
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.paillier_keys import Factors


MASKED, NEIGHBOURS, MANY = 1_600_000, 99, 1000
ENCRYPTED, ENCRYPTING = 100_000, 100
COMPRESSED = 1_000_000


def masking(repeats: int, workers: int) -> Measured:
    """One of 100 parties masks 1.6 million numbers, against the bare cipher over as many bytes; and 1,000 parties sum.

    The mark is 60 % of the cipher's speed. `by_neighbours` shows that the cost grows with neighbours, not parties.
    """
    values, keys = np.zeros(MASKED, dtype=np.uint32), [fresh_key() for _ in range(NEIGHBOURS + 1)]
    best = best_in_turn({"masks": lambda: add_masks(values, keys), "cipher": lambda: _cipher(MASKED * 4, keys)},
                        max(repeats // 2, 2))
    few = {str(count): seconds(partial(add_masks, values, keys[:count])) for count in (10, 20, 40)}
    many = _summing("secure-sum", MANY, 1000, {})
    return {"seconds": best["masks"], "value": best["masks"] / best["cipher"], "mark": 1 / 0.6, "unit": "x bare cipher",
            "by_neighbours": few, "seconds_of_1000_parties": seconds(many)}


def one_shot_sum(repeats: int, workers: int) -> Measured:
    """A hundred parties send one message of 100,000 numbers each, and a committee of theirs opens the sum."""
    best = min(seconds(_summing("one-shot-sum", ENCRYPTING, ENCRYPTED, {})) for _ in range(max(repeats // 3, 1)))
    return {"seconds": best, "value": best, "mark": 10.0, "unit": "s"}


def compression(repeats: int, workers: int) -> Measured:
    """Nanoseconds a number to compress an update and to undo it; the slowest stage counts."""
    stages = {"quantise 8": ("quantise", {"bits": 8}), "quantise 1": ("quantise", {"bits": 1}), "top-k": ("top-k", {}),
              "random-k": ("random-k", {}), "low-rank": ("low-rank", {}), "delta-zstd": ("delta-zstd", {})}
    update = {"w": np.random.default_rng(0).standard_normal((1000, COMPRESSED // 1000), dtype=np.float32)}
    best = best_in_turn({name: partial(_there_and_back, build("stage", *what), update)
                         for name, what in stages.items()}, max(repeats // 2, 1))
    each = {name: time / COMPRESSED * 1e9 for name, time in best.items()}
    return {"by_stage": each, "value": max(each.values()), "mark": 200.0, "unit": "ns a number, at worst"}


def _cipher(size: int, keys: list[bytes]) -> None:
    """The stream alone, in one call a key."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    noughts, out = bytes(size), bytearray(size + STRETCH)
    for key in keys:
        Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update_into(noughts, out)


def _summing(stage: str, parties: int, size: int, parameters: dict[str, object]) -> Callable[[], object]:
    """A sum of random updates of so many parties, ready to be timed."""
    population, engine = _population(parties), InlineEngine()
    engine.open(population)
    draw = np.random.default_rng(0)
    engine.restore({party: {state_name(Held): {"round": 1, "vectors": {"update": draw.standard_normal(size)}}}
                    for party in range(parties)})
    federation = Federation(population, engine, round=1)
    made = build("stage", stage, parameters)
    return lambda: made.total(federation, np.arange(parties), "update", np.ones(parties), size)


def _there_and_back(stage: Stage, update: Payload) -> None:
    sent = stage.send(Party(0, 1, {}, _population(1)), {"update": update})
    stage.receive(Replies((Reply(0, sent),)), 1, 0)


def _population(parties: int) -> Population:
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((parties, 1)), np.zeros(parties))
    return Population(dataset, Partition(np.arange(parties), np.arange(parties + 1)), Split(0.0, 0.0))


_MARK = 0.05


def clipping_and_noise(repeats: int, workers: int) -> Measured:
    """Both halves of central differential privacy, clip at the median, over a round of the case `mlp` without it."""
    limits, problem = one_thread(), PROBLEMS["mlp"]
    algorithm = problem.algorithm()
    rounds = Rounds(algorithm, problem.population(), InlineEngine())
    model = rounds.state.model
    replies = rounds.federation.ask(range(problem.cohort), train, {"model": model},
                                    settings=TrainSettings(learner=algorithm.learner, local=algorithm.local))
    # Where the clip has found the median, half of the updates are shortened.
    median = float(np.median([norm([*payload["update"].values()]) for payload in replies.payloads]))
    stage = build("stage", "central-dp", {"clip": median, "noise": 0.5, "quantile": 0.5, "expected": problem.cohort})
    rounds()
    times = [(_seconds_of_round(rounds), _seconds_of_protection(stage, rounds.federation, _copied(replies)))
             for _ in range(repeats + 1)][1:]
    limits.restore_original_limits()
    whole, protection = (min(column) for column in zip(*times, strict=True))
    return {"seconds": protection, "value": protection / whole, "mark": _MARK, "unit": "of a round",
            "round_seconds": whole}


def _seconds_of_round(rounds: Rounds) -> float:
    """Of the processor, which other programs do not lengthen."""
    started = time.process_time()
    rounds()
    return time.process_time() - started


def _seconds_of_protection(stage: Stage, federation: Federation, replies: Replies) -> float:
    party, mean = Party(0, 1, {}, federation.population), zeros(replies[0].payload["update"])
    count = len(replies)
    started = time.process_time()
    sent = tuple(replace(reply, payload=stage.send(party, reply.payload)) for reply in replies)
    received = stage.receive(replace(replies, answers=sent), 1, 0)
    sums = Aggregated("update", received, replies.parties, np.full(count, 1 / count), count)
    stage.transform_mean(federation, mean, sums)
    return time.process_time() - started


def _copied(replies: Replies[UpdateReply]) -> Replies:
    """Updates are shortened where they lie, so that each time needs fresh ones."""
    return Replies(tuple(Reply(reply.party, {**reply.payload, "update": {
        name: values.copy() for name, values in reply.payload["update"].items()}}) for reply in replies))


KEY_BITS, COLUMNS = 2048, 15
SIZES, ROWS_OF_THE_REFERENCE = (256, 1024, 4096), 256
_FRACTION, _FACTOR_FRACTION = 32, 16


def ckks_and_paillier(repeats: int, workers: int) -> Measured:
    """A batch with CKKS, with Paillier and in clear: two parties, 15 columns each.

    The mark is for 4,096 rows, which fill a CKKS ciphertext; smaller batches, where they do not, are told beside it.
    """
    by_rows = {rows: _schemes(rows, max(repeats // 4, 1)) for rows in SIZES}
    full = by_rows[SIZES[-1]]
    return {"seconds": full["ckks"], "value": full["ckks"] / full["paillier"], "mark": 1 / 20,
            "unit": "x the time of a batch with Paillier-2048", "columns": [COLUMNS, COLUMNS],
            "by_rows": {str(rows): measured for rows, measured in by_rows.items()}}


def _schemes(rows: int, turns: int) -> Measured:
    """Seconds and bytes of a batch with each scheme, and how many times the twin in clear that is."""
    schemes: dict[str, object] = {"ckks": "ckks", "paillier": {"name": "paillier", "bits": KEY_BITS}, "plain": "plain"}
    batches = {name: Batches(scheme, rows) for name, scheme in schemes.items()}
    times = [{name: processor_seconds(batch.next) for name, batch in batches.items()} for _ in range(turns)]
    best = {name: min(turn[name] for turn in times) for name in schemes}
    return {**best, "bytes": {name: batch.bytes() for name, batch in batches.items()},
            "price": {name: best[name] / best["plain"] for name in ("ckks", "paillier")}}


def paillier_and_element_by_element(repeats: int, workers: int) -> Measured:
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

    def __init__(self, encryption: object, rows: int) -> None:
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
            parts={"local": LocalTraining(batch=0)})
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
