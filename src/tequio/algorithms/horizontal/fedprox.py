"""Federated averaging with a proximal term.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated optimization in heterogeneous networks, MLSys 2020.

The paper draws parties in proportion to their size and averages them evenly; here, as in the other algorithms of this
family, the selector draws and the mean is weighted, which has the same expectation. A party that can do less work
has its own `epochs`: its partial work counts like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from tequio.algorithms.training import (
    Weights,
    fresh_state,
    party_weights,
    require_gradients,
    train,
    training_settings,
)
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation


@register("algorithm", "fedprox", paper="Li et al., 2020")
@dataclass(frozen=True, kw_only=True)
class FedProx(Algorithm):
    """Federated averaging in which a proximal term keeps each party near the model it received.

    Parameters:
        proximal: strength mu of the term mu/2 ||w - w_received||^2 (0: federated averaging)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    proximal: Annotated[float, Ge(0)] = 0.01
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        if self.proximal:
            require_gradients(self, "fedprox")
        return fresh_state(self, federation)

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Select, train near the received model, average."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train, {"model": state.model},
                                 settings=training_settings(self, proximal=self.proximal), stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        mean = self.aggregate(federation, state, replies, weights=party_weights(replies, self.weights))
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update), mean)
