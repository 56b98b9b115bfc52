"""Sets of ids: how they are written down, what makes them unusable, and which are in all of several masked sets."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import DataError
from tequio.privacy.psi.curve import KEY_BYTES, hash_to_curve, multiply, require_points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.privacy.psi.curve import Points


def written(ids: NDArray[Any]) -> list[bytes]:
    """The ids as bytes that are the same at every party: whole numbers in decimals, text as it stands."""
    if ids.dtype.kind == "f" and np.isfinite(ids).all() and (ids == np.floor(ids)).all():
        ids = ids.astype(np.int64)
    return [value if isinstance(value, bytes) else str(value).encode() for value in ids.tolist()]


def require_ids(ids: NDArray[Any], whose: str) -> None:
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


def masked(ids: NDArray[Any], secret: bytes) -> Points:
    """The ids as points times the secret."""
    return multiply(secret, hash_to_curve(written(ids)))


def in_all(sets: Sequence[Points]) -> list[NDArray[np.int64]]:
    """Of sets that every party has masked: the places, in each, of what all of them have, in one common order."""
    for points in sets:
        require_points(points)
    places = [{row.tobytes(): place for place, row in enumerate(points)} for points in sets]
    common = [value for value in places[0] if all(value in other for other in places[1:])]
    return [np.array([mine[value] for value in common], dtype=np.int64) for mine in places]
