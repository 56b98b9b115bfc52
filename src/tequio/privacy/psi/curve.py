"""Points on Curve25519 that stand for ids, and their multiplication by a secret.

A point is its u-coordinate in 32 bytes, little-endian. Multiplications commute, so that ids masked by several parties
are equal exactly where the ids are, in whatever order the parties took turns. Half of all u belong to the twist of the
curve, and multiplication keeps a point on its side: ids are hashed to the curve proper, or a bit of each would show.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Points = NDArray[np.uint8]

POINT_BYTES = KEY_BYTES = 32
_PRIME = 2**255 - 19
_HALF = (_PRIME - 1) // 2
_MONTGOMERY_A = 486662
_DOMAIN = b"tequio psi 1\0"


def hash_to_curve(ids: Sequence[bytes]) -> Points:
    """A point for each id, of which nobody knows a discrete logarithm: hashed anew until it lies on the curve."""
    is_square = _square_test()
    return _as_points([_one_point(identity, is_square) for identity in ids])


def multiply(secret: bytes, points: Points) -> Points:
    """Each point times the secret; points that cannot have come from an honest party are refused with their number."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    require_points(points)
    private, load = X25519PrivateKey.from_private_bytes(secret), X25519PublicKey.from_public_bytes
    try:
        return _as_points([private.exchange(load(point)) for point in _rows(points)])
    except ValueError:  # the product is nought: a point of small order, which would reveal nothing but hides nothing
        raise DataError("a set of masked ids has a point of small order",
                        remedy="the party that sent it does not follow the protocol; stop working with it") from None


def require_points(points: Points) -> None:
    """Refuse what is not a list of distinct points in their one form."""
    if not isinstance(points, np.ndarray) or points.dtype != np.uint8 or points.shape[1:] != (POINT_BYTES,):
        raise DataError("a set of masked ids is not a list of points of 32 bytes",
                        remedy="both sides need the same version of the protocol")
    rows, odd = _rows(points), int(_too_large(points).sum())
    if odd or len(set(rows)) != len(rows):
        raise DataError(f"a set of masked ids has {odd} malformed points and {len(rows) - len(set(rows))} repeated "
                        "ones", remedy="the party that sent it does not follow the protocol; stop working with it")


def _too_large(points: Points) -> NDArray[np.bool_]:
    """Whether a number is at least the prime 2**255 - 19, which is 0xed, thirty times 0xff, 0x7f."""
    just_above: NDArray[np.bool_] = (points[:, 31] == 0x7F) & (points[:, 1:31] == 0xFF).all(1) & (points[:, 0] >= 0xED)
    return just_above | (points[:, 31] > 0x7F)


def _one_point(identity: bytes, is_square: Callable[[int], bool]) -> bytes:
    for attempt in range(256):
        drawn = hashlib.sha512(_DOMAIN + bytes([attempt]) + identity).digest()
        u = int.from_bytes(drawn, "little") % _PRIME
        if is_square(u * (u * (u + _MONTGOMERY_A) + 1) % _PRIME):
            return u.to_bytes(POINT_BYTES, "little")
    raise DataError("an id has no point on the curve")  # one id in 2**256


def _square_test() -> Callable[[int], bool]:
    """Whether a number is a square modulo the prime; gmpy2 knows thirty times faster than Python's own powers."""
    if find_spec("gmpy2") is None:
        return lambda value: pow(value, _HALF, _PRIME) == 1
    from gmpy2 import jacobi

    return lambda value: jacobi(value, _PRIME) == 1


def _rows(points: Points) -> list[bytes]:
    content = points.tobytes()
    return [content[start:start + POINT_BYTES] for start in range(0, len(content), POINT_BYTES)]


def _as_points(rows: Sequence[bytes]) -> Points:
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, POINT_BYTES)
