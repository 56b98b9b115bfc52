"""Keys of the parties, shares of keys, and masks made of keys.

Keys are agreed pairwise over X25519, stretched by HKDF, and signed by an identity that lasts.

Shamir: How to share a secret, Communications of the ACM, 1979. A secret is 16 limbs of 16 bits, each the value at 0 of
a polynomial over the prime field of 2^31 - 1, where products fit into 64 bits and all limbs are worked on at once.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.federation.population import Party

KEY_BYTES, SIGNATURE_BYTES = 32, 64
Whole = NDArray[np.unsignedinteger]


class Identity(TypedDict, total=False):
    """The seed of a party's signing key, and the identities of others as it first met them, by their number."""

    seed: bytes
    known: dict[str, bytes]


def fresh_key() -> bytes:
    """A private key or a seed."""
    return secrets.token_bytes(KEY_BYTES)


def public_of(private: bytes) -> bytes:
    """The public half of an agreement key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def in_common(private: bytes, publics: Sequence[bytes]) -> list[bytes]:
    """What the holder of an agreement key has in common with each holder of another."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    own = X25519PrivateKey.from_private_bytes(private)
    try:
        return [own.exchange(X25519PublicKey.from_public_bytes(public)) for public in publics]
    except ValueError as cause:
        raise PayloadError(f"a public key cannot be used: {cause}") from cause


def derived(common: bytes, purpose: bytes) -> bytes:
    """A key for one purpose from what two have in common."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose).derive(common)


def sealed(key: bytes, content: bytes, about: bytes) -> bytes:
    """Content that only holders of the key can read; each key seals once."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(bytes(12), content, about)


def opened(key: bytes, box: bytes, about: bytes, whose: str) -> bytes:
    """The content of a sealed box; one that was altered, or meant for others, is refused."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), box, about)
    except InvalidTag:
        raise PayloadError(f"what {whose} sealed was forged, replayed or altered on its way") from None


def identity_of(party: Party) -> bytes:
    """The seed of the party's signing key, made when it is first needed."""
    seed = party.recall(Identity).get("seed") or fresh_key()
    party.keep(Identity, {"seed": seed})
    return seed


def meet(party: Party, identities: Mapping[int, bytes]) -> None:
    """Remember who others are; one that is not who it was when first met is refused."""
    known = party.recall(Identity).get("known", {})
    for other, identity in identities.items():
        if known.get(str(other), identity) != identity:
            raise PayloadError(f"party {other} has another identity than before",
                               remedy="if it lost its state, its neighbours must forget it too")
    party.keep(Identity, {"known": {**known, **{str(other): identity for other, identity in identities.items()}}})


def signing_public(seed: bytes) -> bytes:
    """The public half of a signing key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def signature(seed: bytes, content: bytes) -> bytes:
    """What only the holder of the seed could have written under the content."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed).sign(content)


@lru_cache(maxsize=4096)
def is_signed(public: bytes, signed: bytes, content: bytes) -> bool:
    """Whether the holder of that key signed the content. Remembered, as neighbours in one process ask the same."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signed, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def about(session: bytes, what: bytes, sender: int, receiver: int) -> bytes:
    """Binds a key or a box to one exchange, one purpose, one sender and one receiver."""
    return b"tequio secure-sum|" + what + b"|" + session + f"|{sender}|{receiver}".encode()


PRIME = (1 << 31) - 1
LIMBS = 16
SHARE_BYTES = 4 * LIMBS


def shared(secret: bytes, needed: int, points: Sequence[int]) -> NDArray[np.uint32]:
    """The value of each limb's polynomial at each point, (points, limbs). Points are distinct and not 0."""
    limbs = np.frombuffer(secret, dtype="<u2").astype(np.int64)
    # 64 bits modulo a prime of 31: off from uniform by 2^-33 at most.
    drawn = np.frombuffer(secrets.token_bytes(8 * LIMBS * (needed - 1)), dtype="<u8") % PRIME
    coefficients = drawn.astype(np.int64).reshape(needed - 1, LIMBS)
    at = np.asarray(points, dtype=np.int64)[:, None]
    values = np.zeros((len(points), LIMBS), dtype=np.int64)
    for row in coefficients:
        values = (values + row) * at % PRIME
    return ((values + limbs) % PRIME).astype(np.uint32)


def recovered(points: Sequence[int], shares: NDArray[np.uint32]) -> bytes:
    """The secret from as many shares as are needed."""
    at = np.asarray(points, dtype=np.int64)
    weights = _at_nought(at)
    limbs = np.zeros(LIMBS, dtype=np.int64)
    for weight, share in zip(weights, shares.astype(np.int64), strict=True):
        limbs = (limbs + weight * share) % PRIME
    if (limbs >= 1 << 16).any():
        raise PayloadError("shares do not belong together: they give no secret")
    return limbs.astype("<u2").tobytes()


def _at_nought(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lagrange's weights: the product over j of x_j / (x_j - x_i)."""
    above, below = np.ones(len(points), dtype=np.int64), np.ones(len(points), dtype=np.int64)
    for index, point in enumerate(points):
        others = np.arange(len(points)) != index
        above = np.where(others, above * point % PRIME, above)
        below = np.where(others, below * ((point - points) % PRIME) % PRIME, below)
    inverse = np.array([pow(int(value), -1, PRIME) for value in below], dtype=np.int64)
    return above * inverse % PRIME


# A stretch and its mask stay in the second-level cache while all masks are added to it; larger ones do not.
STRETCH = 1 << 17
_NOUGHTS = bytes(STRETCH)


def add_mask(values: Whole, key: bytes, *, subtract: bool = False) -> None:
    """Add the stream of a key to the values, or take it off, in place and modulo the size of their type."""
    add_masks(values, [] if subtract else [key], [key] if subtract else [])


def add_masks(values: Whole, added: Sequence[bytes], taken_off: Sequence[bytes] = ()) -> None:
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
