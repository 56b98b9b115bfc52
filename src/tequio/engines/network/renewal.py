"""Certificates that end soon are renewed over the link that they opened: nobody has to join again.

The coordinator, whose clock decides, says that a certificate ends soon; the party makes a new key and asks for a
certificate of it; from its next dialling on it shows that one. The old one is good until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    sign_request,
)
from tequio.engines.network.files import write_private
from tequio.engines.network.wire import Expiring, Renew, Renewed, frame
from tequio.errors import EngineError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tequio.engines.network.homes import CoordinatorHome, PartyHome
    from tequio.engines.network.hub import Hub, Link
    from tequio.engines.network.telemetry import Telemetry

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
        hosts = [known["aggregator"].rpartition(":")[0]] if "aggregator" in known else []
        certificate = sign_request(self._home.identity("authority"), message.request, name, hosts=hosts)
        self._home.renewed(name, certificate, key)
        self._telemetry.note("certificate renewed", party=name, fingerprint=fingerprint(certificate),
                             days=round(days_left(certificate), 1))
        return certificate
