"""pFedMe: personal models by Moreau envelopes.

Dinh, Tran, Nguyen: Personalized federated learning with Moreau envelopes, NeurIPS 2020. Buffers such as batch-norm
statistics are no weights: the copy of the global model takes those of the personal model that was found last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from tequio.algorithms.personal.answering import Inference, Personal, by_model, own_or_received, personal_round
from tequio.algorithms.personal.gradient_steps import batches, require_plain_sgd, training_rows
from tequio.algorithms.training import UpdateReply, local_training, update_of, weights_of
from tequio.federation.aggregation import difference, shifted
from tequio.federation.algorithm import part
from tequio.federation.averaging import Weights
from tequio.federation.evaluation import EvaluateSettings, OwnModel
from tequio.federation.task import Reveals, TrainSettings, record, task
from tequio.learners.learner import Correction, GradientLearner, Trained
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.algorithms.training import ModelPayload
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party


@register("algorithm", "pfedme", paper="Dinh et al., 2020")
@dataclass(frozen=True, kw_only=True)
class PFedMe(Personal):
    """Each batch gives a personal model near the party's copy of the global one, which then moves towards it.

    Parameters:
        pull: strength lambda of the tie between personal model and copy
        personal_steps: gradient steps K on each batch to find the personal model
        personal_rate: step size of these steps (0: that of `local`)
        coordinator_rate: how far beta the coordinator follows the mean copy
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    learner: GradientLearner = part()
    pull: Annotated[float, Gt(0)] = 15.0
    personal_steps: Annotated[int, Ge(1)] = 5
    personal_rate: Annotated[float, Ge(0)] = 0.0
    coordinator_rate: Annotated[float, Gt(0)] = 1.0
    weights: Weights = "size"

    @property
    def inference(self) -> Inference:
        """By the personal model."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_plain_sgd(self.local, "pfedme")
        return super().start(federation)

    def round(self, federation: Federation, state: State) -> State:
        """Train copies by their personal models; follow the mean copy."""
        return personal_round(self, federation, state, train_envelope, self._settings(), weights=self.weights,
                              rate=self.coordinator_rate)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once."""
        federation.ask(parties, train_envelope, {"model": state.model}, settings=self._settings())

    def _settings(self) -> EnvelopeSettings:
        return EnvelopeSettings(learner=self.learner, local=self.local, pull=self.pull,
                                personal_steps=self.personal_steps, personal_rate=self.personal_rate)


@record
class EnvelopeSettings(TrainSettings):
    """How the personal model of a batch is found."""

    pull: float
    personal_steps: int
    personal_rate: float


@task("pfedme.train", settings=EnvelopeSettings, reply=UpdateReply, reveals=Reveals.UPDATE)
def train_envelope(party: Party, payload: ModelPayload, settings: EnvelopeSettings) -> UpdateReply:
    """For each batch: find the personal model near the copy, then move the copy towards it."""
    local, rows, learner, pull = local_training(party, settings.local), training_rows(party), settings.learner, \
        settings.pull
    require_plain_sgd(local, "pfedme")
    rate = local.rate(party.round)
    near = replace(local, steps=settings.personal_steps, batch=0, shuffle=False)
    copy, personal, loss, steps = payload["model"], None, float("nan"), 0
    for batch in batches(rows, local, party.rng("train")):
        found = learner.train(copy, batch, near, party.rng("personal"), learning_rate=settings.personal_rate or rate,
                              correction=Correction(pull=pull, anchor=copy))
        personal, loss, steps = found.model, found.loss, steps + 1
        weights = weights_of(party, copy, learner)
        copy = {**personal, **shifted(weights, difference(weights, weights_of(party, personal, learner)), -rate * pull)}
    if personal is not None:
        party.keep(OwnModel, {"model": personal})
    return update_of(party, payload["model"], Trained(copy, steps, loss, len(rows)), learner)


_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("pfedme", EvaluateSettings, own_or_received)
