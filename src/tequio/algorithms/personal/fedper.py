"""FedPer: the last layers stay at the party.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated learning with personalization layers, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.personal.averaging import Personal, collected
from tequio.algorithms.personal.parts_of_models import (
    INFERENCE,
    average_shared,
    keep_own_part,
    last_layers,
    whole_job,
)
from tequio.algorithms.training import Weights, training_settings, training_task
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation


@register("algorithm", "fedper", paper="Arivazhagan et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FedPer(Personal):
    """Federated averaging of all layers but the last, which each party keeps for itself.

    Parameters:
        layers: how many of the last layers are personal
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    layers: Annotated[int, Ge(1)] = 1
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the shared layers and the party's own."""
        return INFERENCE

    def round(self, federation: Federation, state: State) -> State:
        """Train the whole model; average what is shared."""
        private = last_layers(state.model, self.layers)
        chosen, replies = collected(self, federation, state, train_whole, private=list(private))
        return average_shared(self, federation, state, chosen, replies, private, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once and keeps its own layers."""
        settings = training_settings(self, private=list(last_layers(state.model, self.layers)))
        federation.ask(parties, train_whole, {"model": state.model}, settings=settings)


train_whole = training_task("own part.train", whole_job, keep_own_part)
"""Train shared and own part together; also what FedBN does."""
