"""Masks: long streams of numbers from short keys, added to or taken off an update stretch by stretch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# As large as fits the second-level cache with the stretch it is added to; larger gains nothing.
STRETCH = 1 << 17
_NOUGHTS = bytes(STRETCH)


def add_mask(values: NDArray[Any], key: bytes, *, subtract: bool = False) -> None:
    """Add the stream of a key to the values, or take it off, in place and modulo the size of their type."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    # Every key is used for one stream only, so that the nonce may always be the same.
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    change = np.subtract if subtract else np.add
    buffer = bytearray(STRETCH)
    mask = np.frombuffer(buffer, dtype=values.dtype.newbyteorder("<"))
    each = len(mask)
    for start in range(0, len(values), each):
        part = values[start:start + each]
        stream.update_into(_NOUGHTS if len(part) == each else bytes(part.nbytes), buffer)
        change(part, mask[:len(part)], out=part)
