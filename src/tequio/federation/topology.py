"""Topologies: who may talk to whom, and who aggregates whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.aggregation import Aggregator, Combined, Updates
    from tequio.federation.payload import Payload


@runtime_checkable
class Topology(Protocol):
    """Who may talk to whom."""

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """Bring the cohort's updates together along this topology."""
        ...


@register("topology", "client-server")
@dataclass(frozen=True)
class ClientServer:
    """One coordinator that hands out the model and aggregates all replies itself."""

    def combine(self, updates: Updates, aggregator: Aggregator, memory: Payload) -> Combined:
        """One aggregation over the whole cohort."""
        return aggregator.combine(updates, memory)
