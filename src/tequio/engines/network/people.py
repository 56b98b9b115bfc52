"""The people of a coordinator: owners, researchers and auditors, each with a token of their own.

Whoever can read the coordinator's folder is its operator and may do everything: that is the access of the account it
runs under. People need nothing from that folder. Their commands go over TLS to a port on this machine, which proves by
the coordinator's certificate whose it is, and every action is checked here, where it is done, and noted in the audit
log under the person's name. Of a token the coordinator keeps only a hash.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from socketserver import TCPServer
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from tequio.engines.network.certificates import role_name
from tequio.engines.network.control import asked_over, granted, serve_lines
from tequio.engines.network.files import (
    Document,
    check_party_name,
    create_private,
    private_folder,
    read_required,
    write_private,
)
from tequio.engines.network.telemetry import entries, verify
from tequio.errors import SEE_ITS_LOG, ConfigError, EngineError, PermissionDenied, RunError, crossing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tequio.engines.network.control import Handler
    from tequio.engines.network.homes import CoordinatorHome

PersonRole = Literal["owner", "researcher", "auditor"]

PREFIX = "tequio1p-"
LONGEST_PROPOSAL = 1 << 16
MOST_WAITING = 20
MAY: Mapping[str, tuple[PersonRole, ...]] = {
    "propose": ("owner", "researcher"), "result": ("owner", "researcher"), "audit": ("owner", "auditor"),
    "ledgers": ("owner", "auditor"), "proposals": ("owner", "researcher", "auditor")}
"""Who may do what; everything else is for owners."""

_READING = frozenset({"proposals", "result", "audit", "ledgers", "people", "status"})
"""What changes nothing. People may do it as often as they like, so that the audit log counts bursts of it."""

_OVER = ("finished", "stopped")
_NOT_OURS = "this token is not one of this coordinator's people"
_REMEDY = "ask an owner for a new token: tequio coordinator people add NAME --role ROLE --out FILE"
_NO_HASH = sha256(b"").hexdigest()
_PORTS_TRIED = 100


@dataclass(frozen=True)
class Person:
    """Who asks for something. Runs that a researcher proposes start by themselves if `starts`."""

    name: str
    role: PersonRole
    starts: bool = False


OPERATOR = Person("operator", "owner")
"""Whoever can read the coordinator's folder."""


class PersonToken(msgspec.Struct, frozen=True, array_like=True):
    """What a person holds: the port to ask at, the authority that the coordinator proves itself by, and a secret."""

    port: int
    authority: bytes
    id: str
    secret: str

    def to_text(self) -> str:
        """As one line."""
        return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


def read_person_token(text: str) -> PersonToken:
    """A token from the content of its file. Errors do not repeat it."""
    body = text.strip().removeprefix(PREFIX)
    try:
        if body == text.strip():
            raise ValueError
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=PersonToken)
    except (ValueError, msgspec.MsgspecError):
        raise ConfigError("this file holds no person's token", remedy="give the file that this command wrote: tequio "
                          "coordinator people add NAME --role ROLE --out FILE") from None


