"""The asks of one round of a vertical algorithm: everyone must answer, and who saw what is put on record.

Every message passes through the coordinator: what one party tells another is a reply to the coordinator first, and then
a payload of the next ask. The record names the fields of each message, not their values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PartyError, QuorumError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tequio.algorithms.vertical.roles import Roles
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.task import Task

MESSAGES = "messages"
"""The kind of event that tells what was said in a round, one a task and party."""


class PartyMissing(QuorumError):
    """A step of a vertical algorithm cannot go on, because a party did not answer."""


@dataclass
class _Said:
    """What went between the coordinator and one party for one task: how often, how much, of what kind."""

    times: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    down: dict[str, dict[str, Any]] = field(default_factory=dict)
    up: dict[str, dict[str, Any]] = field(default_factory=dict)


class Conversation:
    """Asks parties, insists on every answer, and keeps the record; `close` writes it as events of the run."""

    def __init__(self, federation: Federation, roles: Roles) -> None:
        # Whether enough parties answered is judged here, where those who did not are named.
        self.federation = replace(federation, rules=replace(federation.rules, quorum=0.0))
        self.roles = roles
        self._said: dict[tuple[str, int], _Said] = {}

    def ask(self, parties: Iterable[int], task: Task, payload: Payload | None = None, *,
            each: Mapping[int, Payload] | None = None, settings: Mapping[str, Any] | None = None,
            check: Callable[[Payload, str], object] | None = None) -> Replies:
        """Ask parties at once; all of them answer, or the step ends with an error that names those who did not."""
        asked = sorted(parties)
        replies = self.federation.ask(asked, task, payload, settings=settings, each=each, check=check)
        self._note(task.name, payload or {}, each or {}, replies)
        missing = sorted(set(asked) - {reply.party for reply in replies})
        if missing:
            raise self._missing(task.name, missing, replies)
        return replies

    def tell(self, party: int, task: Task, payload: Payload | None = None, *,
             settings: Mapping[str, Any] | None = None, check: Callable[[Payload, str], object] | None = None,
             ) -> Payload:
        """Ask one party; its answer."""
        return self.ask([party], task, payload, settings=settings, check=check).of(party)

    def refuse(self, task: Task, party: int, cause: str) -> None:
        """End the step because of an answer that cannot be used, with the name of its party."""
        federation, name = self.federation, self.federation.name(party)
        federation.record("failure", {"round": federation.round, "task": task.name, "party": name, "cause": cause})
        message = f"party '{name}' failed in round {federation.round} at task '{task.name}': {cause}"
        if federation.rules.on_failure == "continue":
            raise PartyMissing(message)
        raise PartyError(message, party=name, round=federation.round, task=task.name, cause=cause,
                         remedy="mend the cause there, then go on with: tequio run --resume RUN")

    def close(self) -> None:
        """Put on record what was said, and who waited how long for whom."""
        for (task, party), said in self._said.items():
            self.federation.record(MESSAGES, {
                "round": self.federation.round, "task": task, "party": self.federation.name(party),
                "role": self.roles.of(party), "times": said.times, "bytes_down": said.bytes_down,
                "bytes_up": said.bytes_up, "seconds": said.seconds, "waiting_seconds": said.waiting,
                "down": said.down, "up": said.up})
        self._said.clear()

    def _note(self, task: str, payload: Payload, each: Mapping[int, Payload], replies: Replies) -> None:
        slowest = max((reply.seconds for reply in replies), default=0.0)
        for party in self.roles.everyone:  # whoever is not asked, or is faster, waits
            self._said.setdefault((task, party), _Said()).waiting += slowest
        for reply in replies:
            said = self._said[task, reply.party]
            said.times += 1
            said.bytes_down += reply.bytes_down
            said.bytes_up += reply.bytes_up
            said.seconds += reply.seconds
            said.waiting -= reply.seconds
            _add_fields(said.down, {**payload, **each.get(reply.party, {})})
            _add_fields(said.up, reply.payload)

    def _missing(self, task: str, missing: list[int], replies: Replies) -> PartyMissing:
        causes = {failure.party: failure.cause for failure in replies.failures}
        named = ", ".join(f"'{self.federation.name(party)}' ({self.roles.of(party)}; "
                          f"{causes.get(party, 'gave no answer')})" for party in missing)
        return PartyMissing(f"task '{task}' of round {self.federation.round} cannot go on without party {named}",
                            remedy="every party is needed in every step; when it is back, go on with: tequio run "
                                   "--resume RUN, or set rules.on_failure = 'continue' to let such rounds rest")


def _add_fields(known: dict[str, dict[str, Any]], payload: Payload, path: str = "") -> None:
    """Note each field's kind, its largest shape, and how many numbers or bytes it held altogether."""
    for name, value in payload.items():
        if isinstance(value, dict):
            _add_fields(known, value, f"{path}{name}/")
            continue
        kind, shape = _kind(value)
        seen = known.setdefault(path + name, {"kind": kind, "shape": shape, "amount": 0})
        seen["kind"], seen["shape"] = kind, max(seen["shape"], shape)
        seen["amount"] += int(np.prod(shape, dtype=np.int64))


def _kind(value: Any) -> tuple[str, list[int]]:
    if isinstance(value, np.ndarray):
        return str(value.dtype), list(value.shape)
    if isinstance(value, bytes | str):
        return type(value).__name__, [len(value)]
    if isinstance(value, list | tuple):
        inner = _kind(value[0])[0] if value else "nothing"
        return f"list of {inner}", [len(value)]
    return type(value).__name__, []
