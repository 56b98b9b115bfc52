"""Peers without a coordinator: everyone is party, aggregator and coordinator of their own model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from tequio.errors import PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.roles import Cast, Role
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Aggregator, Combined, Updates
    from tequio.federation.payload import Payload

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
