"""The folders of a coordinator and of a party: keys, certificates, who is enrolled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tequio.engines.network.certificates import (
    Identity,
    belong_together,
    days_left,
    fingerprint,
    make_authority,
    make_server,
)
from tequio.engines.network.files import (
    check_party_name,
    create_private,
    is_plain_name,
    private_folder,
    read_required,
    write_private,
)
from tequio.engines.network.tokens import Token, TokenBook
from tequio.errors import ConfigError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PORT = 8470
_RENEWED, _CERTIFICATE = "renewed.pem", b"-----BEGIN CERTIFICATE-----"
_COORDINATOR_REMEDY = "make a coordinator first: tequio coordinator init"
_PARTY_REMEDY = "enrol first: tequio party join TOKEN --data FILE"


@dataclass(frozen=True)
class CoordinatorHome:
    """A coordinator's folder."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, name: str, address: str, port: int, enrolment_port: int) -> CoordinatorHome:
        """Make the authority and the coordinator's certificate for the address that parties dial."""
        if (folder / "coordinator.json").exists():
            raise ConfigError(f"'{folder}' holds a coordinator already",
                              remedy="choose another --home, or delete it if nobody joined")
        private_folder(folder)
        authority = make_authority(f"tequio {name}")
        write_private(folder / "authority.key", authority.key)
        write_private(folder / "authority.pem", authority.certificate)
        made = cls(folder)
        made._make_own(authority, address)
        facts = {"name": name, "address": address, "port": port, "enrolment_port": enrolment_port}
        write_private(folder / "coordinator.json", json.dumps(facts, indent=1).encode())
        return made

    @property
    def facts(self) -> dict[str, Any]:
        """Name, address and ports."""
        found: dict[str, Any] = json.loads(read_required(self.folder / "coordinator.json", _COORDINATOR_REMEDY))
        return found

    def identity(self, stem: str) -> Identity:
        """Key and certificate of the `authority` or of the `coordinator` itself."""
        return Identity(read_required(self.folder / f"{stem}.key", _COORDINATOR_REMEDY),
                        read_required(self.folder / f"{stem}.pem", _COORDINATOR_REMEDY))

    @property
    def tokens(self) -> TokenBook:
        """The join tokens."""
        return TokenBook(self.folder / "tokens")

    def new_token(self, name: str = "", hours: float = 24.0, *, aggregator: str = "", via: str = "") -> Token:
        """A token for one party, for an aggregator that listens at HOST:PORT, or for a party that dials one."""
        if name:
            check_party_name(name)
        facts, authority = self.facts, self.identity("authority").certificate
        host = facts["address"]
        address = self._address_of(via) if via else f"{host}:{facts['port']}"
        role = {key: value for key, value in (("aggregator", aggregator), ("via", via)) if value}
        id, secret = self.tokens.mint(name, hours, **role)
        return Token(address, f"{host}:{facts['enrolment_port']}", authority, id, secret, aggregator)

    def _address_of(self, aggregator: str) -> str:
        known = self.party(aggregator)
        if known is None or "aggregator" not in known:
            raise ConfigError(f"no aggregator '{aggregator}' is enrolled", remedy="let it join first: tequio "
                              "coordinator token NAME --aggregator HOST:PORT, then tequio aggregator join")
        return str(known["aggregator"])

    def is_aggregator(self, name: str) -> bool:
        """Whether that party joined to relay others."""
        return "aggregator" in (self.party(name) or {})

    def is_member(self, name: str, aggregator: str) -> bool:
        """Whether that party dials that aggregator, and was not sent away."""
        known = self.party(name) if is_plain_name(name) else None
        return known is not None and known.get("via") == aggregator and not known.get("revoked")

    def members(self, aggregator: str) -> dict[str, tuple[str, ...]]:
        """The parties that dial an aggregator, and the certificates that each may show."""
        return {name: tuple(facts["fingerprints"]) for name, facts in self.parties().items()
                if facts.get("via") == aggregator and not facts.get("revoked")}

    def enrol(self, name: str, facts: Mapping[str, Any]) -> bool:
        """Note a party; whether the name was free."""
        return create_private(self._party(name), json.dumps(dict(facts)).encode())

    def party(self, name: str) -> dict[str, Any] | None:
        """What is known of a party; nothing where none is enrolled by that name."""
        path = self._party(name)
        return json.loads(path.read_bytes()) if path.is_file() else None

    def parties(self) -> dict[str, dict[str, Any]]:
        """All that are enrolled, by name."""
        return {path.stem: json.loads(path.read_bytes())
                for path in sorted(private_folder(self.folder / "parties").glob("*.json"))}

    def admit(self, name: str, certificate: bytes) -> None:
        """Refuse whoever is not the holder of the certificate that this party was given, or was sent away."""
        known = self.party(name) if is_plain_name(name) else None
        if known is None or fingerprint(certificate) not in known["fingerprints"]:
            raise PermissionDenied(f"no party '{name[:80]}' with this certificate is enrolled here",
                                   remedy="join again with a new token")
        if known.get("revoked"):
            raise PermissionDenied(f"the certificate of party '{name}' was revoked",
                                   remedy="talk to the coordinator's operator")
        if fingerprint(certificate) == known["fingerprints"][-1] and len(known["fingerprints"]) > 1:
            write_private(self._party(name), json.dumps({**known, "fingerprints": known["fingerprints"][-1:]}).encode())
        if known.get("via"):
            raise PermissionDenied(f"party '{name}' dials the aggregator '{known['via']}'",
                                   remedy="use the address that it joined with")

    def renewed(self, name: str, certificate: bytes, key: str) -> None:
        """Note a party's new certificate; the one before it is good until the party dials with the new one."""
        known = self.party(name) or {"fingerprints": []}
        fingerprints = [*known["fingerprints"][-1:], fingerprint(certificate)]
        write_private(self._party(name), json.dumps({**known, "certificate": certificate.decode(), "key": key,
                                                     "fingerprints": fingerprints}).encode())

    def renew_own(self, within_days: float) -> bool:
        """Make the coordinator's own certificate anew if it ends soon; whether that was so."""
        own = self.identity("coordinator")
        if days_left(own.certificate) >= within_days and belong_together(own):
            return False
        self._make_own(self.identity("authority"), self.facts["address"])
        return True

    def _make_own(self, authority: Identity, address: str) -> None:
        server = make_server(authority, "coordinator", list(dict.fromkeys([address, "localhost", "127.0.0.1"])))
        write_private(self.folder / "coordinator.key", server.key)
        write_private(self.folder / "coordinator.pem", server.certificate)

    def revoke(self, name: str) -> None:
        """Never let that party in again."""
        known = self.party(check_party_name(name))
        if known is None:
            raise ConfigError(f"no party '{name}' is enrolled", remedy="see: tequio coordinator status")
        write_private(self._party(name), json.dumps({**known, "revoked": True}).encode())

    def _party(self, name: str) -> Path:
        return private_folder(self.folder / "parties") / f"{check_party_name(name)}.json"


