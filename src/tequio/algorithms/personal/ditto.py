"""Ditto: a personal model beside the global one, tied to it.

Li, Hu, Beirami, Smith: Ditto: fair and robust federated learning through personalization, ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypedDict

from annotated_types import Ge

from tequio.algorithms.personal.answering import (
    Epochs,
    Inference,
    Personal,
    by_model,
    own_or_received,
    personal_round,
    with_epochs,
)
from tequio.algorithms.training import Phase, UpdateReply, job_from, received_job, training_task, update_reply
from tequio.federation.algorithm import part
from tequio.federation.averaging import Weights
from tequio.federation.evaluation import EvaluateSettings, OwnModel
from tequio.federation.task import Reveals, TrainSettings, record
from tequio.learners.learner import Correction, GradientLearner, LocalTraining
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.algorithms.training import ModelPayload
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
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

    learner: GradientLearner = part()
    pull: Annotated[float, Ge(0)] = 1.0
    personal_epochs: Epochs = 0
    weights: Weights = "size"

    @property
    def inference(self) -> Inference:
        """By the personal model."""
        return _INFERENCE

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The training of the personal model."""
        return (with_epochs(self.local, self.personal_epochs),)

    def round(self, federation: Federation, state: State) -> State:
        """Train the received model for everybody, and the party's own for itself."""
        return personal_round(self, federation, state, train_both, self._settings(), weights=self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains a personal model once."""
        federation.ask(parties, train_own_near, {"model": state.model}, settings=self._settings())

    def _settings(self) -> DittoSettings:
        return DittoSettings(learner=self.learner, local=self.local, pull=self.pull,
                             personal=with_epochs(self.local, self.personal_epochs))


@record
class DittoSettings(TrainSettings):
    """How the personal model is trained, and how strongly it is pulled."""

    pull: float
    personal: LocalTraining


class PersonalLoss(TypedDict):
    """The loss of a model that stays at the party."""

    personal_loss: float


class DittoReply(UpdateReply, PersonalLoss):
    """How the received model changed, and the loss of the personal one."""


def _own_job(party: Party, payload: ModelPayload, settings: DittoSettings) -> Job:
    correction = Correction(pull=settings.pull, anchor=payload["model"]) if settings.pull else None
    return job_from(party, own_or_received(party, dict(payload), settings), correction, "personal")


def _keep(party: Party, payload: ModelPayload, result: Trained, settings: DittoSettings) -> PersonalLoss:
    party.keep(OwnModel, {"model": result.model})
    return {"personal_loss": result.loss}


_COMMON: Phase[DittoSettings] = Phase(received_job, update_reply)
_OWN: Phase[DittoSettings] = Phase(_own_job, _keep, training=lambda settings: settings.personal, name="personal")
train_both = training_task("ditto.train", DittoSettings, DittoReply, _COMMON, _OWN)
train_own_near = training_task("ditto.welcome", DittoSettings, PersonalLoss, _OWN, reveals=Reveals.METRICS)
_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("ditto", EvaluateSettings, own_or_received)
