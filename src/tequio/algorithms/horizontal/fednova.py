"""FedNova: normalised averaging.

Wang, Liu, Liang, Joshi, Poor: Tackling the objective inconsistency problem in heterogeneous federated optimization,
NeurIPS 2020.

A party's change is the learning rate times a sum of its gradients with coefficients a_i that follow from its number of
steps, its momentum and its proximal term. Parties send the change divided by ||a_i||_1; the coordinator averages these
and multiplies by tau_eff = sum p_i ||a_i||_1, so that a party that takes more steps does not pull harder. Where all a_i
are equal this is federated averaging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.training import (
    Weights,
    effective_steps,
    fresh_state,
    job_from,
    local_training,
    party_weights,
    proximal_correction,
    require_gradients,
    require_sgd,
    training_settings,
    training_task,
    update_of,
)
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.models import shifted
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Job, Trained


@register("algorithm", "fednova", paper="Wang et al., 2020")
@dataclass(frozen=True, kw_only=True)
class FedNova(Algorithm):
    """Federated averaging of changes per step, so that parties that take more steps do not pull harder.

    Parameters:
        proximal: strength of a proximal term as in fedprox (0: none)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    sums_only = True

    proximal: Annotated[float, Ge(0)] = 0.0
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_sgd(self.parts.local, "fednova")
        if self.proximal:
            require_gradients(self, "fednova")
        return fresh_state(self, federation)

    def crossing(self, schema: Schema) -> Crossing | None:
        """The change a step, as a mean; where parties take as many steps as their rows make, these cross as well."""
        return Crossing(by_rows=self.weights == "size") if self.parts.local.steps else None

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average the normalised changes, scale by the mean number of effective steps."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train_normalised, {"model": state.model},
                                 settings=training_settings(self, proximal=self.proximal), stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        weights = party_weights(replies, self.weights)
        mean = self.aggregate(federation, state, replies, weights=weights)
        steps = [self._usual_steps(federation)] if replies.of_nobody else replies.values("effective_steps")
        mean_steps = float(np.average(steps, weights=weights))
        return self.conclude(federation, state, chosen, replies, shifted(state.model, mean.update, mean_steps), mean)

    def _usual_steps(self, federation: Federation) -> float:
        """Those of a party, for a round in which noise was all that came: it must not look different from others."""
        local = self.parts.local
        return effective_steps(local, local.steps, pull=local.rate(federation.round) * self.proximal)


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, payload["model"], proximal_correction(payload, settings))


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    reply, local = update_of(payload, result), local_training(party, settings)
    require_sgd(local, "fednova")
    length = effective_steps(local, result.steps, pull=local.rate(party.round) * settings["proximal"])
    # A party that takes no step has a change of zero, whatever it is divided by.
    normalised = {name: values / (length or 1.0) for name, values in reply["update"].items()}
    return {**reply, "update": normalised, "effective_steps": length}


train_normalised = training_task("fednova.train", _job, _reply)
