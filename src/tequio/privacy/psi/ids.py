"""Sets of ids: how they are written down, masked as points on a curve, and compared.

A point on Curve25519 is its u-coordinate in 32 bytes, little-endian. Multiplications commute, so that ids masked by
several parties are equal exactly where the ids are, in whatever order the parties took turns. Half of all u belong to
the twist of the curve, and multiplication keeps a point on its side: ids are hashed to the curve proper, or a bit of
each would show.
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


def written(ids: NDArray[np.generic]) -> list[bytes]:
    """The ids as bytes that are the same at every party: whole numbers in decimals, text as it stands."""
    if ids.dtype.kind == "f" and np.isfinite(ids).all() and (ids == np.floor(ids)).all():
        ids = ids.astype(np.int64)
    return [value if isinstance(value, bytes) else str(value).encode() for value in ids.tolist()]


def require_ids(ids: NDArray[np.generic], whose: str) -> None:
    """Refuse missing and repeated ids. The error tells how many there are, never which."""
    values = ids.tolist()
    missing = sum(value is None or value in ("", b"") or value != value for value in values)
    if missing:
        raise DataError(f"{missing} of the {len(values)} rows of {whose} have no id",
                        remedy="drop these rows or give them ids before the parties are aligned")
    repeated = len(values) - len(set(written(ids)))
    if repeated:
        raise DataError(f"{repeated} of the {len(values)} ids of {whose} are repeated",
                        remedy="keep one row an id; nobody can tell which of several rows is meant")


def new_secret() -> bytes:
    """A secret that no random stream of a run could tell."""
    return secrets.token_bytes(KEY_BYTES)


def new_order(size: int) -> NDArray[np.int64]:
    """A secret order, so that the place of a masked id in its list tells nothing."""
    return np.random.Generator(np.random.PCG64(secrets.randbits(128))).permutation(size)


def masked(ids: NDArray[np.generic], secret: bytes) -> Points:
    """The ids as points times the secret."""
    return multiply(secret, hash_to_curve(written(ids)))


def in_all(sets: Sequence[Points]) -> list[NDArray[np.int64]]:
    """Of sets that every party has masked: the places, in each, of what all of them have, in one common order."""
    for points in sets:
        require_points(points)
    places = [{row.tobytes(): index for index, row in enumerate(points)} for points in sets]
    common = [value for value in places[0] if all(value in other for other in places[1:])]
    return [np.array([mine[value] for value in common], dtype=np.int64) for mine in places]


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
