"""Local fine-tuning: federated averaging, and every party trains the global model on before it uses it.

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage: Federated evaluation of on-device personalization, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from tequio.algorithms.personal.answering import Inference, Personal, by_model, personal_round, with_epochs
from tequio.algorithms.training import job_from, local_training, train
from tequio.federation.averaging import Weights
from tequio.federation.evaluation import EvaluateSettings
from tequio.federation.task import TrainSettings, record
from tequio.learners.learner import Learner, LocalTraining
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.training import ModelPayload
    from tequio.federation.algorithm import State
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays


@register("algorithm", "fine-tuning", paper="Wang et al., 2019")
@dataclass(frozen=True, kw_only=True)
class FineTuning(Personal):
    """Federated averaging; each party answers with the global model after some epochs on its own rows.

    Parameters:
        epochs: epochs of fine-tuning before a party answers
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    epochs: Annotated[int, Ge(1)] = 1
    weights: Weights = "size"

    @property
    def inference(self) -> Inference:
        """By a model that is tuned each time and not kept."""
        return _INFERENCE

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The training of the tuning."""
        return (self.evaluation_settings().tuning,)

    def evaluation_settings(self, part: Part = "test") -> TuneSettings:
        """With the training of the tuning."""
        tuning = replace(with_epochs(self.local, self.epochs), optimizer_memory="fresh")
        return TuneSettings(learner=self.learner, part=part, tuning=tuning)

    def round(self, federation: Federation, state: State) -> State:
        """One round of federated averaging."""
        settings = TrainSettings(learner=self.learner, local=self.local)
        return personal_round(self, federation, state, train, settings, weights=self.weights)


@record
class TuneSettings(EvaluateSettings):
    """How the received model is tuned before it answers."""

    learner: Learner
    tuning: LocalTraining


def tuned(party: Party, payload: ModelPayload, settings: TuneSettings) -> Arrays:
    """The received model after training on the party's rows."""
    job, local = job_from(party, payload["model"], purpose="tune"), local_training(party, settings.tuning)
    return settings.learner.train(job.model, job.data, local, job.rng, learning_rate=local.rate(party.round)).model


_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("fine-tuning", TuneSettings, tuned)
