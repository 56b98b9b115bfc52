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
    Phase,
    ProximalSettings,
    UpdateReply,
    proximal_job,
    training_task,
    update_reply,
    updates_of,
)
from tequio.federation.algorithm import part
from tequio.federation.averaging import Averaging, Weights, averaging_round
from tequio.learners.learner import GradientLearner
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Disclosure, State
    from tequio.federation.federation import Federation


@register("algorithm", "fedprox", paper="Li et al., 2020")
@dataclass(frozen=True, kw_only=True)
class FedProx(Averaging):
    """Federated averaging in which a proximal term keeps each party near the model it received.

    Parameters:
        proximal: strength mu of the term mu/2 ||w - w_received||^2 (0: federated averaging)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    learner: GradientLearner = part()
    proximal: Annotated[float, Ge(0)] = 0.01
    weights: Weights = "size"

    def disclosure(self, schema: Schema) -> Disclosure:
        """The change of the model, as a mean."""
        return self.discloses(schema, by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Select, train near the received model, average."""
        settings = ProximalSettings(learner=self.learner, local=self.local, proximal=self.proximal)
        return averaging_round(self, federation, state, train_near, settings, weights=self.weights)


train_near = training_task("fedprox.train", ProximalSettings, UpdateReply, Phase(proximal_job, update_reply),
                           replies=updates_of, by_training=True)
