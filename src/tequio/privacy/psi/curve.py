"""Points of Curve25519, by their u-coordinates: hashing to the curve, secret multiples, and what is no honest point.

A point is its u in 32 bytes, little-endian. Multiplications commute, so that ids masked by several parties are equal
exactly where the ids are, whatever the order. Half of all u belong to the twist of the curve, and multiplication keeps
a point on its side: ids are hashed to the curve itself, and points elsewhere are refused, or a bit of each would show.
Secrets are clamped as X25519 clamps them: as multiples of 8 they take a point of small order to zero, which is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Points = NDArray[np.uint8]

POINT_BYTES = 32
_PRIME = 2**255 - 19
_MONTGOMERY_A = 486662
_DOMAIN = b"tequio psi 2\0"


def hash_to_curve(contents: Sequence[bytes]) -> Points:
    """A point for each content, of which nobody knows a discrete logarithm: hashed anew until it lies on the curve."""
    is_square = _square_test()
    return _points([_one_point(content, is_square) for content in contents])


def random_points(count: int) -> Points:
    """Points that stand for no id."""
    return hash_to_curve([secrets.token_bytes(POINT_BYTES) for _ in range(count)])


def multiply(secret: bytes, points: Points, whose: str) -> Points:
    """Each point times the secret, in the same order. Points of small order are refused."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    private, load = X25519PrivateKey.from_private_bytes(secret), X25519PublicKey.from_public_bytes
    try:
        found = [private.exchange(load(point)) for point in rows_of(points)]
    except ValueError:  # the product is zero
        raise _refused(whose, "has a point of small order") from None
    if len(set(found)) != len(found):
        raise _refused(whose, "has points that differ by one of small order only")
    return _points(found)


def require_points(points: Points, length: int, whose: str) -> None:
    """Refuse what is not a list of so many distinct points of the curve, each in its one form."""
    if len(points) != length:
        raise _refused(whose, f"has {len(points)} points, and {length} were committed to")
    if large := int(_too_large(points).sum()):
        raise _refused(whose, f"has {large} numbers of 2^255 - 19 or more, which are other forms of smaller ones")
    rows, is_square = rows_of(points), _square_test()
    if repeated := len(rows) - len(set(rows)):
        raise _refused(whose, f"has {repeated} repeated points")
    if twisted := sum(not is_square(int.from_bytes(row, "little")) for row in rows):
        raise _refused(whose, f"has {twisted} points on the twist of the curve")


def as_points(content: bytes, whose: str) -> Points:
    """The points that lie one behind the other in some bytes."""
    if len(content) % POINT_BYTES:
        raise _refused(whose, "is not a list of points of 32 bytes")
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, POINT_BYTES)


def rows_of(points: Points) -> list[bytes]:
    """The points, each as its bytes."""
    content = points.tobytes()
    return [content[start:start + POINT_BYTES] for start in range(0, len(content), POINT_BYTES)]


def _refused(whose: str, cause: str) -> DataError:
    return DataError(f"the list of masked ids of {whose} {cause}",
                     remedy="a party that sends it does not follow the protocol; stop working with it")


def _too_large(points: Points) -> NDArray[np.bool_]:
    """Whether a number is at least the prime 2**255 - 19, which is 0xed, thirty times 0xff, 0x7f."""
    just_above: NDArray[np.bool_] = (points[:, 31] == 0x7F) & (points[:, 1:31] == 0xFF).all(1) & (points[:, 0] >= 0xED)
    return just_above | (points[:, 31] > 0x7F)


def _one_point(content: bytes, is_square: Callable[[int], bool]) -> bytes:
    for attempt in range(256):
        drawn = hashlib.sha512(_DOMAIN + bytes([attempt]) + content).digest()
        u = int.from_bytes(drawn, "little") % _PRIME
        if is_square(u):
            return u.to_bytes(POINT_BYTES, "little")
    raise DataError("an id has no point on the curve")  # one id in 2**256


def _square_test() -> Callable[[int], bool]:
    """Whether u^3 + 486662 u^2 + u is a square modulo the prime (0 is one), so that a point of the curve has this u;
    gmpy2 knows thirty times faster than Python's own powers."""
    if find_spec("gmpy2") is None:
        return lambda u: pow(u * (u * (u + _MONTGOMERY_A) + 1) % _PRIME, (_PRIME - 1) // 2, _PRIME) < 2
    from gmpy2 import jacobi

    return lambda u: jacobi(u * (u * (u + _MONTGOMERY_A) + 1) % _PRIME, _PRIME) >= 0


def _points(rows: Sequence[bytes]) -> Points:
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, POINT_BYTES)
