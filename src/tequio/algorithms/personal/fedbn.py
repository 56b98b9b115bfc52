"""FedBN: batch normalisation stays at the party.

Li, Jiang, Zhang, Kamp, Dou: FedBN: federated learning on non-IID features via local batch normalization, ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tequio.algorithms.personal.averaging import Personal, collected
from tequio.algorithms.personal.fedper import train_whole
from tequio.algorithms.personal.parts_of_models import INFERENCE, average_shared, batch_normalisation
from tequio.algorithms.training import Weights, fresh_state, training_settings
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation


@register("algorithm", "fedbn", paper="Li et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedBN(Personal):
    """Federated averaging of all but batch normalisation, whose parameters and statistics each party keeps.

    Parameters:
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the shared layers and the party's own normalisation."""
        return INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model, which must have batch normalisation."""
        state = fresh_state(self, federation)
        batch_normalisation(state.model)
        return state

    def round(self, federation: Federation, state: State) -> State:
        """Train the whole model; average what is shared."""
        private = batch_normalisation(state.model)
        chosen, replies = collected(self, federation, state, train_whole, private=list(private))
        return average_shared(self, federation, state, chosen, replies, private, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once and keeps its normalisation."""
        settings = training_settings(self, private=list(batch_normalisation(state.model)))
        federation.ask(parties, train_whole, {"model": state.model}, settings=settings)
