"""What hiding and shrinking updates costs: masks against the bare cipher, CKKS sums, and compression a number."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tequio.components import build
from tequio.data.dataset import Dataset
from tequio.data.partition import Partition
from tequio.data.schema import Schema, Target
from tequio.data.splits import Split
from tequio.engines.inline import InlineEngine
from tequio.experiments.bench.clock import best_in_turn, seconds
from tequio.federation.exchange import Reply
from tequio.federation.federation import Federation
from tequio.federation.party import Party
from tequio.federation.population import Population
from tequio.federation.replies import Replies
from tequio.privacy.aggregation.holding import HELD
from tequio.privacy.aggregation.keys import fresh_key
from tequio.privacy.aggregation.masks import STRETCH, add_masks

MASKED, NEIGHBOURS, MANY = 1_600_000, 99, 1000
ENCRYPTED, ENCRYPTING = 100_000, 10
COMPRESSED = 1_000_000


def masking(repeats: int, workers: int) -> dict[str, Any]:
    """One of 100 parties masks 1.6 million numbers, against the bare cipher over as many bytes; and 1,000 parties sum.

    The mark is 60 % of the cipher's speed. `by_neighbours` shows that the cost grows with neighbours, not parties.
    """
    values, keys = np.zeros(MASKED, dtype=np.uint32), [fresh_key() for _ in range(NEIGHBOURS + 1)]
    best = best_in_turn({"masks": lambda: add_masks(values, keys), "cipher": lambda: _cipher(MASKED * 4, keys)},
                        max(repeats // 2, 2))
    few = {str(count): seconds(partial(add_masks, values, keys[:count])) for count in (10, 20, 40)}
    many = _summing("secure-sum", MANY, 1000, {"neighbours": 20})
    return {"seconds": best["masks"], "value": best["masks"] / best["cipher"], "mark": 1 / 0.6, "unit": "x bare cipher",
            "by_neighbours": few, "seconds_of_1000_parties": seconds(many)}


def encrypted_sum(repeats: int, workers: int) -> dict[str, Any]:
    """Ten parties agree on a key, encrypt 100,000 numbers each, and have the sum decrypted."""
    best = min(seconds(_summing("encrypted-sum", ENCRYPTING, ENCRYPTED, {})) for _ in range(max(repeats // 3, 1)))
    return {"seconds": best, "value": best, "mark": 10.0, "unit": "s"}


def compression(repeats: int, workers: int) -> dict[str, Any]:
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


def _summing(stage: str, parties: int, size: int, parameters: dict[str, Any]) -> Any:
    """A sum of random updates of so many parties, ready to be timed."""
    population, engine = _population(parties), InlineEngine()
    engine.open(population)
    draw = np.random.default_rng(0)
    engine.restore({party: {HELD: {"round": 1, "vectors": {"update": draw.standard_normal(size)}}}
                    for party in range(parties)})
    federation = Federation(population, engine, round=1)
    made = build("stage", stage, parameters)
    return lambda: made.total(federation, np.arange(parties), "update", np.ones(parties), size)


def _there_and_back(stage: Any, update: dict[str, Any]) -> None:
    sent = stage.send(Party(0, 1, {}, _population(1)), {"update": update})
    stage.receive(Replies((Reply(0, sent),)), 1, 0)


def _population(parties: int) -> Population:
    dataset = Dataset.of(Schema.of_numbers(["x"], Target("number")), np.zeros((parties, 1)), np.zeros(parties))
    return Population(dataset, Partition(np.arange(parties), np.arange(parties + 1)), Split(0.0, 0.0))
