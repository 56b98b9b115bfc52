"""Who is who in a vertical federation, and the asks of a round: everyone must answer, and who saw what is on record.

Every message passes through the coordinator: what one party sends another is a reply to the coordinator first, and then
a payload of the next ask. The record names the fields of each message, not their values; what a field reveals is said
beside its task (`describe`), and shown by the leakage report.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tequio.errors import ConfigError, PartyError, QuorumError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload, R
    from tequio.federation.task import AnyTask, S, Task

MESSAGES = "messages"
"""The kind of event that says what was sent in a round, one per task and party."""


@dataclass(frozen=True)
class Roles:
    """Party numbers by role. The label holder may have columns of its own, and mostly has."""

    label_holder: int
    holders: tuple[int, ...]
    key_holder: int | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """The parties with columns that do not know the labels."""
        return tuple(party for party in self.holders if party != self.label_holder)

    @property
    def everyone(self) -> tuple[int, ...]:
        """All who must be there: holders of data and, where there is one, the key holder."""
        return self.holders if self.key_holder is None else (*self.holders, self.key_holder)

    def of(self, party: int) -> str:
        """A party's role in words."""
        names = {self.label_holder: "label holder", self.key_holder: "key holder"}
        return names.get(party, "feature party")


def roles_of(federation: Federation) -> Roles:
    """The roles that follow from how the data is dealt; anything but a vertical federation is refused."""
    partition = federation.population.partition
    if partition.columns is None or partition.holds_target is None:
        raise ConfigError("this algorithm is for parties that hold different columns of the same rows",
                          remedy="deal the data by columns: [data.partition] name = 'columns'")
    holding = [party for party, holds in enumerate(partition.holds_target) if holds]
    if not holding:
        raise ConfigError("no party holds the target, and a vertical federation has one label holder",
                          remedy="use data with a target: set data.target = 'COLUMN'")
    if len(holding) > 1:
        named = ", ".join(f"'{federation.name(party)}'" for party in holding)
        raise ConfigError(f"{len(holding)} parties hold the target ({named}), and a vertical federation has one label "
                          "holder", remedy="let one of them hold it: set data.partition.target_parties = "
                                           f"[{holding[0]}], or leave the target out of the others' tables")
    holders = tuple(party for party in range(len(federation)) if party != partition.key_holder)
    return Roles(holding[0], holders, partition.key_holder)


def require_key_holder(federation: Federation) -> int:
    """The key holder; an error that says how to have one where there is none."""
    holder = federation.population.partition.key_holder
    if holder is None:
        raise ConfigError("this algorithm needs a party that keeps the private key and holds no rows",
                          remedy="set data.partition.key_holder = true")
    return holder


def columns_of(federation: Federation, party: int) -> NDArray[np.int64]:
    """Which columns of the agreed schema a party holds."""
    lists = federation.population.partition.columns
    return np.empty(0, np.int64) if lists is None else lists[party]


class PartyMissing(QuorumError):
    """A step of a vertical algorithm cannot go on, because a party did not answer."""


