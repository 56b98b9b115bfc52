"""Every update changes the model as soon as it arrives.

Xie, Koyejo, Gupta: Asynchronous federated optimization, OPT 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Interval

from tequio.algorithms.asynchronous.flights import fly
from tequio.algorithms.asynchronous.staleness import Policy, Staleness
from tequio.algorithms.training import fresh_state
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.models import mixed
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.federation import Federation


@register("algorithm", "fedasync", paper="Xie et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FedAsync(Algorithm):
    """A model that arrives is mixed into the global one at once, the less the older the model it was made from.

    A round is one arrival. Idle parties depart at random; selector and aggregator do not apply. Needs [devices].

    Parameters:
        concurrency: how many parties are under way at a time
        mixing: share of an arriving model that is fresh
        staleness: how the share falls with the number of rounds since the party departed
        slope: exponent of the polynomial, or slope of the hinge
        patience: rounds without loss under the hinge
    """

    concurrency: Annotated[int, Ge(1)] = 10
    mixing: Annotated[float, Interval(gt=0, le=1)] = 0.6
    staleness: Policy = "polynomial"
    slope: Annotated[float, Ge(0)] = 0.5
    patience: Annotated[float, Ge(0)] = 4.0

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Wait for one arrival and mix it in."""
        landed = fly(self, federation, state, concurrency=self.concurrency, arrivals=1, whole=True)
        shares = self.mixing * Staleness(self.staleness, self.slope, self.patience).weights(landed.staleness)
        model = state.model
        for arrived, share in zip(landed.arrays, shares, strict=True):
            model = mixed(model, arrived, float(share))
        return state.next(model, flights=landed.memory)
