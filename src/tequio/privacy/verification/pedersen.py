"""Commitments that hide a number and add up, and projections of vectors onto random directions.

Pedersen: Non-interactive and information-theoretic secure verifiable secret sharing, CRYPTO 1991; in the 2048-bit group
of RFC 3526. Two different vectors of whole numbers have the same products with three random directions of 31 bits with
a chance below 2^-90, so that it is enough to commit to those products.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from hashlib import shake_256
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.privacy.aggregation.masks import add_mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MODULUS = int(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd"
    "ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed"
    "ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f"
    "83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b"
    "e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510"
    "15728e5a8aacaa68ffffffffffffffff", 16)
_BASE = 4
DIRECTIONS = 3
_APART = 160
LIMBS, _LIMB_BITS = 20, 13
_LOW = (1 << 31) - 1
_STRETCH = 1 << 14


@lru_cache(maxsize=1)
def other_base() -> int:
    """A square whose logarithm nobody knows, because it comes out of a hash."""
    return pow(int.from_bytes(shake_256(b"tequio pedersen").digest(256), "big"), 2, MODULUS)


def commitment(number: int, blinding: int) -> int:
    """Hides a number of either sign; the product of commitments is the commitment to the sums."""
    return pow(_BASE, number, MODULUS) * pow(other_base(), blinding, MODULUS) % MODULUS


def product(commitments: Sequence[int]) -> int:
    """Of commitments."""
    total = 1
    for one in commitments:
        total = total * one % MODULUS
    return total


def projection(challenge: bytes, whole: NDArray[np.int64]) -> int:
    """The exact products of a vector with the directions that follow from a challenge, side by side in one number."""
    total = 0
    for place in range(DIRECTIONS):
        direction = np.zeros(len(whole), dtype=np.uint32)
        add_mask(direction, shake_256(challenge + bytes([place])).digest(32))
        total += _dot(direction & np.uint32(_LOW), whole) << (_APART * place)
    return total


def new_blinding() -> NDArray[np.int64]:
    """A random number of 260 bits in limbs so small that the limbs of many parties can be added."""
    return np.array([secrets.randbelow(1 << _LIMB_BITS) for _ in range(LIMBS)], dtype=np.int64)


def blinding_of(limbs: NDArray[np.int64] | Sequence[int]) -> int:
    """The number that limbs, or sums of them, stand for."""
    return sum(int(limb) << (_LIMB_BITS * place) for place, limb in enumerate(limbs))


def _dot(direction: NDArray[np.uint32], whole: NDArray[np.int64]) -> int:
    """Without overflow: halves of the one times parts of the other, in stretches whose sums fit into 64 bits."""
    total = 0
    for shift, part in ((0, whole & _LOW), (31, whole >> 31)):
        for half_shift, half in ((0, direction & np.uint32(0xFFFF)), (16, direction >> np.uint32(16))):
            total += _exact_sum(half.astype(np.int64) * part) << (shift + half_shift)
    return total


def _exact_sum(products: NDArray[Any]) -> int:
    starts = np.arange(0, len(products), _STRETCH)
    return sum(int(stretch) for stretch in np.add.reduceat(products, starts)) if len(products) else 0
