"""Aggregators between the parties and the coordinator.

Bonawitz et al.: Towards federated learning at scale: system design, MLSys 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from tequio.components import name_of
from tequio.errors import ConfigError
from tequio.federation import payload as payloads
from tequio.federation.aggregation import SUMMED, Combined, Updates
from tequio.federation.roles import Cast, Role
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.aggregation import Aggregator
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays


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
