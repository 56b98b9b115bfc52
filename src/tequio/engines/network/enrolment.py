"""How a party gets its certificate, and a new one before that ends.

Enrolment takes two steps: a party shows a join token and a certificate request, and is given its certificate; once that
is on its disk, it confirms. Only then are the token used up and the name taken, so that a party whose join fails in
between can join again, even from an empty folder. A party that dials in confirms by that.

Renewal needs no token:
the coordinator, whose clock decides, says over the link that a certificate ends soon; the party makes a new key, and
asks for a certificate for it, which it shows from its next dialling on. The old one is good until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tequio.engines.network.certificates import (
    check_issued,
    days_left,
    fingerprint,
    key_fingerprint,
    key_pem,
    load_key,
    make_request,
    new_key,
    requested_key,
    role_name,
    sign_request,
)
from tequio.engines.network.files import check_party_name, private_folder, write_private
from tequio.engines.network.homes import CHANGING, Enrolled, PartyHome
from tequio.engines.network.wire import (
    Expiring,
    Name,
    Renew,
    Renewed,
    frame,
)
from tequio.errors import EngineError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tequio.engines.network.homes import CoordinatorHome, Token
    from tequio.engines.network.hub import Hub, Link
    from tequio.engines.network.telemetry import Telemetry


METHOD = "/tequio.Enrolment/Enrol"
_SECONDS = 20.0
_NEW_TOKEN = "ask the coordinator for a new token: tequio coordinator token"


class Request(msgspec.Struct, frozen=True):
    """What a party shows; with `confirms` it says that it has kept the certificate of its first request."""

    token: Name
    secret: bytes
    name: Name
    request: bytes
    confirms: bool = False


class Grant(msgspec.Struct, frozen=True):
    """What it gets, or why not."""

    certificate: bytes = b""
    cause: str = ""
    remedy: str = ""


def grant(home: CoordinatorHome, request: Request) -> bytes:
    """The certificate for an enrolment request; a token that was used gives the same key the same certificate again."""
    name = check_party_name(request.name)
    with CHANGING:
        unused = home.tokens.check(request.token, request.secret, name)
        key = key_fingerprint(requested_key(request.request))
        known = home.party(name)
        if known is not None and (known["token"], known["key"]) == (request.token, key):
            if request.confirms:
                home.confirm(name)
            return str(known["certificate"]).encode()  # the answer to an earlier attempt may have been lost
        if request.confirms:
            raise PermissionDenied("another enrolment with this token or this name took the place of this one",
                                   remedy=_NEW_TOKEN)
        if not unused:
            raise PermissionDenied("the join token was used already", remedy=_NEW_TOKEN)
        if not home.is_free(name, request.token):
            raise PermissionDenied(f"the name '{name}' is taken" + ("" if known is not None else
                                                                    ", or looks like one that is"), remedy=_NEW_TOKEN)
        home.forget_pending(request.token)
        role = home.tokens.role(request.token)
        certificate = sign_request(home.identity("authority"), request.request, name,
                                   role="aggregator" if "aggregator" in role else "party")
        enrolled: Enrolled = {"fingerprints": [fingerprint(certificate)], "token": request.token, "key": key,
                              "certificate": certificate.decode(), "pending": True}
        home.enrol(name, {**enrolled, **role})
        return certificate


def join(folder: Path, token: Token, name: str, facts: Mapping[str, object]) -> str:
    """Enrol at the coordinator that made the token and lay out the party's folder; the authority's fingerprint."""
    check_party_name(name)
    PartyHome(folder).refuse_taken()
    private_folder(folder)
    key_path = folder / "party.key"
    if not key_path.exists():  # kept from an attempt whose answer was lost
        write_private(key_path, key_pem(new_key()))
    request = Request(token.id, token.secret, name, make_request(load_key(key_path.read_bytes()), name))
    certificate = _ask(token, request)
    write_private(folder / "party.pem", certificate)
    write_private(folder / "authority.pem", token.authority)
    role = {key: value for key, value in (("listen", token.listen), ("via", token.via)) if value}
    home = PartyHome.create(folder, name, {"address": token.address, **role, **facts})
    try:
        _ask(token, structs.replace(request, confirms=True))
    except PermissionDenied:
        home.leave()
        raise
    except EngineError:
        pass  # the first time that it dials in will confirm
    return fingerprint(token.authority)


def _ask(token: Token, request: Request) -> bytes:
    from tequio.engines.network.grpc_setup import dialling_options, require_grpc, why_not

    grpc = require_grpc()
    credentials = grpc.ssl_channel_credentials(root_certificates=token.authority)
    options = dialling_options(role_name("coordinator"))
    with grpc.secure_channel(token.enrolment_address, credentials, options=options) as channel:
        try:
            data = channel.unary_unary(METHOD)(msgspec.msgpack.encode(request), timeout=_SECONDS)
        except grpc.RpcError as cause:
            raise EngineError(f"the coordinator cannot be reached at {token.enrolment_address}: "
                              + why_not(cause.details()),
                              remedy="check that it runs (tequio coordinator run or serve) and that this address can "
                                     "be reached from here") from None
    answer = msgspec.msgpack.decode(data, type=Grant)
    if not answer.certificate:
        raise PermissionDenied(f"the coordinator refused: {answer.cause}", remedy=answer.remedy)
    return answer.certificate


RENEW_WITHIN_DAYS = 30.0
_FIRST_WITH_RENEWAL = 2
_PENDING = "renewal.key"


class RenewingParty:
    """A party's half."""

    def __init__(self, home: PartyHome, telemetry: Telemetry, send: Callable[[Iterable[bytes]], None]) -> None:
        self._home, self._telemetry, self._send = home, telemetry, send

    def ask(self, message: Expiring) -> None:
        """Make a key and ask for its certificate; a key whose answer was lost is asked about again."""
        pending = self._home.folder / _PENDING
        if not pending.exists():
            write_private(pending, key_pem(new_key()))
        request = make_request(load_key(pending.read_bytes()), self._home.facts["name"])
        self._telemetry.log("certificate ends soon", days=round(message.days, 1))
        self._send([frame(Renew(request))])

    def take(self, message: Renewed) -> None:
        """Keep the new certificate, if it is what was asked for."""
        pending = self._home.folder / _PENDING
        try:
            if not pending.exists():
                raise PermissionDenied("nobody asked for it")
            key = pending.read_bytes()
            check_issued(message.certificate, self._home.authority, load_key(key).public_key(),
                         self._home.facts["name"])
            self._home.renew(key, message.certificate)
            pending.unlink()
        except (PermissionDenied, EngineError, OSError) as cause:
            self._telemetry.note("renewal refused", cause=str(cause))
            return
        self._telemetry.note("certificate renewed", fingerprint=fingerprint(message.certificate),
                             days=round(days_left(message.certificate), 1))


