"""How the protocols between parties write things down: what is hashed and signed, keys, streams, trees of hashes, sets.

Every content starts with a purpose, and each of its fields with its length, so that no two contents are written alike.
The hash `agreed` of what all parties of a run were announced enters every key and, by the number of a sum, every
signature.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Field = bytes | str | int

HASH_BYTES = 32
_START, _EIGHT = b"tequio/6/", (8).to_bytes(4, "little")


def content(purpose: str, *fields: Field) -> bytes:
    """The bytes that stand for some fields: texts in UTF-8, whole numbers from 0 upwards in eight bytes."""
    pieces = [_START, purpose.encode()]
    for field in fields:
        if isinstance(field, bytes):
            pieces += (len(field).to_bytes(4, "little"), field)
        elif isinstance(field, int):
            pieces += (_EIGHT, field.to_bytes(8, "little"))
        else:
            text = field.encode()
            pieces += (len(text).to_bytes(4, "little"), text)
    return b"".join(pieces)


def digest(purpose: str, *fields: Field) -> bytes:
    """SHA-256 over a content: `H` in the protocols."""
    return sha256(content(purpose, *fields)).digest()


def derived_key(agreed: bytes, secret: bytes, purpose: str, *fields: Field) -> bytes:
    """A key of 32 bytes for one purpose: HKDF-SHA256, salted with what the run agreed on. `KDF` in the protocols."""
    extracted = hmac.digest(agreed, secret, "sha256")
    return hmac.digest(extracted, content(purpose, *fields) + b"\1", "sha256")


class Draws:
    """Whole numbers from the stream of a key: ChaCha20 with a zero nonce, 64 bits a draw. `PRG` in the protocols."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        self._stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def bytes(self, count: int) -> bytes:
        """The next bytes of the stream."""
        return self._stream.update(bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next numbers below 2^64."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def shuffled(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The items in a random order (Fisher and Yates). Draws that would favour some orders are refused."""
        order, ahead = items.copy(), iter(self.words(len(items)).tolist())
        for last in range(len(items) - 1, 0, -1):
            most = (1 << 64) // (last + 1) * (last + 1)
            while (drawn := next(ahead, most)) >= most:
                ahead = iter(self.words(len(items)).tolist())
            chosen = drawn % (last + 1)
            order[last], order[chosen] = order[chosen], order[last]
        return order


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root of a tree of hashes (Merkle). It does not say how many leaves there are: readers know."""
    return _levels(leaves)[-1][0]


def paths_of(leaves: Sequence[bytes]) -> list[bytes]:
    """For each leaf, the hashes beside its way to the root, one behind the other."""
    levels = _levels(leaves)[:-1]
    return [b"".join(level[(place >> height) ^ 1] for height, level in enumerate(levels)
                     if (place >> height) ^ 1 < len(level)) for place in range(len(leaves))]


def root_by_path(leaf: bytes, place: int, count: int, path: bytes) -> bytes:
    """The root that a leaf at a place among `count` leads to by its path."""
    steps = [path[start:start + HASH_BYTES] for start in range(0, len(path), HASH_BYTES)]
    found, width = _hashed(b"\0" + leaf), count
    while width > 1:
        if place ^ 1 < width:
            if not steps:
                raise PayloadError("a path in a tree of hashes is too short")
            beside = steps.pop(0)
            found = _hashed(b"\1" + (beside + found if place & 1 else found + beside))
        place, width = place >> 1, (width + 1) >> 1
    if steps:
        raise PayloadError("a path in a tree of hashes is too long")
    return found


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The hashes of all heights. What has nobody beside it moves up as it is."""
    levels = [[_hashed(b"\0" + leaf) for leaf in leaves]]
    while len(levels[-1]) > 1:
        level = levels[-1]
        above = [_hashed(b"\1" + level[place] + level[place + 1]) for place in range(0, len(level) - 1, 2)]
        levels.append(above + level[len(level) & ~1:])
    return levels


def _hashed(pieces: bytes) -> bytes:
    return sha256(pieces).digest()


def as_bitmap(cohort: NDArray[np.int64], members: Sequence[int] | NDArray[np.int64]) -> bytes:
    """Which of a cohort, whose numbers rise, are members: one bit each."""
    return np.packbits(np.isin(cohort, members), bitorder="little").tobytes()


def from_bitmap(cohort: NDArray[np.int64], bitmap: bytes) -> NDArray[np.bool_]:
    """Whether each of a cohort is a member. A bitmap of another length, or with bits beyond the cohort, is refused."""
    if len(bitmap) != -(-len(cohort) // 8):
        raise PayloadError(f"a set of {len(cohort)} parties came in {len(bitmap)} bytes")
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little").astype(bool)
    if bits[len(cohort):].any():
        raise PayloadError("a set of parties names some that are not there")
    return bits[:len(cohort)]
