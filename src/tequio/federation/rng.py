"""Random streams keyed by (seed, purpose, round, party): never global state, never call order.

Random numbers by counter: one for each party of an array, without a generator a party.

A number follows from (seed, purpose, round, party) alone, so the numbers of a hundred candidates among a million
parties cost a hundred hashes, whoever else was asked before.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# NumPy's SeedSequence (O'Neill's seed_seq_fe), which keeps its numbers from version to version: 32-bit words of the key
# are hashed one after another into a pool of four, each hash with a constant of its own.
_POOL = 4
_HASH, _HASH_FACTOR = 0x43B0D7E5, 0x931E8875
_MIX_OLD, _MIX_NEW = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_DRAW, _DRAW_FACTOR = 0x8B51F9DD, 0x58F38DED
_HALF_A_WORD = np.uint32(16)


@lru_cache(maxsize=256)
def _purpose_key(purpose: str) -> int:
    return int.from_bytes(blake2b(purpose.encode(), digest_size=4).digest(), "little")


def stream(seed: int, purpose: str, round: int = 0, party: int = 0) -> np.random.Generator:
    """The generator for one purpose at one party in one round; the same key always gives the same numbers."""
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(_purpose_key(purpose), round, party))
    return np.random.Generator(np.random.PCG64(sequence))


class Streams:
    """The streams of parties that work side by side: the same generators, but all seeds of a purpose made in one go."""

    def __init__(self, seed: int, round: int, parties: Sequence[int]) -> None:
        self.seed = seed
        self._round = round
        self._parties = parties
        self._seeds: dict[str, dict[int, NDArray[np.uint64]]] = {}

    def of(self, purpose: str, party: int) -> np.random.Generator:
        """The same as `stream` for that party."""
        seeds = self._seeds.get(purpose)
        if seeds is None:
            made = _seeds(self.seed, purpose, self._round, self._parties)
            seeds = self._seeds[purpose] = dict(zip(self._parties, made, strict=True))
        sequence: Any = _Seeded(seeds[party])
        return np.random.Generator(np.random.PCG64(sequence))


class _Seeded(ISeedSequence):
    """A seed sequence that has already been drawn from."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return self._words


def _seeds(seed: int, purpose: str, round: int, parties: Sequence[int]) -> NDArray[np.uint64]:
    """The four words that a PCG64 takes from the SeedSequence of each party's key: (parties, 4).

    The party is the last word of the key, so the pool before it is the same for all.
    """
    pool = _pool_before_party(seed, purpose, round)
    words_before = max(_POOL, -(-seed.bit_length() // 32)) + 2
    hashing = _constants(_HASH, _HASH_FACTOR, _POOL * words_before, _POOL + 1)
    last = _scramble(np.asarray(parties, np.uint32), hashing)
    mixed = _fold(_MIX_OLD * pool - _MIX_NEW * last)
    drawn = _scramble(np.tile(mixed, (2, 1)), _constants(_DRAW, _DRAW_FACTOR, 0, 2 * _POOL + 1))
    return np.ascontiguousarray(drawn.T, "<u4").view("<u8")


@lru_cache(maxsize=256)
def _pool_before_party(seed: int, purpose: str, round: int) -> NDArray[np.uint32]:
    return np.random.SeedSequence(entropy=seed, spawn_key=(_purpose_key(purpose), round)).pool[:, None]


@lru_cache(maxsize=256)
def _constants(first: int, factor: int, used: int, count: int) -> NDArray[np.uint32]:
    """The next hash constants after some have been used, as a column."""
    return np.array([[first * pow(factor, used + step, 1 << 32) % (1 << 32)] for step in range(count)], np.uint32)


def _scramble(words: NDArray[np.uint32], constants: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _fold((words ^ constants[:-1]) * constants[1:])


def _fold(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return words ^ (words >> _HALF_A_WORD)


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
