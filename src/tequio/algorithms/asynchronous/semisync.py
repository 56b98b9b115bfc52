"""Between synchronous and asynchronous: the model changes at fixed intervals, by whatever has arrived.

As in Wu, He, Lin, Mao, Maple, Jarvis: SAFA, a semi-asynchronous protocol for fast federated learning with low overhead,
IEEE Transactions on Computers 2021, nobody's work is thrown away for being late: it counts in the period in which it
arrives, for less. Unlike SAFA, parties keep no cache of their own at the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from tequio.algorithms.asynchronous.flights import fly
from tequio.algorithms.asynchronous.staleness import Policy, Staleness
from tequio.algorithms.training import Weights, fresh_state
from tequio.federation.aggregation import Updates
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation


@register("algorithm", "semisync", paper="Wu et al., 2021")
@dataclass(frozen=True, kw_only=True)
class SemiSynchronous(Algorithm):
    """The model changes once a period by the weighted mean of the changes that arrived in it, fresh or old.

    A round is one period. Idle parties depart at random; the selector does not apply. Needs [devices].

    Parameters:
        concurrency: how many parties are under way at a time
        period: virtual seconds from one change of the model to the next
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
        staleness: how an answer's weight falls with the number of rounds since its party departed
        slope: exponent of the polynomial, or slope of the hinge
        patience: rounds without loss under the hinge
    """

    concurrency: Annotated[int, Ge(1)] = 20
    period: Annotated[float, Gt(0)] = 60.0
    weights: Weights = "size"
    staleness: Policy = "polynomial"
    slope: Annotated[float, Ge(0)] = 0.5
    patience: Annotated[float, Ge(0)] = 4.0

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Let a period pass and average what arrived."""
        landed = fly(self, federation, state, concurrency=self.concurrency, period=self.period)
        if not len(landed):
            return state.next(flights=landed.memory)
        fresh = Staleness(self.staleness, self.slope, self.patience).weights(landed.staleness)
        weights = fresh * landed.rows if self.weights == "size" else fresh
        mean = federation.topology.combine(Updates(landed.parties, landed.arrays, weights), self.parts.aggregator,
                                           state.memory.get("aggregator", {}))
        return state.next(shifted(state.model, mean.update), flights=landed.memory, aggregator=mean.memory)
