"""Secrets of 32 bytes in shares, of which any `needed` give the secret back and fewer say nothing.

Shamir: How to share a secret, Communications of the ACM, 1979. A secret is 16 limbs of 16 bits, each the value at 0 of
a polynomial over the prime field of 2^31 - 1, where products fit into 64 bits and all limbs are worked on at once.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PRIME = (1 << 31) - 1
LIMBS = 16
SHARE_BYTES = 4 * LIMBS


def shared(secret: bytes, needed: int, points: Sequence[int]) -> NDArray[np.uint32]:
    """The value of each limb's polynomial at each point, (points, limbs). Points are distinct and not 0."""
    limbs = np.frombuffer(secret, dtype="<u2").astype(np.int64)
    # 64 bits modulo a prime of 31: off from uniform by 2^-33 at most.
    drawn = np.frombuffer(secrets.token_bytes(8 * LIMBS * (needed - 1)), dtype="<u8") % PRIME
    coefficients = drawn.astype(np.int64).reshape(needed - 1, LIMBS)
    at = np.asarray(points, dtype=np.int64)[:, None]
    values = np.zeros((len(points), LIMBS), dtype=np.int64)
    for row in coefficients:
        values = (values + row) * at % PRIME
    return ((values + limbs) % PRIME).astype(np.uint32)


def recovered(points: Sequence[int], shares: NDArray[Any]) -> bytes:
    """The secret from as many shares as are needed."""
    at = np.asarray(points, dtype=np.int64)
    weights = _at_nought(at)
    limbs = np.zeros(LIMBS, dtype=np.int64)
    for weight, share in zip(weights, shares.astype(np.int64), strict=True):
        limbs = (limbs + weight * share) % PRIME
    if (limbs >= 1 << 16).any():
        raise PayloadError("shares do not belong together: they give no secret")
    return limbs.astype("<u2").tobytes()


def _at_nought(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lagrange's weights: the product over j of x_j / (x_j - x_i)."""
    above, below = np.ones(len(points), dtype=np.int64), np.ones(len(points), dtype=np.int64)
    for place, point in enumerate(points):
        others = np.arange(len(points)) != place
        above = np.where(others, above * point % PRIME, above)
        below = np.where(others, below * ((point - points) % PRIME) % PRIME, below)
    inverse = np.array([pow(int(value), -1, PRIME) for value in below], dtype=np.int64)
    return above * inverse % PRIME