@dataclass(frozen=True)
class PartyHome:
    """A party's folder: its key, its certificate, where the coordinator is, and what data it brings."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, name: str, facts: Mapping[str, Any]) -> PartyHome:
        """Note who the party is and what it brings. A folder belongs to one party."""
        check_party_name(name)
        home = cls(folder)
        home.refuse_taken()
        write_private(private_folder(folder) / "party.json", json.dumps({"name": name, **facts}, indent=1).encode())
        return home

    def refuse_taken(self) -> None:
        """Say so if the folder is a party's already."""
        if (self.folder / "party.json").exists():
            raise ConfigError(f"'{self.folder}' belongs to a party that has joined already",
                              remedy="choose another --home, or delete it")

    @property
    def facts(self) -> dict[str, Any]:
        """Name, the coordinator's address, and the data's place."""
        found: dict[str, Any] = json.loads(read_required(self.folder / "party.json", _PARTY_REMEDY))
        return found

    @property
    def identity(self) -> Identity:
        """The party's own key and certificate, the renewed ones if there are any."""
        renewed = self.folder / _RENEWED
        if renewed.is_file():
            key, mark, certificate = renewed.read_bytes().partition(_CERTIFICATE)
            return Identity(key, mark + certificate)
        return Identity(read_required(self.folder / "party.key", _PARTY_REMEDY),
                        read_required(self.folder / "party.pem", _PARTY_REMEDY))

    def renew(self, key: bytes, certificate: bytes) -> None:
        """Use another key and certificate from now on; they are one file, so that they change at once."""
        write_private(self.folder / _RENEWED, key + certificate)

    @property
    def authority(self) -> bytes:
        """The certificate by which the coordinator proves itself."""
        return read_required(self.folder / "authority.pem", _PARTY_REMEDY)

    @property
    def coordinator(self) -> str:
        """The fingerprint of the coordinator's authority; empty where it shows no certificate."""
        return fingerprint(self.authority) if (self.folder / "authority.pem").exists() else ""

    @property
    def policy(self) -> Path:
        """The policy file."""
        return self.folder / "policy.toml"

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.folder / "audit.jsonl"

    def run(self, run: str) -> Path:
        """The folder of one run; names come from the coordinator and are not trusted."""
        if not is_plain_name(run):
            raise PermissionDenied(f"a run cannot be called {run[:80]!r}")
        return self.folder / "runs" / run
