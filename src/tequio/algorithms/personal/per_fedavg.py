"""Per-FedAvg: a global model from which one step on a party's own rows leads to a good personal one.

Fallah, Mokhtari, Ozdaglar: Personalized federated learning with theoretical guarantees: a model-agnostic meta-learning
approach, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from tequio.algorithms.personal.answering import Inference, Personal, by_model, personal_round
from tequio.algorithms.personal.gradient_steps import batches, require_plain_sgd, training_rows
from tequio.algorithms.training import UpdateReply, local_training, update_of
from tequio.federation.aggregation import shifted
from tequio.federation.algorithm import part
from tequio.federation.averaging import Weights
from tequio.federation.evaluation import EvaluateSettings
from tequio.federation.task import Reveals, TrainSettings, record, task
from tequio.learners.learner import GradientLearner, Trained
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.training import ModelPayload
    from tequio.data.dataset import Dataset
    from tequio.federation.algorithm import State
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays

Form = Literal["first-order", "hessian-free"]

_NUDGE = 1e-2
"""Length of the step by which the Hessian-free form feels the curvature, in units of the gradient's length."""


@register("algorithm", "per-fedavg", paper="Fallah et al., 2020")
@dataclass(frozen=True, kw_only=True)
class PerFedAvg(Personal):
    """Learns a global model that adapts well: parties answer with it after a few gradient steps on their own rows.

    Parameters:
        adapt_rate: step size alpha of an adaptation step
        adapt_steps: adaptation steps, on all of a party's rows, before it answers
        form: leave out second derivatives (first-order), or take them by differences of gradients (hessian-free)
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    learner: GradientLearner = part()
    adapt_rate: Annotated[float, Gt(0)] = 0.01
    adapt_steps: Annotated[int, Ge(1)] = 1
    form: Form = "first-order"
    weights: Weights = "size"

    @property
    def inference(self) -> Inference:
        """By the adapted model."""
        return _INFERENCE

    def evaluation_settings(self, part: Part = "test") -> AdaptSettings:
        """With how to adapt."""
        return AdaptSettings(learner=self.learner, part=part, adapt_rate=self.adapt_rate, adapt_steps=self.adapt_steps)

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_plain_sgd(self.local, "per-fedavg", weight_decay=False)
        return super().start(federation)

    def round(self, federation: Federation, state: State) -> State:
        """Meta-steps at the parties; the mean of their changes."""
        settings = MetaSettings(learner=self.learner, local=self.local, adapt_rate=self.adapt_rate, form=self.form)
        return personal_round(self, federation, state, train_to_adapt, settings, weights=self.weights)


@record
class MetaSettings(TrainSettings):
    """How far to adapt in training, and whether to follow the curvature."""

    learner: GradientLearner
    adapt_rate: float
    form: Form


@task("per-fedavg.train", settings=MetaSettings, reply=UpdateReply, reveals=Reveals.UPDATE)
def train_to_adapt(party: Party, payload: ModelPayload, settings: MetaSettings) -> UpdateReply:
    """Each step adapts on one batch and takes the gradient of the adapted model on the next."""
    local, rows, learner = local_training(party, settings.local), training_rows(party), settings.learner
    require_plain_sgd(local, "per-fedavg", weight_decay=False)
    model: Arrays = payload["model"]
    losses: list[float] = []
    per_step = 3 if settings.form == "hessian-free" else 2
    drawn = list(batches(rows, local, party.rng("train")))
    for start in range(0, max(len(drawn) - per_step + 1, min(len(drawn), 1)), per_step):
        some = [drawn[(start + offset) % len(drawn)] for offset in range(per_step)]
        gradient, loss = _meta_gradient(learner, model, some, settings.adapt_rate)
        model = shifted(model, gradient, -local.rate(party.round))
        losses.append(loss)
    mean_loss = float(np.mean(losses)) if losses else float("nan")
    return update_of(party, payload["model"], Trained(model, len(losses), mean_loss, len(rows)), learner)


def _meta_gradient(learner: GradientLearner, model: Arrays, some: list[Dataset], rate: float) -> tuple[Arrays, float]:
    """(I - alpha H) g, where g is the gradient after adaptation; the first-order form leaves out H."""
    first, _ = learner.gradient(model, some[0])
    gradient, loss = learner.gradient(shifted(model, first, -rate), some[1])
    if len(some) < 3:
        return gradient, loss
    length = np.sqrt(sum(float(np.vdot(values, values)) for values in gradient.values()))
    nudge = _NUDGE / max(length, 1e-12)
    ahead, behind = (learner.gradient(shifted(model, gradient, sign * nudge), some[2])[0] for sign in (1, -1))
    curved = {name: (ahead[name] - behind[name]) / (2 * nudge) for name in gradient}
    return shifted(gradient, curved, -rate), loss


@record
class AdaptSettings(EvaluateSettings):
    """How to adapt before answering."""

    learner: GradientLearner
    adapt_rate: float
    adapt_steps: int


def adapted(party: Party, payload: ModelPayload, settings: AdaptSettings) -> Arrays:
    """The received model after a few gradient steps on all of the party's training rows."""
    model: Arrays = payload["model"]
    for _ in range(settings.adapt_steps if len(party.data.train) else 0):
        model = shifted(model, settings.learner.gradient(model, party.data.train)[0], -settings.adapt_rate)
    return model


_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("per-fedavg", AdaptSettings, adapted)
