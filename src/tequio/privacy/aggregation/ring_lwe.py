"""Encryption whose keys add up: the sum of keys opens the sum of ciphertexts exactly, and nothing opens just one.

Lyubashevsky, Peikert, Regev: On ideal lattices and learning with errors over rings, EUROCRYPT 2010. Numbers x become
a s + T e + x in Z_Q[X]/(X^N + 1), with a public a and a small secret key s and error e. Sums of ciphertexts, keys and
errors stay small beside Q, so that subtracting a times the sum of keys and reducing modulo T leaves the sum of numbers.

Kim, Lee, Seo, Song: Toward practical lattice-based proof of knowledge from Hint-MLWE, CRYPTO 2023: who learns the sums
of keys and of errors of two parties or more still faces ring-LWE with a deviation smaller by sqrt 2 at most. That
leaves 3.25 here; with N = 2048 and Q of 52 bits, 128 bits of security need 3.2 (Homomorphic encryption standard, 2018).
"""

from __future__ import annotations

import secrets
from decimal import Context, Decimal
from functools import lru_cache
from math import pi, sqrt
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, PayloadError
from tequio.privacy.aggregation.encodings import Draws, digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Ciphertext = NDArray[np.uint64]

DEGREE = 2048
PRIMES = (67104769, 67084289)
"""Below 2^26, so that products of two residues fit into 64 bits with room for 2^11 of them."""
MODULUS = PRIMES[0] * PRIMES[1]
PLAIN_BITS = 32
DEVIATION = 4.6
_TAIL = 12
"""Sums of errors stay within this many deviations but for a chance below 2^-100."""

_FARTHEST = 0.25
_ADDED_AT_ONCE = (1 << 64) // MODULUS - 1


def check_room(parties: int) -> None:
    """Refuse more parties than a sum of ciphertexts has room for."""
    if (_widest_error(parties) + parties) << PLAIN_BITS >= MODULUS // 2:
        raise ConfigError(f"sums of {parties} parties do not fit into ciphertexts of {MODULUS.bit_length()} bits",
                          remedy="let fewer parties take part in a round: set selector = 'random'")


def encrypt(seed: bytes, key: Numbers, plain: NDArray[np.uint32]) -> Ciphertext:
    """The numbers under a key that is used once."""
    error = small(len(plain))
    noised = (error << PLAIN_BITS) + plain.astype(np.int64)
    masks = _times_public(seed, key, len(plain))
    return _joined([(mask + noised) % prime for mask, prime in zip(masks, PRIMES, strict=True)])


def add(total: Ciphertext, ciphertext: Ciphertext, added: int) -> None:
    """Add to a total of so many ciphertexts, in place."""
    total += ciphertext
    if added % _ADDED_AT_ONCE == 0:
        total %= np.uint64(MODULUS)


