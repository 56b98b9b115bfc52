"""FedNova: normalised averaging.

Wang, Liu, Liang, Joshi, Poor: Tackling the objective inconsistency problem in heterogeneous federated optimization,
NeurIPS 2020.

A party's change is the learning rate times a sum of its gradients with coefficients a_i that follow from its number of
steps, its momentum and its proximal term. Parties send the change divided by ||a_i||_1; the coordinator averages these
and multiplies by tau_eff = sum p_i ||a_i||_1, so that a party that takes more steps does not pull harder. Where all a_i
are equal this is federated averaging. Buffers are no sums of gradients: they are sent and averaged as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from tequio.algorithms.training import (
    Phase,
    ProximalSettings,
    UpdateReply,
    effective_steps,
    local_training,
    proximal_job,
    require_gradients,
    require_sgd,
    training_task,
    update_of,
)
from tequio.federation.averaging import Averaging, Weights, averaging_round, check_weighing
from tequio.registry import register

if TYPE_CHECKING:
    from typing import Any

    from tequio.algorithms.training import ModelPayload
    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Disclosure, State
    from tequio.federation.averaging import Averaged
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays, Trained


@register("algorithm", "fednova", paper="Wang et al., 2020")
@dataclass(frozen=True, kw_only=True)
class FedNova(Averaging):
    """Federated averaging of changes per step, so that parties that take more steps do not pull harder.

    Parameters:
        proximal: strength of a proximal term as in fedprox (0: none)
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    proximal: Annotated[float, Ge(0)] = 0.0
    weights: Weights = "size"

    def start(self, federation: Federation) -> State:
        """A fresh model."""
        require_sgd(self.local, "fednova")
        if self.proximal:
            require_gradients(self.learner, "fednova")
        check_weighing(self, "uniform" if self.weights == "uniform" else None)  # steps are averaged by the same weights
        return super().start(federation)

    def disclosure(self, schema: Schema) -> Disclosure | None:
        """The change per step, as a mean; where parties take as many steps as their rows make, these cross as well."""
        return self.discloses(schema, by_rows=self.weights == "size") if self.local.steps else None

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average the normalised changes, scale by the mean number of effective steps."""
        settings = ProximalSettings(learner=self.learner, local=self.local, proximal=self.proximal)
        return averaging_round(self, federation, state, train_normalised, settings, weights=self.weights,
                               step=self.step)

    def step(self, averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        """Move along the mean of the normalised changes, as far as the mean party went."""
        replies, local = averaged.replies, self.local
        # A round in which noise was all that came must not look different from others.
        steps = [effective_steps(local, local.steps, pull=local.rate(averaged.round) * self.proximal)] \
            if replies.of_nobody else replies.values("effective_steps")
        return averaged.following(float(np.average(steps, weights=averaged.weights))), {}


class NormalisedReply(UpdateReply):
    """The change per effective step, and how many of these the party took."""

    effective_steps: float


def _reply(party: Party, payload: ModelPayload, result: Trained, settings: ProximalSettings) -> NormalisedReply:
    reply, local = update_of(party, payload["model"], result, settings.learner), local_training(party, settings.local)
    require_sgd(local, "fednova")
    length = effective_steps(local, result.steps, pull=local.rate(party.round) * settings.proximal)
    # A party that takes no step has a change of zero, whatever it is divided by.
    reply["update"] = {name: values / (length or 1.0) for name, values in reply["update"].items()}
    return {**reply, "effective_steps": length}


train_normalised = training_task("fednova.train", ProximalSettings, NormalisedReply, Phase(proximal_job, _reply),
                                 by_training=True)
