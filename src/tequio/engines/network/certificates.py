"""The certificates of a federation: one authority, made by the coordinator, and one certificate per member.

A certificate says what its holder is: the coordinator, an aggregator or a party. The role is a host name that the
authority alone gives out (`role_name`). Who dials asks TLS for the role and not for the address, so that no other
member can stand in for the coordinator, not even on the same machine.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from tequio.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_DAYS, MEMBER_DAYS = 3650, 365
# Members' clocks may be wrong: a certificate is valid from the day before it was made.
_BEFORE = timedelta(days=1)
_LARGEST_REQUEST = 8192
_ROLES = ".tequio.internal"

Role = Literal["coordinator", "aggregator", "party"]


@dataclass(frozen=True)
class Identity:
    """A private key and the certificate that goes with it, both as PEM."""

    key: bytes
    certificate: bytes


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key on P-256, which every TLS library knows."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PEM, not encrypted: the file's permissions protect it."""
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def make_authority(name: str) -> Identity:
    """A certificate authority that signs members and nothing else."""
    from cryptography import x509

    key = new_key()
    draft = _draft(_subject(name), _subject(name), key.public_key(), timedelta(days=AUTHORITY_DAYS))
    draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    draft = draft.add_extension(_usage(signs=True), critical=True)
    return Identity(key_pem(key), _signed(draft, key))


def make_request(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """A certificate signing request, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form

    request = x509.CertificateSigningRequestBuilder().subject_name(_subject(name)).sign(key, hashes.SHA256())
    return request.public_bytes(form.Encoding.PEM)


def role_name(role: Role, name: str = "") -> str:
    """What stands in a certificate for its holder's role. There is one coordinator, and many of the others."""
    own = "" if role == "coordinator" else sha256(name.encode()).hexdigest()[:32] + "."
    return f"{own}{role}{_ROLES}"


def role_of(certificate_pem: bytes) -> str:
    """The role that a certificate states; empty for those that were made before roles."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(certificate_pem).extensions
    try:
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        return ""
    return next((name.removesuffix(_ROLES).rpartition(".")[2] for name in names if name.endswith(_ROLES)), "")


def sign_request(authority: Identity, request_pem: bytes, name: str, life: timedelta | None = None,
                 role: Role = "party") -> bytes:
    """A certificate for the key of a request. Name and role are the ones we give, whatever the request says."""
    return _issue(authority, requested_key(request_pem), name, role, (), life)


def make_server(authority: Identity, name: str, hosts: list[str]) -> Identity:
    """The coordinator's own certificate, which also names the hosts where it can be reached."""
    key = new_key()
    return Identity(key_pem(key), _issue(authority, key.public_key(), name, "coordinator", hosts,
                                         timedelta(days=AUTHORITY_DAYS)))


def requested_key(request_pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a request that is well formed, of a kind that we sign, and signed by its own key."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        if len(request_pem) > _LARGEST_REQUEST:
            raise ValueError("it is too long")
        request = x509.load_pem_x509_csr(request_pem)
        key = request.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("its key is not on the curve P-256")
        if not request.is_signature_valid:
            raise ValueError("its signature is wrong")
    except (ValueError, TypeError, UnsupportedAlgorithm) as cause:
        raise PermissionDenied(f"this is not a usable certificate request: {cause}",
                               remedy="make it with: tequio party join") from None
    return key


def certified_key(certificate_pem: bytes) -> bytes:
    """The public key of a certificate, as a compressed point."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = x509.load_pem_x509_certificate(certificate_pem).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PermissionDenied("this certificate is not of a key on an elliptic curve")
    return key.public_bytes(form.Encoding.X962, form.PublicFormat.CompressedPoint)


def belong_together(identity: Identity) -> bool:
    """Whether a certificate is of the key beside it."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(identity.certificate)
    return bool(certificate.public_key() == load_key(identity.key).public_key())


def check_issued(certificate_pem: bytes, authority_pem: bytes, key: ec.EllipticCurvePublicKey, name: str) -> None:
    """Refuse a certificate that is not of this authority, of this key and in this name."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority_pem))
    except (ValueError, TypeError, InvalidSignature) as cause:
        raise PermissionDenied(f"this certificate is not of the coordinator's authority: {cause}") from None
    if certificate.public_key() != key or certificate.subject != _subject(name):
        raise PermissionDenied("this certificate is for another key or another party")


def fingerprint(certificate_pem: bytes) -> str:
    """The SHA-256 of a certificate, as people compare it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    return x509.load_pem_x509_certificate(certificate_pem).fingerprint(hashes.SHA256()).hex()


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """The SHA-256 of a public key."""
    from cryptography.hazmat.primitives import serialization as form

    return sha256(key.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A private key from PEM."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = form.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PermissionDenied("this private key is not on an elliptic curve", remedy="join again: tequio party join")
    return key


def days_left(certificate_pem: bytes) -> float:
    """How long a certificate is still valid by this machine's clock."""
    from cryptography import x509

    ends = x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc
    return (ends - datetime.now(UTC)).total_seconds() / 86400


def _issue(authority: Identity, key: ec.EllipticCurvePublicKey, name: str, role: Role, hosts: Sequence[str],
           life: timedelta | None) -> bytes:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Use

    issuer = x509.load_pem_x509_certificate(authority.certificate)
    uses = {"coordinator": [Use.SERVER_AUTH], "aggregator": [Use.CLIENT_AUTH, Use.SERVER_AUTH],
            "party": [Use.CLIENT_AUTH]}[role]
    named = [x509.DNSName(role_name(role, name)), *map(_host, hosts)]
    draft = _draft(_subject(name), issuer.subject, key, life or timedelta(days=MEMBER_DAYS))
    draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    draft = draft.add_extension(_usage(signs=False), critical=True)
    draft = draft.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    draft = draft.add_extension(x509.SubjectAlternativeName(named), critical=False)
    return _signed(draft, load_key(authority.key))


def _draft(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey,
           life: timedelta) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
            .serial_number(x509.random_serial_number()).not_valid_before(min(now, now + life) - _BEFORE)
            .not_valid_after(now + life))


def _signed(draft: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form

    return draft.sign(key, hashes.SHA256()).public_bytes(form.Encoding.PEM)


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(digital_signature=not signs, content_commitment=False, key_encipherment=False,
                         data_encipherment=False, key_agreement=False, key_cert_sign=signs, crl_sign=signs,
                         encipher_only=False, decipher_only=False)


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
