"""The folders of a coordinator and of a party: keys, certificates, who is enrolled, and tokens to join with.

A join token is one line of text: the coordinator's address, its authority's certificate, and a secret that is good for
one enrolment. The coordinator keeps only the hash of the secret, in one file per token: taking a token is renaming its
file, so that of two who try at once one succeeds.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import json
import os
import secrets
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import msgspec

from tequio.engines.network.certificates import (
    Identity,
    belong_together,
    days_left,
    fingerprint,
    load_key,
    make_authority,
    make_server,
    role_name,
    role_of,
)
from tequio.engines.network.files import (
    Document,
    check_party_name,
    create_private,
    is_plain_name,
    look_alike,
    private_folder,
    read_required,
    write_private,
)
from tequio.errors import ConfigError, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tequio.privacy.dataset_ledger import DatasetLedger


PORT = 8470
SIGNING = "signing.key"
CHANGING = threading.RLock()
"""Held while the list of parties changes: the service answers in several threads."""

_RENEWED, _CERTIFICATE = "renewed.pem", b"-----BEGIN CERTIFICATE-----"
_COORDINATOR_REMEDY = "make a coordinator first: tequio coordinator init"
_PARTY_REMEDY = "enrol first: tequio party join TOKEN --data FILE"


class CoordinatorFacts(TypedDict):
    """Who a coordinator is, where parties reach it, and the address that it listens on if one was chosen."""

    name: str
    address: str
    port: int
    enrolment_port: int
    bind: NotRequired[str]


class Role(TypedDict, total=False):
    """What a token makes of its party: an aggregator at an address, or a party that dials an aggregator."""

    aggregator: str
    via: str


class Enrolled(Role):
    """A party that joined: the certificates it may show, and the last one in full. It is `pending` until it confirms
    that it has kept its certificate."""

    fingerprints: list[str]
    token: str
    key: str
    certificate: str
    revoked: NotRequired[bool]
    pending: NotRequired[bool]


class PartyFacts(TypedDict):
    """Who a party is, whom it dials (`via`: through which aggregator), where it listens if it is an aggregator, and
    what data it brings."""

    name: str
    address: str
    listen: NotRequired[str]
    bind: NotRequired[str]
    via: NotRequired[str]
    data: Document


@dataclass(frozen=True)
class CoordinatorHome:
    """A coordinator's folder."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, name: str, address: str, port: int, enrolment_port: int,
               bind: str = "") -> CoordinatorHome:
        """Make the authority and the coordinator's certificate for the address that parties dial."""
        host, _, number = address.rpartition(":")
        if host and not host.endswith((":", "]")) and ":" not in host:
            raise ConfigError(f"'{address}' is an address with a port, and a host name or IP address is needed",
                              remedy=f"set --address {host} --port {number}")
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
        made.listen_on(bind)
        return made

    def listen_on(self, bind: str) -> None:
        """Listen on that address from the next start on; empty: as before."""
        if bind:
            facts = {**self.facts, "bind": _checked_bind(bind)}
            write_private(self.folder / "coordinator.json", json.dumps(facts, indent=1).encode())

    @property
    def bind(self) -> str:
        """The address to listen on."""
        return self.facts.get("bind") or _bind_for(self.facts["address"])

    @property
    def facts(self) -> CoordinatorFacts:
        """Name, address and ports."""
        found: CoordinatorFacts = json.loads(read_required(self.folder / "coordinator.json", _COORDINATOR_REMEDY))
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
            self._refuse_taken(check_party_name(name))
        facts, authority = self.facts, self.identity("authority").certificate
        host = facts["address"]
        address = self._address_of(via) if via else f"{host}:{facts['port']}"
        role = {key: value for key, value in (("aggregator", aggregator), ("via", via)) if value}
        id, secret = self.tokens.mint(name, hours, **role)
        return Token(address, f"{host}:{facts['enrolment_port']}", authority, id, secret, aggregator, via)

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

    def enrol(self, name: str, facts: Enrolled) -> None:
        """Note a party."""
        write_private(self._party(name), json.dumps(facts).encode())

    def confirm(self, name: str) -> None:
        """A party has kept its certificate: the name is its own, and its token is used up."""
        with CHANGING:
            known = self.party(name)
            if known is not None and known.get("pending"):
                self.tokens.take(known["token"])
                self.enrol(name, {**known, "pending": False})

    def is_free(self, name: str, token: str) -> bool:
        """Whether that token may enrol a party by that name: it is new, its join never came to its end, or it was
        revoked and the token is for this name."""
        known = self.party(name)
        return (known is None and self.taken_for(name) is None) or (known is not None and (
            known.get("pending", False) or (known.get("revoked", False) and self.tokens.name(token) == name)))

    def taken_for(self, name: str) -> str | None:
        """An enrolled party's name that may be taken for this one."""
        pairs = (look_alike((known, name)) for known, facts in self.parties().items() if not facts.get("revoked"))
        return next((pair[0] for pair in pairs if pair is not None), None)

    def forget_pending(self, token: str) -> None:
        """Forget what a token enrolled if that was never confirmed."""
        for name, facts in self.parties().items():
            if facts.get("pending") and facts["token"] == token:
                self._party(name).unlink()

    def _refuse_taken(self, name: str) -> None:
        known = self.party(name)
        if known is None and (alike := self.taken_for(name)) is not None:
            raise ConfigError(f"the name '{name}' may be taken for that of the party '{alike}'",
                              remedy="choose a name that differs by more than case, separators, or 1, l and I, or 0 "
                                     "and O")
        if known is None or known.get("pending") or known.get("revoked"):
            return
        days = days_left(str(known["certificate"]).encode())
        raise ConfigError(f"the name '{name}' is taken by a party whose certificate " + (
            f"is good for {int(days)} more days" if days > 0 else "has ended"),
            remedy=f"a certificate is renewed by itself when the party dials in; if the party has lost its folder or "
                   f"its certificate has ended, free the name: tequio coordinator revoke '{name}'")

    def party(self, name: str) -> Enrolled | None:
        """What is known of a party; nothing where none is enrolled by that name."""
        path = self._party(name)
        return json.loads(path.read_bytes()) if path.is_file() else None

    def parties(self) -> dict[str, Enrolled]:
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
        self.confirm(name)
        if fingerprint(certificate) == known["fingerprints"][-1] and len(known["fingerprints"]) > 1:
            write_private(self._party(name), json.dumps({**known, "fingerprints": known["fingerprints"][-1:]}).encode())
        if known.get("via"):
            raise PermissionDenied(f"party '{name}' dials the aggregator '{known['via']}'",
                                   remedy="use the address that it joined with")

    def renewed(self, name: str, certificate: bytes, key: str) -> None:
        """Note a party's new certificate; the one before it is good until the party dials with the new one."""
        known = self.party(name)
        if known is None:
            raise ConfigError(f"no party '{name}' is enrolled", remedy="see: tequio coordinator status")
        fingerprints = [*known["fingerprints"][-1:], fingerprint(certificate)]
        write_private(self._party(name), json.dumps({**known, "certificate": certificate.decode(), "key": key,
                                                     "fingerprints": fingerprints}).encode())

    def renew_own(self, within_days: float) -> bool:
        """Make the coordinator's own certificate anew if it ends soon or states no role; whether that was so."""
        own = self.identity("coordinator")
        if days_left(own.certificate) >= within_days and belong_together(own) and role_of(own.certificate):
            return False
        self._make_own(self.identity("authority"), self.facts["address"])
        return True

    def _make_own(self, authority: Identity, address: str) -> None:
        server = make_server(authority, "coordinator", list(dict.fromkeys([address, "localhost", "127.0.0.1"])))
        write_private(self.folder / "coordinator.key", server.key)
        write_private(self.folder / "coordinator.pem", server.certificate)

    def revoke(self, name: str) -> None:
        """Never let the holder of that party's certificate in again; a new token for it frees the name."""
        with CHANGING:
            known = self.party(check_party_name(name))
            if known is None:
                raise ConfigError(f"no party '{name}' is enrolled", remedy="see: tequio coordinator status")
            self.enrol(name, {**known, "revoked": True, "pending": False})
            for id in [known["token"], *(token["id"] for token in self.tokens.waiting() if token["name"] == name)]:
                self.tokens.take(id)

    def _party(self, name: str) -> Path:
        return private_folder(self.folder / "parties") / f"{check_party_name(name)}.json"


