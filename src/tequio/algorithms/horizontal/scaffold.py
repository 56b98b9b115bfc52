"""SCAFFOLD: stochastic controlled averaging.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: stochastic controlled averaging for federated learning,
ICML 2020.

A party steps along g(y) - c_i + c, where the control variates c_i (kept at the party) and c (kept at the coordinator)
estimate its own gradient and everybody's. Two things go beyond the paper: with local momentum the number of steps K
becomes the effective number of steps, so that option II still estimates a mean gradient; and with weights by size the
mean control variate is weighted like the mean model (the paper weighs all parties alike).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Gt

from tequio.algorithms.training import (
    Weights,
    effective_steps,
    fresh_state,
    job_from,
    local_training,
    party_weights,
    require_gradients,
    require_sgd,
    training_settings,
    training_task,
    update_of,
)
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.models import difference, shifted, zeros
from tequio.learners.learner import Correction
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays, Job, Trained


@register("algorithm", "scaffold", paper="Karimireddy et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Scaffold(Algorithm):
    """Control variates correct the drift of each party towards its own optimum.

    Parameters:
        coordinator_rate: how far the coordinator follows the mean change
        control_from: what a party renews its control variate from: the path it took (option II of the paper; free), or
            the gradient on all its rows at the received model (option I; steadier, one more pass over the rows)
        weights: weigh each party by its number of training rows (size), or all alike (uniform, as in the paper)
    """

    sums_only = True

    coordinator_rate: Annotated[float, Gt(0)] = 1.0
    control_from: Literal["path", "gradient"] = "path"
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model and control variates of zero."""
        require_gradients(self, "scaffold")
        if self.control_from == "path":
            require_sgd(self.parts.local, "scaffold")
        state = fresh_state(self, federation)
        return state.next(control=zeros(state.model))

    def crossing(self, schema: Schema) -> Crossing:
        """The changes of the model and of the control variate, as means whose share of all depends on who answered."""
        return Crossing(("update", "control"), by_rows=self.weights == "size", counts_answers=True,
                        besides_training=self.control_from == "gradient")

    def round(self, federation: Federation, state: State) -> State:
        """Select, train with control, average changes of models and of control variates."""
        chosen, control = self.select(federation, state), state.memory["control"]
        replies = federation.ask(chosen.parties, train_with_control, {"model": state.model, "control": control},
                                 settings=training_settings(self, control_from=self.control_from),
                                 stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        weights = party_weights(replies, self.weights)
        mean = self.aggregate(federation, state, replies, weights=weights)
        # An aggregator may remember what it saw, to judge parties by it: control variates get a memory of their own.
        for_control = State(state.model, {"aggregator": state.memory.get("control_aggregator", {})})
        mean_control = self.aggregate(federation, for_control, replies, name="control", weights=weights)
        share = self.share_of_all(federation, replies)
        model = shifted(state.model, mean.update, self.coordinator_rate)
        return self.conclude(federation, state, chosen, replies, model, mean,
                             control=shifted(control, mean_control.update, share),
                             control_aggregator=mean_control.memory)

    def share_of_all(self, federation: Federation, replies: Replies) -> float:
        """|S| / N: how much of the federation answered, in parties or in rows; noise in nobody's name is no answer."""
        everyone, answered = federation.eligible(), replies.parties[replies.parties >= 0]
        if self.weights == "uniform":
            return len(answered) / len(everyone)
        return float(federation.sizes[answered].sum() / federation.sizes[everyone].sum())


def _own_control(party: Party, payload: Payload) -> Arrays:
    own: Arrays | None = party.state.get("control")
    return zeros(payload["model"]) if own is None else own


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    offset = difference(payload["control"], _own_control(party, payload))
    return job_from(party, payload["model"], Correction(offset=offset))


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    before, reply = _own_control(party, payload), update_of(payload, result)
    if settings["control_from"] == "gradient":
        after, _ = settings["learner"].gradient(payload["model"], party.data.train)
    else:
        after = _mean_gradient(party, payload, reply, settings)
    party.state["control"] = after
    return {**reply, "control": difference(after, before)}


def _mean_gradient(party: Party, payload: Payload, reply: Payload, settings: Mapping[str, Any]) -> Arrays:
    """Option II, c_i - c + (x - y) / (K * rate): the mean of the gradients met on the way."""
    before, local = _own_control(party, payload), local_training(party, settings)
    require_sgd(local, "scaffold")
    if not reply["steps"]:
        return before
    distance = effective_steps(local, reply["steps"]) * local.rate(party.round)
    return {name: values - payload["control"][name] - reply["update"][name] / distance
            for name, values in before.items()}


train_with_control = training_task("scaffold.train", _job, _reply)
