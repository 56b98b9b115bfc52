"""Ditto: a personal model beside the global one, tied to it.

Li, Hu, Beirami, Smith: Ditto: fair and robust federated learning through personalization, ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.personal.averaging import Epochs, Personal, averaged, collected, with_epochs
from tequio.algorithms.personal.inference import by_model, own_or_received
from tequio.algorithms.training import (
    Weights,
    fresh_state,
    job_from,
    require_gradients,
    training_settings,
    training_task,
    update_of,
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


@register("algorithm", "ditto", paper="Li et al., 2021")
@dataclass(frozen=True, kw_only=True)
class Ditto(Personal):
    """Federated averaging; beside it each party trains a model of its own that is pulled towards the global one.

    Parameters:
        pull: strength lambda of the pull lambda/2 ||v - w||^2 on the personal model
        personal_epochs: epochs of the personal model a round (0: those of `local`)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    pull: Annotated[float, Ge(0)] = 1.0
    personal_epochs: Epochs = 0
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the personal model."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_gradients(self, "ditto")
        return fresh_state(self, federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train the received model for everybody, and the party's own for itself."""
        chosen, replies = collected(self, federation, state, train_both, pull=self.pull,
                                    second=with_epochs(self.parts.local, self.personal_epochs))
        return averaged(self, federation, state, chosen, replies, self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains a personal model once."""
        local = with_epochs(self.parts.local, self.personal_epochs)
        federation.ask(parties, train_own_near, {"model": state.model},
                       settings={**training_settings(self, pull=self.pull), "local": local})


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, payload["model"])


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    return update_of(payload, result)


def _own_job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    correction = Correction(pull=settings["pull"], anchor=payload["model"]) if settings["pull"] else None
    return job_from(party, own_or_received(party, payload, settings), correction, "personal")


def _keep(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    party.state["own_model"] = result.model
    return {"personal_loss": result.loss}


train_both = training_task("ditto.train", _job, _reply, (_own_job, _keep))
train_own_near = training_task("ditto.welcome", _own_job, _keep)
_INFERENCE = by_model("ditto", own_or_received)