class RenewingCoordinator:
    """The coordinator's half."""

    def __init__(self, home: CoordinatorHome, hub: Hub, telemetry: Telemetry) -> None:
        self._home, self._hub, self._telemetry = home, hub, telemetry

    def look_around(self) -> None:
        """Remind all whose certificates end soon."""
        for link in self._hub.links():
            self.remind(link)

    def remind(self, link: Link) -> None:
        """Tell a party if its certificate ends soon."""
        known = self._home.party(link.hello.name)
        if known is None or link.hello.highest < _FIRST_WITH_RENEWAL:
            return
        days = days_left(str(known["certificate"]).encode())
        if days < RENEW_WITHIN_DAYS:
            link.send([frame(Expiring(max(days, 0.0)))])

    def answer(self, link: Link, message: Renew) -> None:
        """Give whoever asks over a link of its own a new certificate; a refusal leaves the link as it is."""
        try:
            certificate = self._granted(link.hello.name, message)
        except PermissionDenied as cause:
            self._telemetry.note("renewal refused", party=link.hello.name, cause=cause.message)
            self._telemetry.count("refusals", kind="renewal")
            return
        link.send([frame(Renewed(certificate))])

    def _granted(self, name: str, message: Renew) -> bytes:
        """The new certificate, when the old one ends soon; the same one again where an answer was lost."""
        known = self._home.party(name)
        if known is None or known.get("revoked"):
            raise PermissionDenied(f"no party '{name}' is enrolled that could renew its certificate")
        key = key_fingerprint(requested_key(message.request))
        if key == known["key"]:
            return str(known["certificate"]).encode()
        if days_left(str(known["certificate"]).encode()) >= RENEW_WITHIN_DAYS:
            raise PermissionDenied(f"the certificate of party '{name}' does not end soon")
        certificate = sign_request(self._home.identity("authority"), message.request, name,
                                   role="aggregator" if "aggregator" in known else "party")
        self._home.renewed(name, certificate, key)
        self._telemetry.note("certificate renewed", party=name, fingerprint=fingerprint(certificate),
                             days=round(days_left(certificate), 1))
        return certificate
