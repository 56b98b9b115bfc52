"""Enrolment: a party shows a join token and a certificate request, and is given its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tequio.engines.network.certificates import (
    fingerprint,
    key_fingerprint,
    key_pem,
    load_key,
    make_request,
    new_key,
    requested_key,
    sign_request,
)
from tequio.engines.network.files import check_party_name, private_folder, write_private
from tequio.engines.network.homes import PartyHome
from tequio.engines.network.wire import Name  # noqa: TC001 - the decoder reads it
from tequio.errors import EngineError, PermissionDenied

if TYPE_CHECKING:
    from pathlib import Path

    from tequio.engines.network.homes import CoordinatorHome
    from tequio.engines.network.tokens import Token

METHOD = "/tequio.Enrolment/Enrol"
_SECONDS = 20.0


class Request(msgspec.Struct, frozen=True):
    """What a party shows."""

    token: Name
    secret: bytes
    name: Name
    request: bytes


class Grant(msgspec.Struct, frozen=True):
    """What it gets, or why not."""

    certificate: bytes = b""
    cause: str = ""
    remedy: str = ""


def grant(home: CoordinatorHome, request: Request) -> bytes:
    """The certificate for an enrolment request; a token that was used gives the same key the same certificate again."""
    name = check_party_name(request.name)
    unused = home.tokens.check(request.token, request.secret, name)
    key = key_fingerprint(requested_key(request.request))
    known = home.party(name)
    if known is not None and (known["token"], known["key"]) == (request.token, key):
        return str(known["certificate"]).encode()  # the answer to the first attempt was lost on its way
    if not unused or not _is_free(home, name) or not home.tokens.take(request.token):
        raise PermissionDenied(f"the name '{name}' is taken" if unused else "the join token was used already",
                               remedy="ask the coordinator for a new token: tequio coordinator token")
    role = home.tokens.role(request.token)
    hosts = [role["aggregator"].rpartition(":")[0]] if "aggregator" in role else []
    certificate = sign_request(home.identity("authority"), request.request, name, hosts=hosts)
    home.enrol(name, {"fingerprints": [fingerprint(certificate)], "token": request.token, "key": key,
                      "certificate": certificate.decode(), **role})
    return certificate


def join(folder: Path, token: Token, name: str, facts: dict[str, Any]) -> str:
    """Enrol at the coordinator that made the token and lay out the party's folder; the authority's fingerprint."""
    check_party_name(name)
    PartyHome(folder).refuse_taken()
    private_folder(folder)
    key_path = folder / "party.key"
    if not key_path.exists():  # kept from an attempt whose answer was lost, so that the token still works
        write_private(key_path, key_pem(new_key()))
    request = make_request(load_key(key_path.read_bytes()), name)
    certificate = _ask(token, Request(token.id, token.secret, name, request))
    write_private(folder / "party.pem", certificate)
    write_private(folder / "authority.pem", token.authority)
    listen = {"listen": token.listen} if token.listen else {}
    PartyHome.create(folder, name, {"address": token.address, **listen, **facts})
    return fingerprint(token.authority)


def _ask(token: Token, request: Request) -> bytes:
    from tequio.engines.network.grpc_setup import require_grpc

    grpc = require_grpc()
    credentials = grpc.ssl_channel_credentials(root_certificates=token.authority)
    with grpc.secure_channel(token.enrolment_address, credentials) as channel:
        try:
            data = channel.unary_unary(METHOD)(msgspec.msgpack.encode(request), timeout=_SECONDS)
        except grpc.RpcError as cause:
            raise EngineError(f"the coordinator cannot be reached at {token.enrolment_address}: {cause.details()}",
                              remedy="check that it runs (tequio coordinator run or serve) and that this address can "
                                     "be reached from here") from None
    answer = msgspec.msgpack.decode(data, type=Grant)
    if not answer.certificate:
        raise PermissionDenied(f"the coordinator refused: {answer.cause}", remedy=answer.remedy)
    return answer.certificate


def _is_free(home: CoordinatorHome, name: str) -> bool:
    return home.party(name) is None
