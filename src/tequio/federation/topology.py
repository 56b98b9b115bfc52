"""Topologies: who may talk to whom, and who aggregates whom. `topologies/` holds those besides client-server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tequio.federation.roles import Cast
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Aggregator, Combined, Updates
    from tequio.federation.payload import Payload


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