class Conversation:
    """Asks parties, insists on every answer, and keeps the record; `close` writes it as events of the run."""

    def __init__(self, federation: Federation, roles: Roles) -> None:
        # Whether enough parties answered is judged here, where those who did not are named.
        self.federation = replace(federation, rules=replace(federation.rules, quorum=0.0))
        self.roles = roles
        self._sent: dict[tuple[str, int], _Sent] = {}

    def ask(self, parties: Iterable[int], task: Task[S, R], payload: Mapping[str, object] | None = None, *,
            each: Mapping[int, Mapping[str, object]] | None = None, settings: S | None = None,
            check: Callable[[R, str], object] | None = None) -> Replies[R]:
        """Ask parties at once; all of them answer, or the step ends with an error that names those who did not."""
        asked = sorted(parties)
        own: dict[int, Payload] = {party: dict(given) for party, given in (each or {}).items()}
        replies = self.federation.ask(asked, task, payload, settings=settings, check=check,
                                      each=None if each is None else own)
        self._note(task.name, dict(payload or {}), own, replies)
        missing = sorted(set(asked) - {reply.party for reply in replies})
        if missing:
            raise self._missing(task.name, missing, replies)
        return replies

    def ask_one(self, party: int, task: Task[S, R], payload: Mapping[str, object] | None = None, *,
                settings: S | None = None, check: Callable[[R, str], object] | None = None) -> R:
        """Ask one party; its answer."""
        return self.ask([party], task, payload, settings=settings, check=check).of(party)

    def refuse(self, task: AnyTask, party: int, cause: str) -> None:
        """End the step because of an answer that cannot be used, with the name of its party."""
        federation, name = self.federation, self.federation.name(party)
        federation.record("failure", {"round": federation.round, "task": task.name, "party": name, "cause": cause})
        message = f"party '{name}' failed in round {federation.round} at task '{task.name}': {cause}"
        if federation.rules.on_failure == "continue":
            raise PartyMissing(message)
        raise PartyError(message, party=name, round=federation.round, task=task.name, cause=cause,
                         remedy="fix the cause there, then resume with: tequio run --resume RUN")

    def close(self) -> None:
        """Put on record what was sent, and who waited how long for whom."""
        for (task, party), sent in self._sent.items():
            self.federation.record(MESSAGES, {
                "round": self.federation.round, "task": task, "party": self.federation.name(party),
                "role": self.roles.of(party), "times": sent.times, "bytes_down": sent.bytes_down,
                "bytes_up": sent.bytes_up, "seconds": sent.seconds, "waiting_seconds": sent.waiting,
                "down": sent.down, "up": sent.up})
        self._sent.clear()

    def _note(self, task: str, payload: Payload, each: Mapping[int, Payload], replies: Replies[Any]) -> None:
        slowest = max((reply.seconds for reply in replies), default=0.0)
        for party in self.roles.everyone:  # a party that is not asked, or is faster, waits
            self._sent.setdefault((task, party), _Sent()).waiting += slowest
        for reply in replies:
            sent = self._sent[task, reply.party]
            sent.times += 1
            sent.bytes_down += reply.bytes_down
            sent.bytes_up += reply.bytes_up
            sent.seconds += reply.seconds
            sent.waiting -= reply.seconds
            _add_fields(sent.down, {**payload, **each.get(reply.party, {})})
            _add_fields(sent.up, reply.payload)

    def _missing(self, task: str, missing: list[int], replies: Replies[R]) -> PartyMissing:
        causes = {failure.party: failure.cause for failure in replies.failures}
        named = ", ".join(f"'{self.federation.name(party)}' ({self.roles.of(party)}; "
                          f"{causes.get(party, 'gave no answer')})" for party in missing)
        return PartyMissing(f"task '{task}' of round {self.federation.round} cannot go on without party {named}",
                            remedy="every party is needed in every step; when it is back, resume with: tequio run "
                                   "--resume RUN, or set rules.on_failure = 'continue' to skip such rounds")


@contextmanager
def conversation(federation: Federation) -> Iterator[Conversation]:
    """A conversation that is put on record however it ends."""
    talk = Conversation(federation, roles_of(federation))
    try:
        yield talk
    finally:
        talk.close()


class _Field(TypedDict):
    """A field's kind, its largest shape, and how many numbers or bytes it held altogether."""

    kind: str
    shape: list[int]
    amount: int


@dataclass
class _Sent:
    """What went between the coordinator and one party for one task: how often, how much, of what kind."""

    times: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    down: dict[str, _Field] = field(default_factory=dict)
    up: dict[str, _Field] = field(default_factory=dict)


def _add_fields(known: dict[str, _Field], payload: Mapping[str, object], path: str = "") -> None:
    for name, value in payload.items():
        if isinstance(value, dict):
            _add_fields(known, value, f"{path}{name}/")
            continue
        kind, shape = _kind(value)
        seen = known.setdefault(path + name, {"kind": kind, "shape": shape, "amount": 0})
        seen["kind"], seen["shape"] = kind, max(seen["shape"], shape)
        seen["amount"] += int(np.prod(shape, dtype=np.int64))


def _kind(value: object) -> tuple[str, list[int]]:
    if isinstance(value, np.ndarray):
        return str(value.dtype), list(value.shape)
    if isinstance(value, bytes | str):
        return type(value).__name__, [len(value)]
    if isinstance(value, list | tuple):
        inner = _kind(value[0])[0] if value else "nothing"
        return f"list of {inner}", [len(value)]
    return type(value).__name__, []


UNKNOWN = "not described"
_REQUEST = {"part": "which part of the common rows is meant", "positions": "which common rows are in the batch",
            "step": "the number of the batch", "features": "the receiver's columns of rows of the coordinator's own",
            "target": "labels of rows of the coordinator's own"}
"""Fields that say to any task which rows it is about; see `rows.RowRequest`."""

_meanings: dict[tuple[str, str], str] = {}


def describe(task: AnyTask, **fields: str) -> None:
    """Say what the fields reveal that go to a party or come back from it when it is asked to do a task."""
    _meanings.update({(task.name, field): meaning for field, meaning in fields.items()})


def meaning_of(task: str, field: str) -> str:
    """What a field reveals; fields inside another (`gradients/1`) mean what that one does."""
    name = field.partition("/")[0]
    return _meanings.get((task, name)) or _REQUEST.get(name, UNKNOWN)
