"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017.

Parties send the change of the model rather than the model; the mean is the same, and stages that clip, noise or
compress see something small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from tequio.algorithms.training import (
    Weights,
    fresh_state,
    party_weights,
    starting_model,
    train,
    training_settings,
)
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.evaluation import tally_here
from tequio.federation.models import shifted
from tequio.federation.task import task
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Tally


@register("algorithm", "fedavg", paper="McMahan et al., 2017")
@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm):
    """Parties train the model they received; the coordinator takes the mean of their changes.

    Parameters:
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
        mix: share of the global model in a party's next starting point; below 1 parties keep part of their own
    """

    sums_only = True

    weights: Weights = "size"
    mix: Annotated[float, Interval(gt=0, le=1)] = 1.0

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        return fresh_state(self, federation)

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train, {"model": state.model},
                                 settings=training_settings(self, mix=self.mix), stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        mean = self.aggregate(federation, state, replies, weights=party_weights(replies, self.weights))
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update), mean)

    def evaluate(self, federation: Federation, state: State, part: str, parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of the model it would start its next round from: the global one, or its own mix."""
        if self.mix == 1:
            return super().evaluate(federation, state, part, parties)
        replies = federation.ask(parties, evaluate_mix, {"model": state.model},
                                 settings={"learner": self.learner, "part": part, "mix": self.mix})
        return {reply.party: reply.payload for reply in replies if reply.payload}


@task("evaluate mixed model")
def evaluate_mix(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Tally the mix of the received model and the party's own."""
    return tally_here(party, starting_model(party, payload["model"], settings), settings)
