"""Whole numbers under CKKS: encrypted, added without the key, and read back exactly.

Cheon, Kim, Kim, Song: Homomorphic encryption for arithmetic of approximate numbers, ASIACRYPT 2017. CKKS errs, but by
far less than one half at the scale used here, so that rounding makes sums of whole numbers exact.
"""

from __future__ import annotations

from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import MissingExtra, PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

# 128-bit security with a modulus of 120 bits. Sums up to 2^30 times a scale of 2^28 fit into a ciphertext's 60 bits.
_DEGREE, _MODULI, _SCALE = 8192, (60, 60), 2.0 ** 28
SLOTS = _DEGREE // 2
_FARTHEST = 0.25


def library() -> ModuleType:
    """The tenseal package."""
    try:
        return import_module("tenseal")
    except ImportError:
        raise MissingExtra("tenseal", "privacy", "the stage 'encrypted-sum'") from None


def new_key() -> bytes:
    """A secret key with its settings. Encryption is symmetric: who has no key can neither read nor write."""
    seal = library()
    context = seal.context(seal.SCHEME_TYPE.CKKS, _DEGREE, coeff_mod_bit_sizes=list(_MODULI),
                           encryption_type=seal.ENCRYPTION_TYPE.SYMMETRIC)
    context.global_scale = _SCALE
    data: bytes = context.serialize(save_secret_key=True, save_galois_keys=False, save_relin_keys=False)
    return data


def without_secret(key: bytes) -> bytes:
    """The settings alone, with which ciphertexts can be added."""
    data: bytes = library().context_from(key).serialize(save_secret_key=False, save_galois_keys=False,
                                                        save_relin_keys=False)
    return data


def fingerprint(key: bytes) -> str:
    """Tells keys apart without telling a key."""
    return sha256(b"tequio ckks|" + key).hexdigest()


def encrypted(key: bytes, values: NDArray[np.int64]) -> list[bytes]:
    """Whole numbers as ciphertexts of so many slots each."""
    seal = library()
    context = seal.context_from(key)
    return [seal.ckks_vector(context, part.astype(np.float64)).serialize() for part in _parts(values)]


class BlindSum:
    """The sum of ciphertexts, taken without the key."""

    def __init__(self, settings: bytes) -> None:
        self._seal = library()
        self._context = self._seal.context_from(settings)
        self._sums: list[Any] = []

    def add(self, ciphertexts: Sequence[bytes], size: int) -> None:
        """Add one party's ciphertexts, if they hold so many numbers."""
        if not isinstance(ciphertexts, list) or len(ciphertexts) != -(-size // SLOTS):
            raise PayloadError(f"an encrypted update does not have {-(-size // SLOTS)} parts")
        loaded = [self._loaded(data) for data in ciphertexts]
        if [vector.size() for vector in loaded] != [len(part) for part in _parts(np.zeros(size, dtype=np.int64))]:
            raise PayloadError(f"an encrypted update does not hold {size} numbers")
        self._sums = [one + other for one, other in zip(self._sums, loaded, strict=True)] if self._sums else loaded

    def result(self) -> list[bytes]:
        """The sum, still encrypted."""
        return [vector.serialize() for vector in self._sums]

    def _loaded(self, data: object) -> Any:
        try:
            return self._seal.ckks_vector_from(self._context, data)
        except (ValueError, RuntimeError, TypeError) as cause:
            raise PayloadError(f"an encrypted update cannot be read: {cause}") from cause


def decrypted(key: bytes, ciphertexts: Sequence[bytes]) -> NDArray[np.int64]:
    """The whole numbers that were summed."""
    seal = library()
    context = seal.context_from(key)
    try:
        values = np.concatenate([np.array(seal.ckks_vector_from(context, data).decrypt()) for data in ciphertexts])
    except (ValueError, RuntimeError, TypeError) as cause:
        raise PayloadError(f"an encrypted sum cannot be read: {cause}") from cause
    whole: NDArray[np.float64] = np.rint(values)
    if not np.abs(values - whole).max(initial=0.0) < _FARTHEST:
        raise PayloadError("an encrypted sum does not hold whole numbers: it was altered, or encrypted by another key")
    return whole.astype(np.int64)


def _parts(values: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(values), SLOTS):
        yield values[start:start + SLOTS]
