"""Roles, and what may flow from one to another.

| from        | to          | flow     |                                                            |
|-------------|-------------|----------|------------------------------------------------------------|
| coordinator | party       | deploy   | hand out a model, or say what to do                        |
| aggregator  | party       | collect  | ask for what the party made; the party's answer is part of it |
| aggregator  | coordinator | hand over| give the aggregate                                         |
| peer        | peer        | exchange | send a model unasked; both hold all three roles            |

Nothing else may flow: a party starts no message of its own, a coordinator that is no aggregator cannot collect, and no
flow at all reads rows. Whoever holds several roles may do what any of them may.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import lru_cache

from tequio.errors import PermissionDenied


class Role(Flag):
    """What someone in a federation is; roles may be combined with `|`."""

    PARTY = auto()
    AGGREGATOR = auto()
    COORDINATOR = auto()
    CENTRE = COORDINATOR | AGGREGATOR
    PEER = PARTY | AGGREGATOR | COORDINATOR

    @property
    def words(self) -> str:
        """The role in words: "coordinator and aggregator"."""
        return " and ".join(str(part.name).lower() for part in reversed(list(self))) or "nobody"


class Flow(Enum):
    """A kind of message, named by what its sender does."""

    DEPLOY = "deploy to"
    COLLECT = "collect from"
    HAND_OVER = "hand over to"
    EXCHANGE = "exchange with"


_ALLOWED = {
    Flow.DEPLOY: (Role.COORDINATOR, Role.PARTY),
    Flow.COLLECT: (Role.AGGREGATOR, Role.PARTY),
    Flow.HAND_OVER: (Role.AGGREGATOR, Role.COORDINATOR),
    Flow.EXCHANGE: (Role.PEER, Role.PEER),
}


def may(sender: Role, receiver: Role, flow: Flow) -> bool:
    """Whether that may flow: both sides hold at least the roles that the table asks for."""
    needed_sender, needed_receiver = _ALLOWED[flow]
    return needed_sender in sender and needed_receiver in receiver


def require(sender: Role, receiver: Role, flow: Flow) -> None:
    """Refuse what may not flow."""
    if not may(sender, receiver, flow):
        needed_sender, needed_receiver = _ALLOWED[flow]
        raise PermissionDenied(f"the role '{sender.words}' may not {flow.value} '{receiver.words}'",
                               remedy=f"only '{needed_sender.words}' may {flow.value} '{needed_receiver.words}'")


@dataclass(frozen=True)
class Cast:
    """Who plays what in a topology: who hands tasks to parties, who collects their answers, and what a party is."""

    deployer: Role = Role.CENTRE
    collector: Role = Role.CENTRE
    party: Role = Role.PARTY


@lru_cache(maxsize=64)
def require_ask(cast: Cast) -> None:
    """Refuse to ask parties in a topology whose cast may not: an ask deploys a task and collects its answers."""
    require(cast.deployer, cast.party, Flow.DEPLOY)
    require(cast.collector, cast.party, Flow.COLLECT)
