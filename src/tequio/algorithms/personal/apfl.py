"""APFL: each party mixes the global model with one of its own, and learns in which proportion.

Deng, Kamani, Mahdavi: Adaptive personalized federated learning, 2020.

Every local step moves the party's copy w of the global model along its own gradient, the personal model v along that of
the mixture, and the share along the inner product of (v - w) with it. Buffers such as batch-norm statistics are no
weights, and these steps leave them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
from annotated_types import Ge, Interval

from tequio.algorithms.personal.answering import Inference, Personal, by_model, personal_round
from tequio.algorithms.personal.gradient_steps import Descent, DescentMemory, batches, training_rows
from tequio.algorithms.training import UpdateReply, local_training, update_of, weights_of
from tequio.federation.aggregation import difference, shifted
from tequio.federation.algorithm import part
from tequio.federation.averaging import Weights
from tequio.federation.evaluation import EvaluateSettings, OwnModel
from tequio.federation.task import Reveals, TrainSettings, record, task
from tequio.learners.learner import GradientLearner, Trained
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.training import ModelPayload
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays


@register("algorithm", "apfl", paper="Deng et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Apfl(Personal):
    """Each party answers with a mixture of the global model and its own, whose share it learns by gradient descent.

    Parameters:
        share: share alpha of the own model in the mixture at the start
        share_rate: step size of the share (0: it stays)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    learner: GradientLearner = part()
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    share_rate: Annotated[float, Ge(0)] = 1e-4
    weights: Weights = "size"

    @property
    def inference(self) -> Inference:
        """By the mixture with the newest global model."""
        return _INFERENCE

    def round(self, federation: Federation, state: State) -> State:
        """Train both models; average the copies of the global one."""
        return personal_round(self, federation, state, train_mixture, self._settings(), weights=self.weights)

    def welcome(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """A newcomer trains once."""
        federation.ask(parties, train_mixture, {"model": state.model}, settings=self._settings())

    def _settings(self) -> MixtureSettings:
        return MixtureSettings(learner=self.learner, local=self.local, share=self.share, share_rate=self.share_rate)


@record
class MixtureSettings(TrainSettings):
    """The share to begin with, and how fast it is learnt."""

    learner: GradientLearner
    share: float
    share_rate: float


class MixtureMemory(TypedDict, total=False):
    """The share of the party's own model, and the memory of both optimizers where that is kept."""

    share: float
    common_descent: DescentMemory
    own_descent: DescentMemory


@task("apfl.train", settings=MixtureSettings, reply=UpdateReply, reveals=Reveals.UPDATE)
def train_mixture(party: Party, payload: ModelPayload, settings: MixtureSettings) -> UpdateReply:
    """Train the received model, the party's own and the share, in one pass over the batches."""
    learner, local, rows = settings.learner, local_training(party, settings.local), training_rows(party)
    kept = party.recall(MixtureMemory)
    common: Arrays = payload["model"]
    own: Arrays = party.recall(OwnModel).get("model", common)
    share = kept.get("share", settings.share)
    keeps, rate = local.optimizer_memory == "kept", local.rate(party.round)
    down = Descent(local, rate, kept.get("common_descent") if keeps else None)
    own_down = Descent(local, rate, kept.get("own_descent") if keeps else None)
    losses: list[float] = []
    for batch in batches(rows, local, party.rng("train")):
        gradient, loss = learner.gradient(common, batch)
        common = down.step(common, weights_of(party, gradient, learner))
        gradient = weights_of(party, learner.gradient(mixture(common, own, share), batch)[0], learner)
        own = own_down.step(own, {name: share * values for name, values in gradient.items()})
        along = sum(float(np.vdot(own[name] - common[name], values)) for name, values in gradient.items())
        share = float(np.clip(share - settings.share_rate * along, 0.0, 1.0))
        losses.append(loss)
    party.keep(OwnModel, {"model": own})
    party.keep(MixtureMemory, {"share": share})
    if keeps:
        party.keep(MixtureMemory, {"common_descent": down.memory, "own_descent": own_down.memory})
    mean_loss = float(np.mean(losses)) if losses else float("nan")
    return update_of(party, payload["model"], Trained(common, len(losses), mean_loss, len(rows)), learner)


def mixture(common: Arrays, own: Arrays, share: float) -> Arrays:
    """share * own + (1 - share) * common."""
    return shifted(common, difference(own, common), share)


def _mixture_here(party: Party, payload: ModelPayload, settings: EvaluateSettings) -> Arrays:
    own = party.recall(OwnModel).get("model")
    return payload["model"] if own is None else mixture(payload["model"], own, party.recall(MixtureMemory)["share"])


_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("apfl", EvaluateSettings, _mixture_here)