@dataclass(frozen=True)
class PartyHome:
    """A party's folder: its key, its certificate, where the coordinator is, and what data it brings."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, name: str, facts: Mapping[str, object]) -> PartyHome:
        """Note who the party is and what it brings. A folder belongs to one party."""
        check_party_name(name)
        home = cls(folder)
        home.refuse_taken()
        (folder / _RENEWED).unlink(missing_ok=True)  # of an enrolment before this one
        write_private(private_folder(folder) / "party.json", json.dumps({"name": name, **facts}, indent=1).encode())
        return home

    def refuse_taken(self) -> None:
        """Say so if the folder is a party's already."""
        if (self.folder / "party.json").exists():
            raise ConfigError(f"'{self.folder}' belongs to a party that has joined already",
                              remedy="choose another --home; or, to bring other data under the same name, delete "
                                     f"{self.folder / 'party.json'} and join again (the same token will do)")

    def leave(self) -> None:
        """The coordinator did not take the party: let it join again from here."""
        (self.folder / "party.json").unlink(missing_ok=True)

    @property
    def facts(self) -> PartyFacts:
        """Name, the coordinator's address, and where the data are."""
        found: PartyFacts = json.loads(read_required(self.folder / "party.json", _PARTY_REMEDY))
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

    @property
    def signing_key(self) -> bytes:
        """The private key by which the party signs what it sends to others: that of its certificate. Where others make
        the link it has none, and makes a key of its own."""
        if (self.folder / _RENEWED).is_file() or (self.folder / "party.key").is_file():
            return load_key(self.identity.key).private_numbers().private_value.to_bytes(32, "big")
        path = private_folder(self.folder) / SIGNING
        create_private(path, secrets.token_bytes(32))
        return path.read_bytes()

    def renew(self, key: bytes, certificate: bytes) -> None:
        """Use another key and certificate from now on; they are one file, so that they change at once."""
        write_private(self.folder / _RENEWED, key + certificate)

    def listen_on(self, bind: str) -> None:
        """As an aggregator, listen on that address from the next start on; empty: as before."""
        if bind:
            facts = {**self.facts, "bind": _checked_bind(bind)}
            write_private(self.folder / "party.json", json.dumps(facts, indent=1).encode())

    @property
    def bind(self) -> str:
        """As an aggregator, the address to listen on."""
        return self.facts.get("bind") or _bind_for(self.facts["listen"].rpartition(":")[0])

    @property
    def dials(self) -> str:
        """The name that the certificate of the machine at the other end has to hold."""
        via = self.facts.get("via", "")
        return role_name("aggregator", via) if via else role_name("coordinator")

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

    @property
    def own_ledgers(self) -> Path:
        """Where what was spent and answered is written down, for all of this user's parties."""
        return private_folder(ledgers_folder())

    def ledger(self, fingerprint: str) -> DatasetLedger:
        """What was spent on the rows of that fingerprint, by every run of every federation of this user's parties."""
        from tequio.privacy.dataset_ledger import DatasetLedger

        path = self.folder / _TABLES
        known = json.loads(path.read_bytes()) if path.exists() else []
        if fingerprint not in known:
            write_private(path, json.dumps([*known, fingerprint]).encode())
        ledger = DatasetLedger(self.own_ledgers, fingerprint)
        ledger.take_over(self.folder / "budget.json")
        return ledger

    def ledgers(self) -> list[DatasetLedger]:
        """The ledgers of all tables that this party has brought under a budget."""
        path = self.folder / _TABLES
        return [self.ledger(fingerprint) for fingerprint in (json.loads(path.read_bytes()) if path.exists() else [])]

    def run(self, run: str) -> Path:
        """The folder of one run; names come from the coordinator and are not trusted."""
        if not is_plain_name(run):
            raise PermissionDenied(f"a run cannot be called {run[:80]!r}")
        return self.folder / "runs" / run


