"""Random numbers by counter: one for each party of an array, without a generator a party.

A number follows from (seed, purpose, round, party) alone, so the numbers of a hundred candidates among a million
parties cost a hundred hashes, whoever else was asked before.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def uniform(seed: int, purpose: str, round: int, parties: NDArray[Any]) -> NDArray[np.float64]:
    """One number strictly between 0 and 1 for each party."""
    with np.errstate(over="ignore"):
        mixed = _mix(_mix(np.asarray(parties).astype(np.uint64) * _STEP + _key(seed, purpose, round)))
    return ((mixed >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def truncated_normal(draws: NDArray[np.float64], deviation: float, bound: float) -> NDArray[np.float64]:
    """Uniform draws turned into a normal distribution around 0 that is cut off at -bound and bound."""
    if not deviation or not bound:
        return np.zeros_like(draws)
    from scipy.special import ndtr, ndtri

    lowest = ndtr(-bound / deviation)
    found: NDArray[np.float64] = deviation * ndtri(lowest + draws * (1 - 2 * lowest))
    return np.clip(found, -bound, bound)


@lru_cache(maxsize=1024)
def _key(seed: int, purpose: str, round: int) -> np.uint64:
    text = f"{seed}/{purpose}/{round}".encode()
    return np.uint64(int.from_bytes(blake2b(text, digest_size=8).digest(), "little"))


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood, 2014): every bit in changes every bit out."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
