"""Roles, and what may flow from one to another.

| from        | to          | flow     |                                                            |
|-------------|-------------|----------|------------------------------------------------------------|
| coordinator | party       | deploy   | hand out a model, or say what to do                        |
| aggregator  | party       | collect  | ask for what the party made; the party's answer is part of it |
| aggregator  | coordinator | hand over| give the aggregate                                         |
| peer        | peer        | exchange | send a model unasked; both hold all three roles            |

Nothing else may flow: a party starts no message of its own, a coordinator that is no aggregator cannot collect, and no
flow at all reads rows. Whoever holds several roles may do what any of them may.

Topologies: who may talk to whom, and who aggregates whom. `topologies/` holds those besides client-server.

Aggregators between the parties and the coordinator.

Bonawitz et al.: Towards federated learning at scale: system design, MLSys 2019.

Peers without a coordinator: everyone is party, aggregator and coordinator of their own model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, Flag, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge

from tequio.errors import ConfigError, PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.aggregation import SUMMED, Combined, Updates
from tequio.registry import name_of, register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Aggregator, Combined
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays



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


@runtime_checkable
class Topology(Protocol):
    """Who may talk to whom. `cast` says who plays which role; every ask is checked against it."""

    cast: Cast

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """Bring the cohort's updates together along this topology."""
        ...


@runtime_checkable
class PeerTopology(Topology, Protocol):
    """Peers that send their models to each other."""

    def links(self, peers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """The messages of a round: one row (sender, receiver) each, ordered by receiver and then by sender."""
        ...


@register("topology", "client-server")
@dataclass(frozen=True)
class ClientServer:
    """One coordinator that hands out the model and aggregates all replies itself."""

    cast = Cast()

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """One aggregation over the whole cohort."""
        return aggregator.combine(updates, memory)


@register("topology", "hierarchical", paper="Bonawitz et al., 2019")
@dataclass(frozen=True)
class Hierarchical:
    """Several aggregators each collect from their own parties, and the coordinator merges what they hand over.

    Party number i belongs to aggregator i modulo `aggregators`. Aggregates stay in double precision until they are
    merged, so that a weighted mean is the same as with one aggregator.

    Parameters:
        aggregators: how many stand between the parties and the coordinator
        allow_nonlinear: also carry aggregators, such as a median, whose result this topology changes
    """

    aggregators: Annotated[int, Ge(1)] = 2
    allow_nonlinear: bool = False

    cast = Cast(deployer=Role.COORDINATOR, collector=Role.AGGREGATOR)

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """Aggregate each group, then the groups; the notes say what the way from aggregators to coordinator costs."""
        self.check(aggregator)
        if updates.parties.tolist() == [SUMMED]:  # the aggregators have done their part
            return aggregator.combine(updates, memory)
        wide = replace(updates, arrays=[in_doubles(update) for update in updates.arrays])
        groups = [wide.part(positions) for positions in self.groups(updates.parties)]
        aggregates = [aggregator.combine(group, memory).update for group in groups]
        weights = np.array([group.weights.sum() for group in groups])
        merged = aggregator.combine(Updates(np.arange(len(groups)), aggregates, weights), memory)
        sent = sum(payloads.size({"update": aggregate, "weight": float(weight)})
                   for aggregate, weight in zip(aggregates, weights, strict=True))
        hops = {"aggregators": len(groups), "messages": len(groups), "bytes": sent}
        return replace(merged, update=in_types_of(updates.arrays[0], merged.update),
                       notes={**merged.notes, "hierarchy": hops})

    def check(self, aggregator: Aggregator) -> None:
        """Refuse an aggregator that would give another result in groups than over the whole cohort."""
        if not aggregator.linear and not self.allow_nonlinear:
            raise ConfigError(f"the aggregator '{name_of(type(aggregator))}' is not linear: aggregating in groups "
                              "changes its result", remedy="use topology 'client-server', or set "
                                                           "topology.allow_nonlinear = true if that is what you want")

    def groups(self, parties: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Positions in the cohort that each aggregator collects from; aggregators without parties are left out."""
        owner = parties % self.aggregators
        return [np.flatnonzero(owner == aggregator) for aggregator in np.unique(owner)]


def in_doubles(update: Arrays) -> Arrays:
    """The same values in double precision."""
    return {name: values.astype(np.float64) for name, values in update.items()}


def in_types_of(like: Arrays, update: Arrays) -> Arrays:
    """The update in the float types of another; whole numbers stay doubles, as in a weighted mean."""
    return {name: values.astype(like[name].dtype) if like[name].dtype.kind == "f" else values
            for name, values in update.items()}


PEERS = Cast(Role.PEER, Role.PEER, Role.PEER)


@register("topology", "parallel")
@dataclass(frozen=True)
class Parallel:
    """Every peer sends to every other: a full mesh of n(n-1) messages a round."""

    cast = PEERS

    def links(self, peers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """All ordered pairs."""
        count = len(peers)
        pairs = np.stack([np.tile(peers, count), np.repeat(peers, count)], axis=1)
        links: NDArray[np.int64] = pairs[pairs[:, 0] != pairs[:, 1]]
        return links

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """What each peer makes of all updates, which is the same at every peer."""
        combined = aggregator.combine(updates, memory)
        others = len(updates) - 1
        sent = others * sum(payloads.size({"update": update}) for update in updates.arrays)
        return replace(combined, notes={**combined.notes, "mesh": {"messages": len(updates) * others, "bytes": sent}})


@register("topology", "random")
@dataclass(frozen=True)
class RandomPeers:
    """Every peer draws some others each round; whoever is drawn answers with a model of its own.

    Parameters:
        neighbours: how many others each peer draws
    """

    neighbours: Annotated[int, Ge(1)] = 2

    cast = PEERS

    def links(self, peers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """The drawn pairs, in both directions."""
        count = len(peers)
        linked = np.zeros((count, count), dtype=bool)
        for peer in range(count):
            others = np.delete(np.arange(count), peer)
            linked[peer, rng.choice(others, size=min(self.neighbours, count - 1), replace=False)] = True
        receivers, senders = np.nonzero(linked | linked.T)
        return np.stack([peers[senders], peers[receivers]], axis=1)

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """Nobody can."""
        raise _nobody_has_all("random")


@register("topology", "cyclic", paper="Chang et al., 2018")
@dataclass(frozen=True)
class Cyclic:
    """A ring: every peer sends to the next one only.

    Parameters:
        shuffle: deal the places on the ring anew every round, instead of in the order of the parties
    """

    shuffle: bool = False

    cast = PEERS

    def route(self, peers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """The peers in the order in which the ring visits them."""
        return rng.permutation(peers) if self.shuffle else peers

    def links(self, peers: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """From each to the next, and from the last to the first."""
        if len(peers) < 2:
            return np.empty((0, 2), dtype=np.int64)
        order = self.route(peers, rng)
        pairs = np.stack([order, np.roll(order, -1)], axis=1)
        return pairs[np.argsort(pairs[:, 1])]

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """Nobody can."""
        raise _nobody_has_all("cyclic")


def _nobody_has_all(topology: str) -> PermissionDenied:
    return PermissionDenied(f"in the topology '{topology}' nobody receives the updates of all parties, so nobody can "
                            "aggregate them", remedy="use the algorithm 'gossip', or the topology 'client-server'")