_TABLES = "tables.json"


def ledgers_folder() -> Path:
    """Where this user's ledgers lie: outside of any party's folder, since one table may join several federations."""
    chosen = os.environ.get("TEQUIO_STATE")
    state = Path(chosen).expanduser() if chosen else \
        Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tequio"
    return state / "ledgers"


EVERYWHERE = ("0.0.0.0", "::")


def _bind_for(host: str) -> str:
    """Who is dialled at a loopback address listens there alone, and any other on all addresses of its machine."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return (host if ":" in host else "127.0.0.1") if loopback else EVERYWHERE[0]


def _checked_bind(bind: str) -> str:
    try:
        return str(ipaddress.ip_address(bind))
    except ValueError:
        raise ConfigError(f"'{bind}' is not an IP address", remedy="give one of this machine, such as --bind "
                          "127.0.0.1, or --bind 0.0.0.0 for all of them") from None


PREFIX = "tequio1-"
_OPEN, _USED = ".open", ".used"
_REMEDY = "ask the coordinator for a new token: tequio coordinator token"


class Token(msgspec.Struct, frozen=True, array_like=True):
    """What a token holds. `authority` is the certificate that the coordinator has to prove itself with.

    An aggregator's token says where it is to `listen`, and that of a party behind one which it is to dial (`via`).
    """

    address: str
    enrolment_address: str
    authority: bytes
    id: str
    secret: bytes
    listen: str = ""
    via: str = ""

    def to_text(self) -> str:
        """As one line."""
        return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


def read_token(text: str) -> Token:
    """A token from its text, or from the file that holds it."""
    given = text.strip()
    if not given.startswith(PREFIX) and len(given) < 1000 and Path(given).is_file():
        given = Path(given).read_text(encoding="utf-8").strip()
    body = given.removeprefix(PREFIX)
    try:
        if body == given:
            raise ValueError(f"it does not start with '{PREFIX}'")
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Token)
    except (ValueError, msgspec.MsgspecError) as cause:
        raise ConfigError(f"this is not a join token: {cause}",
                          remedy="copy the whole line that 'tequio coordinator token' printed") from None


@dataclass(frozen=True)
class TokenBook:
    """The tokens that a coordinator gave out."""

    folder: Path

    def mint(self, name: str, hours: float, **role: str) -> tuple[str, bytes]:
        """A new token's id and secret, for the party of that name (empty: whoever holds the token).

        `role` says what it makes of the party: an `aggregator` at an address, or one that dials `via` an aggregator.
        """
        id, secret = secrets.token_hex(8), secrets.token_bytes(32)
        facts = {"hash": sha256(secret).hexdigest(), "name": name, "expires": time.time() + 3600 * hours, **role}
        create_private(private_folder(self.folder) / (id + _OPEN), json.dumps(facts).encode())
        return id, secret

    def check(self, id: str, secret: bytes, name: str) -> bool:
        """Refuse a wrong, foreign or expired token; whether it is still unused."""
        facts, unused = self._find(id)
        if not hmac.compare_digest(sha256(secret).hexdigest(), facts["hash"]):
            raise PermissionDenied("the join token is not one of this coordinator's", remedy=_REMEDY)
        if facts["name"] not in ("", name):
            raise PermissionDenied(f"the join token is for another party than '{name}'", remedy=_REMEDY)
        if unused and facts["expires"] < time.time():
            raise PermissionDenied("the join token has expired", remedy=_REMEDY)
        return unused

    def role(self, id: str) -> Role:
        """What the token makes of its party."""
        facts, _ = self._find(id)
        role: Role = {}
        if facts.get("aggregator"):
            role["aggregator"] = facts["aggregator"]
        if facts.get("via"):
            role["via"] = facts["via"]
        return role

    def name(self, id: str) -> str:
        """The party that the token is for; empty where any may use it."""
        return str(self._find(id)[0]["name"])

    def take(self, id: str) -> bool:
        """Use a token up; whether it was this call that did."""
        try:
            (self.folder / (id + _OPEN)).rename(self.folder / (id + _USED))
        except FileNotFoundError:
            return False
        return True

    def waiting(self) -> Iterator[Document]:
        """The tokens that nobody used yet."""
        for path in sorted(self.folder.glob("*" + _OPEN)):
            yield {"id": path.stem, **json.loads(path.read_bytes())}

    def _find(self, id: str) -> tuple[Document, bool]:
        if not id.isalnum() or len(id) > 64:
            raise PermissionDenied("the join token is not one of this coordinator's", remedy=_REMEDY)
        for ending in (_OPEN, _USED):
            path = self.folder / (id + ending)
            if path.is_file():
                return json.loads(path.read_bytes()), ending == _OPEN
        raise PermissionDenied("the join token is not one of this coordinator's", remedy=_REMEDY)