def ask_as(token: PersonToken, question: str, **facts: object) -> Document:
    """The coordinator's answer to a person. It is asked only after it has proved that it is the coordinator."""
    context = ssl.create_default_context(cadata=token.authority.decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with socket.create_connection(("127.0.0.1", token.port), timeout=10.0) as plain, \
                context.wrap_socket(plain, server_hostname=role_name("coordinator")) as connection:
            answer = asked_over(connection, {"ask": question, "token": [token.id, token.secret], **facts})
    except (OSError, ValueError) as cause:
        raise EngineError(f"no coordinator that this token is for answers on port {token.port} of this machine: "
                          f"{type(cause).__name__}", remedy="ask its operator to start it: tequio coordinator serve") \
            from None
    return granted(answer)


@dataclass(frozen=True)
class People:
    """Who may ask a coordinator for what: a file for each token, with its hash."""

    folder: Path

    def add(self, name: str, role: PersonRole, days: float, by: str, *, starts: bool = False) -> tuple[str, str]:
        """A new person's id and secret."""
        if check_party_name(name).lower() == OPERATOR.name or any(known["name"] == name for known in self.active()):
            raise ConfigError(f"the name '{name}' is taken", remedy="choose another name, or revoke the token that is "
                                                                    f"there: tequio coordinator people revoke '{name}'")
        if role not in ("owner", "researcher", "auditor"):
            raise ConfigError(f"there is no role '{role}'", remedy="type --role owner, researcher or auditor")
        if not 0 < days <= 3650:
            raise ConfigError(f"a token cannot be good for {days:g} days", remedy="type --days with 1 to 3650")
        id, secret = secrets.token_hex(8), secrets.token_hex(32)
        facts = {"name": name, "role": role, "starts": starts, "hash": sha256(secret.encode()).hexdigest(), "by": by,
                 "made": time.time(), "expires": time.time() + 86400 * days, "revoked": False}
        create_private(self._path(id), json.dumps(facts).encode())
        return id, secret

    def identify(self, id: object, secret: object) -> Person:
        """Whose token that is; a forged, revoked or expired one is nobody's."""
        known = self._read(id) if isinstance(id, str) else None
        stated = _NO_HASH if known is None else str(known["hash"])
        # Compared in any case, so that the time says nothing about which ids there are.
        is_right = hmac.compare_digest(sha256(str(secret).encode(errors="replace")).hexdigest(), stated)
        if known is None or not is_right:
            raise PermissionDenied(_NOT_OURS, remedy=_REMEDY)
        if known["revoked"]:
            raise PermissionDenied(f"the token of '{known['name']}' was revoked", remedy=_REMEDY)
        if known["expires"] < time.time():
            raise PermissionDenied(f"the token of '{known['name']}' has expired", remedy=_REMEDY)
        return Person(known["name"], known["role"], known["starts"])

    def revoke(self, name: str) -> None:
        """Let nobody in with the tokens of that name any more."""
        found = [path for path in self._files() if json.loads(path.read_bytes())["name"] == name]
        if not found:
            raise ConfigError(f"there is no person '{name[:80]}'", remedy="see: tequio coordinator people list")
        for path in found:
            write_private(path, json.dumps({**json.loads(path.read_bytes()), "revoked": True}).encode())

    def all(self) -> list[Document]:
        """Every person there is or was, without what a token could be known by."""
        return [{key: value for key, value in json.loads(path.read_bytes()).items() if key != "hash"}
                for path in self._files()]

    def active(self) -> list[Document]:
        """Those whose token is good now."""
        return [known for known in self.all() if not known["revoked"] and known["expires"] >= time.time()]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.person"))

    def _read(self, id: str) -> Document | None:
        path = self._path(id) if id.isascii() and id.isalnum() and len(id) <= 64 else None
        return json.loads(path.read_bytes()) if path is not None and path.is_file() else None

    def _path(self, id: str) -> Path:
        return private_folder(self.folder) / f"{id}.person"


class Proposed(msgspec.Struct, frozen=True):
    """A run that somebody asked for. Its config never changes; what became of it is added. `sha256` is the config's."""

    id: str
    name: str
    by: str
    at: str
    sha256: str
    config: str
    decision: Literal["", "accepted", "declined"] = ""
    decided_by: str = ""
    decided_at: str = ""
    note: str = ""
    run: str = ""


@dataclass(frozen=True)
class Proposals:
    """What was proposed, a file each, numbered."""

    folder: Path

    def add(self, name: str, by: str, config: str) -> Proposed:
        """A new one."""
        digest = sha256(config.encode()).hexdigest()
        for number in range(len(self.all()) + 1, 1_000_000):
            made = Proposed(str(number), name, by, _now(), digest, config)
            if create_private(self._path(made.id), msgspec.json.encode(made)):
                return made
        raise EngineError("there is no number left for a proposal", remedy=f"clear {self.folder}")

    def keep(self, proposed: Proposed) -> None:
        """Write down what became of it."""
        write_private(self._path(proposed.id), msgspec.json.encode(proposed))

    def all(self) -> list[Proposed]:
        """All of them, oldest first."""
        found = (msgspec.json.decode(path.read_bytes(), type=Proposed) for path in self.folder.glob("*.json"))
        return sorted(found, key=lambda proposed: int(proposed.id))

    def find(self, id: object) -> Proposed:
        """The one of that number."""
        for proposed in self.all():
            if proposed.id == str(id):
                return proposed
        raise _no_proposal(id)

    def _path(self, id: str) -> Path:
        return private_folder(self.folder) / f"{id}.json"


class Runs(Protocol):
    """What a coordinator does with proposed runs."""

    def check(self, config: str) -> str:
        """The name of the run that a proposed config describes; refused if it cannot run or would reach further than
        a researcher may."""
        ...

    def start(self, config: str, *, patient: bool) -> str:
        """Start it, and say what the run is called. A `patient` one waits for days until all parties have approved."""
        ...

    def state(self, run: str) -> str:
        """How far a run is, in words."""
        ...

    def result(self, run: str) -> Document:
        """The summary of a finished run."""
        ...

    def ledgers(self) -> dict[str, Document]:
        """What each finished run states about its privacy loss."""
        ...


class Desk:
    """Where people's questions are answered, and the operator's about people. Checks, does, and notes each."""

    def __init__(self, home: CoordinatorHome, handlers: Mapping[str, Handler], runs: Runs | None,
                 note: Callable[..., None]) -> None:
        self._home, self._runs, self._note = home, runs, note
        self.people = People(home.folder / "people")
        self._proposals = Proposals(home.folder / "proposals")
        self._lock, self._door = threading.RLock(), list[TCPServer]()
        own: Mapping[str, Callable[[Person, Document], Mapping[str, object]]] = {
            "propose": self._propose, "proposals": self._listed, "accept": self._accept, "decline": self._decline,
            "result": self._result, "audit": self._audit, "ledgers": self._ledgers, "revoke": self._revoke_party,
            "people": self._listed_people, "add person": self._add, "revoke person": self._revoke,
            "token": self._join_token}
        self._actions = {**{name: _without_person(handler) for name, handler in handlers.items()}, **own}

    def answer(self, line: bytes) -> Mapping[str, object]:
        """What a person with a token is answered; never raises, and no error holds a path of this machine."""
        try:
            question: Document = json.loads(line)
            return self.act(self._identified(question["token"]), question)
        except Exception as cause:
            error, remedy = crossing(cause)
            return {"error": error, "remedy": "" if remedy == SEE_ITS_LOG else remedy}

    def _identified(self, token: Sequence[object]) -> Person:
        try:
            return self.people.identify(*token)
        except PermissionDenied as cause:
            self._note("person refused", cause=cause.message)
            raise

    def act(self, person: Person, question: Document) -> Mapping[str, object]:
        """Do what a person asks for, if their role allows it."""
        action = str(question.get("ask"))[:80]
        allowed = MAY.get(action, ("owner",))
        try:
            if person.role not in allowed:
                who = " or ".join(allowed)
                raise PermissionDenied(f"'{action}' is for the role {who}, and '{person.name}' is {_a(person.role)}",
                                       remedy="ask an owner of this coordinator")
            if action not in self._actions:
                raise ConfigError(f"there is no action '{action}'")
            answer = self._actions[action](person, question)
        except Exception as cause:
            self._note("person refused", person=person.name, role=person.role, action=action,
                       cause=str(cause) if isinstance(cause, PermissionDenied | ConfigError) else type(cause).__name__)
            raise
        about = {key: str(question[key]) for key in ("id", "name", "folder", "run") if key in question}
        self._note("person read" if action in _READING else "person asked", person=person.name, role=person.role,
                   action=action, **about)
        return answer

    def for_operator(self) -> dict[str, Handler]:
        """The same actions for whoever can read the folder. Looking at the status leaves no entry: commands do that
        several times a second."""
        return {action: self._for_operator(action) for action in self._actions}

    def _for_operator(self, action: str) -> Handler:
        if action == "status":
            return lambda question: self._actions[action](OPERATOR, question)
        return lambda question: self.act(OPERATOR, question)

    def open(self) -> None:
        """Listen for people, if there are any."""
        with self._lock:
            port = self._port()
            if not port or self._door:
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(self._home.folder / "coordinator.pem", self._home.folder / "coordinator.key")
            try:
                self._door.append(serve_lines(port, self.answer, context))
            except OSError as cause:  # parties are served all the same
                self._note("people cannot ask", port=port, cause=cause.strerror or "")

    def close(self) -> None:
        """Listen no more."""
        for server in self._door:
            server.shutdown()
            server.server_close()
        self._door.clear()

    def _port(self) -> int:
        path = self._home.folder / "people" / "port"
        return int(path.read_bytes()) if path.is_file() else 0

    def _choose_port(self) -> int:
        """The port for people, which their tokens name: the first free one behind that for joining."""
        first = self._home.facts["enrolment_port"] + 1
        for port in range(first, min(first + _PORTS_TRIED, 65536)):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            write_private(private_folder(self._home.folder / "people") / "port", str(port).encode())
            return port
        raise EngineError("no port is free for people to ask at", remedy=f"free one from {first} on")

    def _add(self, person: Person, question: Document) -> Mapping[str, object]:
        with self._lock:
            id, secret = self.people.add(str(question["name"]), question["role"], float(question["days"]), person.name,
                                         starts=bool(question.get("starts")))
            port = self._port() or self._choose_port()
            if self._runs is not None:
                self.open()
        authority = read_required(self._home.folder / "authority.pem", "make a coordinator: tequio coordinator init")
        return {"token": PersonToken(port, authority, id, secret).to_text()}

    def _revoke(self, person: Person, question: Document) -> Mapping[str, object]:
        self.people.revoke(str(question["name"]))
        return {}

    def _revoke_party(self, person: Person, question: Document) -> Mapping[str, object]:
        self._home.revoke(str(question["name"]))
        if "drop" in self._actions:
            self._actions["drop"](person, question)
        return {}

    def _listed_people(self, person: Person, question: Document) -> Mapping[str, object]:
        return {"people": self.people.all()}

    def _join_token(self, person: Person, question: Document) -> Mapping[str, object]:
        role = {key: str(question.get(key, "")) for key in ("aggregator", "via")}
        token = self._home.new_token(str(question.get("name", "")), float(question.get("hours", 24.0)), **role)
        return {"token": token.to_text()}

    def _propose(self, person: Person, question: Document) -> Mapping[str, object]:
        config = str(question.get("config", ""))
        if len(config.encode()) > LONGEST_PROPOSAL:
            raise ConfigError(f"a proposal is at most {LONGEST_PROPOSAL} bytes long", remedy="shorten the config")
        name = self._work().check(config)
        with self._lock:
            waiting = sum(known.by == person.name and self._is_open(known) for known in self._proposals.all())
            if waiting >= MOST_WAITING:
                raise PermissionDenied(f"{waiting} proposals of '{person.name}' wait or run already",
                                       remedy="wait until they are decided about and finished")
            made = self._proposals.add(name, person.name, config)
            if person.starts:
                made = self._started(made, person, "starts when all parties have approved", patient=True)
        return self._shown(made, person)

    def _is_open(self, proposed: Proposed) -> bool:
        """Whether it waits, or its run goes on."""
        return not proposed.decision or (proposed.run != "" and not self._work().state(proposed.run).startswith(_OVER))

    def _listed(self, person: Person, question: Document) -> Mapping[str, object]:
        return {"proposals": [self._shown(known, person) for known in self._proposals.all()
                              if person.role != "researcher" or known.by == person.name]}

    def _accept(self, person: Person, question: Document) -> Mapping[str, object]:
        with self._lock:
            found = self._open(question["id"])
            self._work().check(found.config)
            return self._shown(self._started(found, person, str(question.get("note", "")), patient=False), person)

    def _decline(self, person: Person, question: Document) -> Mapping[str, object]:
        with self._lock:
            declined = msgspec.structs.replace(self._open(question["id"]), decision="declined", decided_by=person.name,
                                               decided_at=_now(), note=str(question.get("note", ""))[:500])
            self._proposals.keep(declined)
        return self._shown(declined, person)

    def _open(self, id: object) -> Proposed:
        found = self._proposals.find(id)
        if found.decision:
            raise ConfigError(f"proposal {found.id} was {found.decision} by '{found.decided_by}' already",
                              remedy="see: tequio coordinator proposals")
        return found

    def _started(self, proposed: Proposed, person: Person, note: str, *, patient: bool) -> Proposed:
        run = self._work().start(proposed.config, patient=patient)
        started = msgspec.structs.replace(proposed, decision="accepted", decided_by=person.name, decided_at=_now(),
                                          note=note[:500], run=run)
        self._proposals.keep(started)
        return started

    def _shown(self, proposed: Proposed, person: Person) -> Document:
        """A proposal with its state; an auditor sees that there was one and who decided, but not what is in it."""
        facts: Document = msgspec.to_builtins(proposed)
        if person.role == "auditor":
            return {key: value for key, value in facts.items() if key != "config"}
        running = self._runs is not None and proposed.run
        return {**facts, "state": self._work().state(proposed.run) if running else proposed.decision or "waits"}

    def _result(self, person: Person, question: Document) -> Mapping[str, object]:
        found = self._proposals.find(question["id"])
        if person.role == "researcher" and found.by != person.name:
            raise _no_proposal(question["id"])
        if not found.run:
            raise ConfigError(f"proposal {found.id} has no run: it {found.decision or 'waits'}",
                              remedy="see: tequio coordinator proposals")
        return self._work().result(found.run)

    def _audit(self, person: Person, question: Document) -> Mapping[str, object]:
        path = self._home.folder / "audit.jsonl"
        try:
            count, changed = verify(path), ""
        except RunError:
            count, changed = 0, "the log was changed, or lines are missing: it proves nothing"
        return {"count": count, "changed": changed, "entries": entries(path)[-int(question.get("last", 100)):]}

    def _ledgers(self, person: Person, question: Document) -> Mapping[str, object]:
        return {"ledgers": self._work().ledgers()}

    def _work(self) -> Runs:
        if self._runs is None:
            raise EngineError("no coordinator runs here", remedy="start it: tequio coordinator serve --home "
                                                                 f"{self._home.folder}")
        return self._runs


def _without_person(handler: Handler) -> Callable[[Person, Document], Mapping[str, object]]:
    return lambda _, question: handler(question)


def _no_proposal(id: object) -> ConfigError:
    return ConfigError(f"there is no proposal '{str(id)[:40]}'", remedy="see: tequio coordinator proposals")


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
