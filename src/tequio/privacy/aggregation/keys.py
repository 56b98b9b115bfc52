"""Keys of the parties: agreed pairwise over X25519, stretched by HKDF, and signed by an identity that lasts."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.party import Party

KEY_BYTES, SIGNATURE_BYTES = 32, 64
IDENTITY = "identity"
"""Under this name a party's state keeps the seed of its signing key."""


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
    seed: bytes = party.state.get(IDENTITY) or fresh_key()
    party.state[IDENTITY] = seed
    return seed


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
