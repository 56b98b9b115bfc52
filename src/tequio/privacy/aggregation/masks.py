"""Masks: long streams of numbers from short keys, added to or taken off an update stretch by stretch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# A stretch and its mask stay in the second-level cache while all masks are added to it; larger ones do not.
STRETCH = 1 << 17
_NOUGHTS = bytes(STRETCH)


def add_mask(values: NDArray[Any], key: bytes, *, subtract: bool = False) -> None:
    """Add the stream of a key to the values, or take it off, in place and modulo the size of their type."""
    add_masks(values, [] if subtract else [key], [key] if subtract else [])


def add_masks(values: NDArray[Any], added: Sequence[bytes], taken_off: Sequence[bytes] = ()) -> None:
    """Add the streams of some keys to the values and take those of others off."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    # Every key is used for one stream only, so that the nonce may always be the same.
    streams = [(Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor(), change)
               for change, keys in ((np.add, added), (np.subtract, taken_off)) for key in keys]
    buffer = bytearray(STRETCH)
    mask = np.frombuffer(buffer, dtype=values.dtype.newbyteorder("<"))
    for start in range(0, len(values), len(mask)):
        part = values[start:start + len(mask)]
        noughts, now = (_NOUGHTS, mask) if len(part) == len(mask) else (bytes(part.nbytes), mask[:len(part)])
        for stream, change in streams:
            stream.update_into(noughts, buffer)
            change(part, now, out=part)
