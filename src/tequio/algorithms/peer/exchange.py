"""Messages between peers: who may send them, what they carry, and how a peer weighs what it hears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.components import name_of
from tequio.errors import ConfigError
from tequio.federation import payload as payloads
from tequio.federation.roles import Flow, require
from tequio.federation.topology import PeerTopology

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload

MixingRule = Literal["size", "uniform", "metropolis"]
"""Weigh models by their training rows, all alike, or so that the mean of all peers' models is kept on any graph."""


def peer_topology(federation: Federation) -> PeerTopology:
    """The federation's topology, if its parties are peers that may exchange models."""
    topology = federation.topology
    if not isinstance(topology, PeerTopology):
        raise ConfigError(f"peers cannot send models to each other in the topology '{name_of(type(topology))}'",
                          remedy="set topology.name = 'parallel', 'random' or 'cyclic'")
    require(topology.cast.party, topology.cast.party, Flow.EXCHANGE)
    return topology


def relayed(links: NDArray[np.int64], messages: Mapping[int, Payload]) -> dict[int, Payload]:
    """What each receiver hears: the messages of its senders, in party order, each with how many the sender hears."""
    hears = dict(zip(*(counts.tolist() for counts in np.unique(links[:, 1], return_counts=True)), strict=True))
    heard: dict[int, Payload] = {party: {"neighbours": hears.get(party, 0), "messages": []} for party in messages}
    for sender, receiver in links.tolist():
        message = {"sender": sender, "neighbours": hears.get(sender, 0), **messages[sender]}
        heard[receiver]["messages"].append(message)
    return heard


def record_exchange(federation: Federation, heard: Mapping[int, Payload]) -> None:
    """Note how many messages went from peer to peer, and their exact bytes."""
    messages = [message for payload in heard.values() for message in payload["messages"]]
    federation.record("peers", {"round": federation.round, "messages": len(messages),
                                "bytes": sum(payloads.size(message) for message in messages)})


def mixing_weights(rule: MixingRule, rows: ArrayLike, neighbours: ArrayLike, own: int) -> NDArray[np.float64]:
    """Weights of the models at one peer, whose own is at position `own`; `neighbours` is how many each one hears."""
    if rule == "size":
        return np.asarray(rows, dtype=np.float64)
    degrees = np.asarray(neighbours, dtype=np.float64)
    if rule == "uniform":
        return np.ones(len(degrees))
    weights: NDArray[np.float64] = 1.0 / (1.0 + np.maximum(degrees, degrees[own]))
    weights[own] = 0.0
    weights[own] = 1.0 - weights.sum()
    return weights
