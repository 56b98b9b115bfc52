"""Ciphertexts on the wire: a table of what everybody may know, the bytes, and a digest over both.

The digest finds damage on the way; against somebody who forges it the engine's own link protection helps (mutual TLS).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import EncryptionError
from tequio.privacy.encryption.scheme import Encrypted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload

_FACTS = ("count", "fraction", "bits", "columns", "slot", "together")
_LARGEST = 1 << 31


def wrap(given: Encrypted, fingerprint: str, content: NDArray[np.uint8]) -> Payload:
    """The payload of some ciphertexts that are already bytes."""
    facts: Payload = {"key": fingerprint, **{name: getattr(given, name) for name in _FACTS}}
    return {**facts, "content": content, "digest": _digest(facts, content)}


def unwrap(payload: Any, fingerprint: str, whose: str) -> tuple[Encrypted, NDArray[np.uint8]]:
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
