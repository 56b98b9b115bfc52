"""SCAFFOLD: stochastic controlled averaging.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: stochastic controlled averaging for federated learning,
ICML 2020.

A party steps along g(y) - c_i + c, where the control variates c_i (kept at the party) and c (kept at the coordinator)
estimate its own gradient and everybody's. Two things go beyond the paper: with local momentum the number of steps K
becomes the effective number of steps, so that option II still estimates a mean gradient; and with weights by size the
mean control variate is weighted like the mean model (the paper weighs all parties alike). Control variates are about
weights only, not about buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from annotated_types import Gt

from tequio.algorithms.training import (
    Phase,
    UpdateReply,
    effective_steps,
    job_from,
    local_training,
    require_sgd,
    training_task,
    update_of,
    weights_of,
)
from tequio.federation.aggregation import difference, shifted, zeros
from tequio.federation.algorithm import part
from tequio.federation.averaging import Averaging, Weights, averaging_round, split_buffers
from tequio.federation.task import Floats, TrainSettings, record
from tequio.learners.learner import Arrays, Correction, GradientLearner, buffers_of
from tequio.registry import register

if TYPE_CHECKING:
    from typing import Any

    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Disclosure, State
    from tequio.federation.averaging import Averaged
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Job, Trained


@register("algorithm", "scaffold", paper="Karimireddy et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Scaffold(Averaging):
    """Control variates correct the drift of each party towards its own optimum.

    Parameters:
        coordinator_rate: how far the coordinator follows the mean change
        control_from: what a party renews its control variate from: the path it took (option II of the paper; free), or
            the gradient on all its rows at the received model (option I; steadier, one more pass over the rows)
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    learner: GradientLearner = part()
    coordinator_rate: Annotated[float, Gt(0)] = 1.0
    control_from: Literal["path", "gradient"] = "path"
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model and control variates of zero."""
        if self.control_from == "path":
            require_sgd(self.local, "scaffold")
        state = super().start(federation)
        weights, _ = split_buffers(state.model, buffers_of(self.learner, federation.schema))
        return state.next(control=zeros(weights))

    def disclosure(self, schema: Schema) -> Disclosure:
        """The changes of the model and of the control variate, as means whose share of all depends on who answered."""
        return self.discloses(schema, ("update", "control"), by_rows=self.weights == "size", counts_answers=True,
                              besides_training=self.control_from == "gradient")

    def round(self, federation: Federation, state: State) -> State:
        """Select, train with control, average changes of models and of control variates."""
        settings = ControlSettings(learner=self.learner, local=self.local, control_from=self.control_from)
        return averaging_round(self, federation, state, train_with_control, settings, weights=self.weights,
                               payload={"model": state.model, "control": state.memory["control"]},
                               also=("control",), step=self.step)

    def step(self, averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        """Follow the mean change; the control variate follows its own by the share of the federation that answered."""
        control = shifted(averaged.state.memory["control"], averaged.others["control"], self.share_of_all(averaged))
        return averaged.following(self.coordinator_rate), {"control": control}

    def share_of_all(self, averaged: Averaged) -> float:
        """|S| / N: how much of the federation answered, in parties or in rows; noise in nobody's name is no answer."""
        federation, parties = averaged.federation, averaged.replies.parties
        everyone, answered = federation.eligible(), parties[parties >= 0]
        if self.weights == "uniform":
            return len(answered) / len(everyone)
        return float(federation.sizes[answered].sum() / federation.sizes[everyone].sum())


class ControlPayload(TypedDict):
    """The model, and everybody's control variate."""

    model: Arrays
    control: Arrays


@record
class ControlSettings(TrainSettings):
    """Training with control."""

    control_from: Literal["path", "gradient"]


class ControlReply(UpdateReply):
    """How the model changed, and how the party's control variate did."""

    control: Floats


class ControlMemory(TypedDict, total=False):
    """The party's own control variate c_i."""

    control: Arrays


def _own_control(party: Party, payload: ControlPayload, settings: ControlSettings) -> Arrays:
    own = party.recall(ControlMemory).get("control")
    return zeros(weights_of(party, payload["model"], settings.learner)) if own is None else own


def _job(party: Party, payload: ControlPayload, settings: ControlSettings) -> Job:
    offset = difference(payload["control"], _own_control(party, payload, settings))
    return job_from(party, payload["model"], Correction(offset=offset))


def _reply(party: Party, payload: ControlPayload, result: Trained, settings: ControlSettings) -> ControlReply:
    before = _own_control(party, payload, settings)
    reply = update_of(party, payload["model"], result, settings.learner)
    if settings.control_from == "gradient":
        assert isinstance(settings.learner, GradientLearner)
        gradient, _ = settings.learner.gradient(payload["model"], party.data.train)
        after = weights_of(party, gradient, settings.learner)
    else:
        after = _mean_gradient(party, payload, reply, before, settings)
    party.keep(ControlMemory, {"control": after})
    return {**reply, "control": difference(after, before)}


def _mean_gradient(party: Party, payload: ControlPayload, reply: UpdateReply, before: Arrays,
                   settings: ControlSettings) -> Arrays:
    """Option II, c_i - c + (x - y) / (K * rate): the mean of the gradients met on the way."""
    local = local_training(party, settings.local)
    require_sgd(local, "scaffold")
    if not reply["steps"]:
        return before
    distance = effective_steps(local, reply["steps"]) * local.rate(party.round)
    return {name: values - payload["control"][name] - reply["update"][name] / distance
            for name, values in before.items()}


train_with_control = training_task("scaffold.train", ControlSettings, ControlReply, Phase(_job, _reply))
