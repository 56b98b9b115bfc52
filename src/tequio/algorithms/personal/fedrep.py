"""FedRep: a shared representation and personal heads, trained in turns.

Collins, Hassani, Mokhtari, Shakkottai: Exploiting shared representations for personalized federated learning,
ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.personal.averaging import Epochs, Personal, collected, with_epochs
from tequio.algorithms.personal.parts_of_models import INFERENCE, average_shared, keep_own_part, last_layers, whole
from tequio.algorithms.training import (
    Weights,
    fresh_state,
    job_from,
    require_gradients,
    training_settings,
    training_task,
)
from tequio.learners.learner import Correction
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Job, Trained


@register("algorithm", "fedrep", paper="Collins et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedRep(Personal):
    """Each party first trains its own last layers, then the shared ones below them; only those are averaged.

    Parameters:
        layers: how many of the last layers are personal
        head_epochs: epochs of the personal layers a round (0: those of `local`)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    layers: Annotated[int, Ge(1)] = 1
    head_epochs: Epochs = 0
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the shared layers and the party's own."""
        return INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_gradients(self, "fedrep")
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Heads first, then the representation; average the representation."""
        private = last_layers(state.model, self.layers)
        chosen, replies = collected(self, federation, state, train_in_turns, private=list(private),
                                    second=self.parts.local,
                                    local=with_epochs(self.parts.local, self.head_epochs))
        return average_shared(self, federation, state, chosen, replies, private, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains a head on the representation as it is."""
        settings = training_settings(self, private=list(last_layers(state.model, self.layers)))
        federation.ask(parties, train_head, {"model": state.model},
                       settings={**settings, "local": with_epochs(self.parts.local, self.head_epochs)})


def _head_job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    shared = tuple(name for name in payload["model"] if name not in settings["private"])
    return job_from(party, whole(party, payload, settings), Correction(frozen=shared), "personal")


def _keep_head(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    party.state["own_part"] = {name: result.model[name] for name in settings["private"]}
    return {"personal_loss": result.loss}


def _body_job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, whole(party, payload, settings), Correction(frozen=tuple(settings["private"])))


train_in_turns = training_task("fedrep.train", _head_job, _keep_head, (_body_job, keep_own_part))
train_head = training_task("fedrep.welcome", _head_job, _keep_head)
