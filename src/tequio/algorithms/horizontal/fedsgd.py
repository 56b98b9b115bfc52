"""Federated stochastic gradient descent.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017 (FederatedSGD, the case E = 1 and B = infinity of federated averaging).

Each party takes its step itself and sends the change, -learning rate * gradient; weighted by rows, the mean of these is
the step on the pooled rows of the cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tequio.algorithms.training import Weights, fresh_state, party_weights, require_gradients, train
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.learners.learner import LocalTraining


@register("algorithm", "fedsgd", paper="McMahan et al., 2017")
@dataclass(frozen=True, kw_only=True)
class FedSGD(Algorithm):
    """One gradient step a round, on all rows of the chosen parties.

    Of the local training settings learning_rate, decay, weight_decay and clip_norm (of each party's gradient) apply.

    Parameters:
        weights: weigh each party by its number of training rows (size: as if pooled), or all alike (uniform)
    """

    sums_only = True

    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_gradients(self, "fedsgd")
        return fresh_state(self, federation)

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean."""
        return Crossing(by_rows=self.weights == "size", local=one_step(self.parts.local))

    def round(self, federation: Federation, state: State) -> State:
        """Select, take one step each, average."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train, {"model": state.model},
                                 settings={"learner": self.learner, "local": one_step(self.parts.local)},
                                 stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        mean = self.aggregate(federation, state, replies, weights=party_weights(replies, self.weights))
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update), mean)


def one_step(local: LocalTraining) -> LocalTraining:
    """The same training cut down to a single plain step on all rows, in stored order."""
    return replace(local, epochs=1, steps=0, batch=0, optimizer="sgd", momentum=0.0, shuffle=False)
