"""Coins: random words of ChaCha20 under one key, for noise and for whatever else an adversary must not guess.

The key comes from the operating system, or, in simulations that can be repeated, from the seed of the run. Coins that
follow from a seed hide nothing from those who know it, which the statement of a private run says.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

_PURPOSE = b"tequio/6/coins"
_CHUNK = 1 << 16
_NOUGHTS = bytes(8 * _CHUNK)


class Coins:
    """A stream of random 64-bit words: ChaCha20 with a nonce of nought, so that one key is one stream.

    Parameters:
        key: 32 bytes
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    @classmethod
    def from_system(cls) -> Coins:
        """That nobody can repeat: the key comes from the operating system."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def derived(cls, secret: int | bytes, *purpose: str | int) -> Coins:
        """The stream of a seed (or of a key) and a purpose: others have nothing to do with it.

        Each part of the purpose is hashed with its length before it, so that no two purposes are the same bytes.
        """
        start = secret if isinstance(secret, bytes) else str(secret).encode()
        fields = [start, *(str(part).encode() for part in purpose)]
        content = _PURPOSE + b"".join(len(field).to_bytes(4, "little") + field for field in fields)
        return cls(sha256(content).digest())

    def words(self, count: int) -> Words:
        """That many words, each of them equally likely."""
        found = bytearray(8 * count)
        for start in range(0, len(found), len(_NOUGHTS)):
            part = memoryview(found)[start:start + len(_NOUGHTS)]
            self._stream.update_into(memoryview(_NOUGHTS)[:len(part)], part)
        return np.frombuffer(found, "<u8")

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Numbers from 0 to 1, multiples of 2^-64 as far as double precision has them."""
        return np.multiply(self.words(count), 2.0 ** -64, dtype=np.float64)

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """Whole numbers from 0 to `bound` - 1, all as likely: words that would favour small ones are refused."""
        most = (1 << 64) // bound * bound
        words = self.words(count)
        while most < 1 << 64 and (refused := np.flatnonzero(words >= np.uint64(most))).size:
            words[refused] = self.words(refused.size)
        return (words % np.uint64(bound)).astype(np.int64)

    def heads(self, chance: float, count: int) -> NDArray[np.bool_]:
        """Whether each of so many coins came up, with this chance rounded down to a multiple of 2^-64."""
        most = int(chance * 2.0 ** 64)
        return np.ones(count, np.bool_) if most >= 1 << 64 else self.words(count) < np.uint64(most)
