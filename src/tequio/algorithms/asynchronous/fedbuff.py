"""Updates gather in a buffer; a full buffer changes the model.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: Federated learning with buffered asynchronous aggregation, AISTATS
2022. The paper weighs by 1 / sqrt(1 + staleness), which is the polynomial policy with slope 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt

from tequio.algorithms.asynchronous.flights import fly
from tequio.algorithms.asynchronous.staleness import Policy, Staleness
from tequio.algorithms.training import fresh_state
from tequio.federation.aggregation import Updates
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import shifted, zeros
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation


@register("algorithm", "fedbuff", paper="Nguyen et al., 2022")
@dataclass(frozen=True, kw_only=True)
class FedBuff(Algorithm):
    """Parties train all the time; whenever a few of them have answered, the mean of their changes moves the model.

    A round is one full buffer. Idle parties depart at random; the selector does not apply. Needs [devices].

    Parameters:
        concurrency: how many parties are under way at a time
        buffer: how many answers change the model
        coordinator_rate: factor on the mean change
        staleness: how an answer's weight falls with the number of rounds since its party departed
        slope: exponent of the polynomial, or slope of the hinge
        patience: rounds without loss under the hinge
    """

    concurrency: Annotated[int, Ge(1)] = 20
    buffer: Annotated[int, Ge(1)] = 10
    coordinator_rate: Annotated[float, Gt(0)] = 1.0
    staleness: Policy = "polynomial"
    slope: Annotated[float, Ge(0)] = 0.5
    patience: Annotated[float, Ge(0)] = 4.0

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Fill the buffer and apply it."""
        landed = fly(self, federation, state, concurrency=self.concurrency, arrivals=self.buffer)
        if not len(landed):
            return state.next(flights=landed.memory)
        weights = Staleness(self.staleness, self.slope, self.patience).weights(landed.staleness)
        # The weights shrink the changes; their mean is over the buffer, not over the weights.
        shrunk = [shifted(zeros(change), change, float(weight))
                  for change, weight in zip(landed.arrays, weights, strict=True)]
        mean = federation.topology.combine(Updates(landed.parties, shrunk, np.ones(len(landed))),
                                           self.parts.aggregator, state.memory.get("aggregator", {}))
        return state.next(shifted(state.model, mean.update, self.coordinator_rate), flights=landed.memory,
                          aggregator=mean.memory)
