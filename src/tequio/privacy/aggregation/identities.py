"""Who signs what: the keys of the parties' certificates, as the roster of the run pins them.

The roster is part of what a person approves, and its hash enters every key and signature: a party that was told other
keys signs other contents. No key is ever taken from a message. In a simulation there are no certificates; keys follow
from the seed of the run, so that the same code runs on every engine, and protect nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tequio.errors import PermissionDenied
from tequio.privacy.aggregation.encodings import digest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from tequio.federation.population import Party, Roster

SIGNATURE_BYTES = 64
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_HALF = SIGNATURE_BYTES // 2


def signed_by(party: Party, content: bytes) -> bytes:
    """A party's own signature under a content: ECDSA on P-256, as r and s."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    roster = party.roster
    private = roster.own or _simulated(roster.agreed, party.index)
    r, s = decode_dss_signature(_private(private).sign(content, ec.ECDSA(SHA256())))
    return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")


def is_signed_by(roster: Roster, party: int, signature: object, content: bytes) -> bool:
    """Whether the party of that number signed the content with the key that the roster pins."""
    if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES or not 0 <= party < roster.parties:
        return False
    return _is_valid(pinned_key(roster, party), signature, content)


def check_signed(roster: Roster, party: int, signature: object, content: bytes, what: str) -> None:
    """Refuse what another than that party signed."""
    if not is_signed_by(roster, party, signature, content):
        raise PermissionDenied(f"{what} of party {party} are not signed by the key of its certificate: forged, "
                               "replayed or altered on its way")


def pinned_key(roster: Roster, party: int) -> bytes:
    """The public key of a party, as a compressed point."""
    if roster.own and not roster.keys:  # anyone could sign for simulated parties
        raise PermissionDenied("the run was announced without the keys of its parties, whose signatures it needs",
                               remedy="let the coordinator announce 'keys'")
    return roster.keys[party] if roster.keys else public_half(_simulated(roster.agreed, party))


@lru_cache(maxsize=1 << 14)
def public_half(private: bytes) -> bytes:
    """The public key that belongs to a private one."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return _private(private).public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


@lru_cache(maxsize=1 << 14)
def _simulated(agreed: bytes, party: int) -> bytes:
    number = int.from_bytes(digest("simulated identity", agreed, party), "big") % (_ORDER - 1) + 1
    return number.to_bytes(_HALF, "big")


@lru_cache(maxsize=1 << 14)
def _private(scalar: bytes) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.derive_private_key(int.from_bytes(scalar, "big"), ec.SECP256R1())


@lru_cache(maxsize=1 << 14)
def _public(point: bytes) -> ec.EllipticCurvePublicKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


@lru_cache(maxsize=1 << 16)
def _is_valid(key: bytes, signature: bytes, content: bytes) -> bool:
    """Remembered, as parties in one process ask the same."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    encoded = encode_dss_signature(int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big"))
    try:
        _public(key).verify(encoded, content, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True
