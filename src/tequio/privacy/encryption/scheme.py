"""What every additive homomorphic scheme offers: adding what is encrypted, and multiplying it by what is known.

A **scheme** is a registered component that makes keys. Its **public key** encrypts and computes; whoever holds only
that can read nothing. Its **secret key** opens. Numbers under encryption are `Encrypted`; `send` turns them into a
payload and `receive` takes them back, after checking that they are whole and of the right key.

What a product of a known number and a ciphertext looks like depends on the number, so anyone who has the ciphertext
could test guesses. `Encrypted.fresh` says whether a ciphertext is safe from that; `send` makes it so where it is not.

On the wire a ciphertext is a table of what everybody may know, the bytes, and a digest over both. The digest finds
damage on the way; against forgers the engine's own link protection helps (mutual TLS).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tequio.errors import EncryptionError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import FixedPoint, Origin, Source


@dataclass(frozen=True)
class Encrypted:
    """Rows of values under encryption, with what everybody may know about them.

    Each value is a whole number of magnitude at most 2**`bits`, times 2**-`fraction`. `bits` follows from declared
    ranges and never from the values. A `slot` other than 0 says that a ciphertext holds several values, `slot` bits
    each: the `columns` of a row, and so many rows `together`.
    """

    content: tuple[Any, ...]
    count: int
    fraction: int
    bits: int
    columns: int = 1
    slot: int = 0
    together: int = 1
    fresh: bool = True


class PublicKey(Protocol):
    """Encrypts and computes, and cannot read. Bits for randomness come from `draw`."""

    @property
    def fingerprint(self) -> str:
        """Tells this key from others."""
        ...

    @property
    def values(self) -> FixedPoint:
        """The range of what is encrypted."""
        ...

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        ...

    def encrypt(self, values: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """One value a row."""
        ...

    def encrypt_for_sums(self, values: ArrayLike, draw: Source, additions: int) -> Encrypted:
        """As tightly as the scheme can, for values that are only added (so often), hidden and opened."""
        ...

    def add(self, *parts: Encrypted) -> Encrypted:
        """The sum, row by row."""
        ...

    def scale(self, given: Encrypted, factors: ArrayLike, form: FixedPoint | None = None) -> Encrypted:
        """Each row times its own known factor (the Hadamard product)."""
        ...

    def product(self, given: Encrypted, matrix: ArrayLike, draw: Source, form: FixedPoint | None = None) -> Encrypted:
        """The known matrix, transposed, times the rows: one value a column of the matrix."""
        ...

    def hide(self, given: Encrypted, draw: Source) -> tuple[Encrypted, Payload]:
        """Add a random pad to each value, for a key holder that may not see it. Packed, fresh, ready to be sent.

        The pad is the second part; `reveal` takes it off again.
        """
        ...

    def reveal(self, opened: Payload, pad: Payload) -> NDArray[np.floating]:
        """The values, from what the key holder opened and the pad."""
        ...

    def send(self, given: Encrypted, draw: Source) -> Payload:
        """As it crosses, re-randomised if it is not fresh."""
        ...

    def receive(self, payload: Payload, whose: str) -> Encrypted:
        """Back from what crossed; refused if of another key, of the wrong size, or tampered with."""
        ...


class SecretKey(Protocol):
    """Opens what was encrypted with its public part."""

    @property
    def public(self) -> PublicKey:
        """The part that everybody may have."""
        ...

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        ...

    def open(self, given: Encrypted) -> Payload:
        """The numbers as they are, exact, for `reveal`."""
        ...

    def decrypt(self, given: Encrypted) -> NDArray[np.floating]:
        """The values, one row of `columns` each; flat where there is one column."""
        ...


class Scheme(Protocol):
    """Makes keys, and reads them back."""

    randomness: Origin

    @property
    def openings(self) -> int:
        """How many ciphertexts may be opened under one key; 0 where opened values say nothing about it."""
        ...

    def generate(self, draw: Source) -> SecretKey:
        """A new pair of keys."""
        ...

    def public_key(self, payload: Payload) -> PublicKey:
        """The public part back from what crossed; refused if it is not of this scheme's size."""
        ...

    def secret_key(self, payload: Payload) -> SecretKey:
        """The whole key back from its holder's state."""
        ...


_FACTS = ("count", "fraction", "bits", "columns", "slot", "together")
_LARGEST = 1 << 31


def wrap(given: Encrypted, fingerprint: str, content: NDArray[np.uint8]) -> Payload:
    """The payload of some ciphertexts that are already bytes."""
    facts: Payload = {"key": fingerprint, "count": given.count, "fraction": given.fraction, "bits": given.bits,
                      "columns": given.columns, "slot": given.slot, "together": given.together}
    return {**facts, "content": content, "digest": _digest(facts, content)}


def unwrap(payload: object, fingerprint: str, whose: str) -> tuple[Encrypted, NDArray[np.uint8]]:
    """What `wrap` was given, once it is known to be whole and of this key. The content is still bytes."""
    if not isinstance(payload, dict) or payload.keys() != {"key", "content", "digest", *_FACTS}:
        raise refused(whose, "they are not ciphertexts")
    facts = {"key": payload["key"], **{name: payload[name] for name in _FACTS}}
    if payload["key"] != fingerprint:
        raise refused(whose, f"they are of the key {str(payload['key'])[:16]}, not of {fingerprint}",
                      "let all parties use the public key of this run's key holder")
    content = payload["content"]
    if not isinstance(content, np.ndarray) or content.dtype != np.uint8 or content.ndim != 2:
        raise refused(whose, "their content is not rows of bytes")
    if not all(type(payload[name]) is int and 0 <= payload[name] < _LARGEST for name in _FACTS):
        raise refused(whose, "what they say about themselves makes no sense")
    if payload["digest"] != _digest(facts, content):
        raise refused(whose, "they were changed on the way (the digest does not match)")
    return Encrypted((), **{name: payload[name] for name in _FACTS}), content


def refused(whose: str, why: str, remedy: str = "ask for them again; if it recurs, somebody tampers with messages"
            ) -> EncryptionError:
    """The error for ciphertexts that cannot be used."""
    return EncryptionError(f"the ciphertexts of {whose} are refused: {why}", remedy=remedy)


def _digest(facts: Payload, content: NDArray[np.uint8]) -> bytes:
    told = repr(sorted(facts.items())).encode()
    return blake2b(np.ascontiguousarray(content).tobytes(), digest_size=16, person=b"tequio", key=blake2b(
        told, digest_size=32).digest()).digest()