def open_sum(seed: bytes, keys: Numbers, total: Ciphertext, parties: int) -> NDArray[np.uint32]:
    """The sum of the numbers modulo 2^32, by the sum of the keys of these very parties."""
    if np.abs(keys).max() > _widest_error(parties):
        raise PayloadError(f"what was put together is no sum of {parties} keys")
    masks = _times_public(seed, keys, len(total))
    residues = [((total % np.uint64(prime)).astype(np.int64) - mask) % prime
                for mask, prime in zip(masks, PRIMES, strict=True)]
    noised = _joined(residues).astype(np.int64)
    noised = np.where(noised > MODULUS // 2, noised - MODULUS, noised)
    if np.abs(noised >> PLAIN_BITS).max(initial=0) > _widest_error(parties) + parties:
        raise PayloadError(f"the sum of {parties} ciphertexts holds larger errors than their keys allow: one of them "
                           "is of another party, was altered, or was made to spoil the sum")
    return noised.astype(np.uint32)


def small(count: int) -> Numbers:
    """Numbers from the discrete Gaussian, for keys and errors: by inversion, of 64 secret random bits each."""
    drawn = np.frombuffer(secrets.token_bytes(8 * count), dtype="<u8")
    table, coarse = _gaussian_table()
    index = coarse[drawn >> np.uint64(48)]
    # Within one step of the coarse table's 2^16 lies one threshold at most, but in the tails.
    undecided = np.flatnonzero(index < 0)
    index[undecided] = np.searchsorted(table, drawn[undecided], side="right")
    return np.asarray(index - len(table) // 2)


@lru_cache(maxsize=1)
def _gaussian_table() -> tuple[NDArray[np.uint64], Numbers]:
    """Thresholds in 64 bits, and by the first 16 of them what is drawn; -1 where these do not decide."""
    exact = Context(prec=50)
    reach = int(9.3 * DEVIATION)
    weights = [exact.exp(-exact.divide(Decimal(k * k), Decimal(2 * DEVIATION ** 2))) for k in range(-reach, reach + 1)]
    total, below, thresholds = sum(weights), Decimal(0), []
    for weight in weights[:-1]:
        below += weight
        thresholds.append(int(below / total * (1 << 64)))
    table = np.array(thresholds, dtype=np.uint64)
    starts = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    first, last = (np.searchsorted(table, starts + np.uint64(more), side="right") for more in (0, (1 << 48) - 1))
    return table, np.where(first == last, first, -1)


def _widest_error(parties: int) -> int:
    return int(_TAIL * DEVIATION * sqrt(parties))


def _joined(residues: list[Numbers]) -> Ciphertext:
    """Numbers below Q from their remainders, by the Chinese remainder theorem."""
    (first, second), (p, q) = residues, PRIMES
    return (first + p * ((second - first) * pow(p, -1, q) % q)).astype(np.uint64)


def _times_public(seed: bytes, key: Numbers, count: int) -> list[Numbers]:
    """The first numbers of the products of a key with all public polynomials, modulo each prime.

    By Fourier transforms in double precision. Products stay below 2^48 and errors, by Percival's bound (Rapid
    multiplication modulo the sum and difference of highly composite numbers, 2003), below 0.4 for 10,000 keys; they are
    2^-8 in truth, and looked at each time, so that rounding is exact.
    """
    blocks = -(-count // DEGREE)
    image = _transformed(key.astype(np.float64))
    found = []
    for which, prime in enumerate(PRIMES):
        product = _back(_public(seed, which, blocks) * image)
        whole = np.rint(product)
        if np.abs(product - whole).max() > _FARTHEST:
            raise PayloadError("a key is too large for exact products")
        found.append(whole.astype(np.int64).ravel()[:count] % prime)
    return found


@lru_cache(maxsize=8)
def _public(seed: bytes, which: int, blocks: int) -> NDArray[np.complex128]:
    """The public polynomials modulo a prime, transformed: the same all through a run."""
    prime, numbers = PRIMES[which], _drawn(seed, which, blocks * DEGREE)
    centred = np.where(numbers > prime // 2, numbers - prime, numbers)
    return _transformed(centred.reshape(blocks, DEGREE).astype(np.float64))


def _drawn(seed: bytes, which: int, count: int) -> Numbers:
    """Residues from a stream of 32-bit words, of which the first 26 bits count, and only where below the prime."""
    stream = Draws(digest("ring", seed, which)).bytes(4 * (count + count // 1000 + 64))
    words = np.frombuffer(stream, dtype="<u4")
    numbers = (words >> np.uint32(6)).astype(np.int64)
    return numbers[numbers < PRIMES[which]][:count]


def _transformed(polynomials: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Values at the roots of Y^(N/2) = i, where Y stands for X and i for X^(N/2): X^N + 1 is nought there."""
    from scipy.fft import fft

    half = DEGREE // 2
    return np.asarray(fft((polynomials[..., :half] + 1j * polynomials[..., half:]) * _turns()))


def _back(values: NDArray[np.complex128]) -> NDArray[np.float64]:
    from scipy.fft import ifft

    halves = np.asarray(ifft(values)) * _turns().conj()
    return np.concatenate([halves.real, halves.imag], axis=-1)


@lru_cache(maxsize=1)
def _turns() -> NDArray[np.complex128]:
    turns: NDArray[np.complex128] = np.exp(1j * pi / DEGREE * np.arange(DEGREE // 2))
    return turns
