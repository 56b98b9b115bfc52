"""Random streams keyed by (seed, purpose, round, party): never global state, never call order."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np


@lru_cache(maxsize=256)
def _purpose_key(purpose: str) -> int:
    return int.from_bytes(blake2b(purpose.encode(), digest_size=4).digest(), "little")


def stream(seed: int, purpose: str, round: int = 0, party: int = 0) -> np.random.Generator:
    """The generator for one purpose at one party in one round; the same key always gives the same numbers."""
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(_purpose_key(purpose), round, party))
    return np.random.Generator(np.random.PCG64(sequence))
