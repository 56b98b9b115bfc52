"""FedDyn: dynamic regularisation.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: Federated learning based on dynamic regularization, ICLR 2021.

With strength alpha, party k minimises L_k(w) - <g_k, w> + alpha/2 ||w - w_received||^2 by its local training, and then
keeps g_k <- g_k - alpha (w_k - w_received), which at the exact minimum is the gradient of L_k there. The coordinator
keeps h <- h - alpha/m * sum of the cohort's changes, m being the number of all parties, and takes the mean of the
cohort's models less h / alpha.

The paper weighs all parties alike, and so does this: with unequal weights alpha would have to differ by party.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Gt

from tequio.algorithms.training import (
    fresh_state,
    job_from,
    require_gradients,
    training_settings,
    training_task,
    update_of,
)
from tequio.federation.algorithm import Algorithm, Crossing, State
from tequio.federation.models import shifted, zeros
from tequio.learners.learner import Correction
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays, Job, Trained


@register("algorithm", "feddyn", paper="Acar et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedDyn(Algorithm):
    """Each party's objective is bent so that, at convergence, its optimum is everybody's.

    Parameters:
        regularisation: strength alpha of the dynamic regulariser
    """

    sums_only = True

    regularisation: Annotated[float, Gt(0)] = 0.1

    def start(self, federation: Federation) -> State:
        """A fresh model and an h of zero."""
        require_gradients(self, "feddyn")
        state = fresh_state(self, federation)
        return state.next(h=zeros(state.model))

    def crossing(self, schema: Schema) -> Crossing:
        """The change of the model, as a mean whose share of all depends on how many answered."""
        return Crossing(counts_answers=True)

    def round(self, federation: Federation, state: State) -> State:
        """Select, train the bent objectives, average, and take off what the parties have drifted so far."""
        chosen, alpha = self.select(federation, state), self.regularisation
        replies = federation.ask(chosen.parties, train_regularised, {"model": state.model},
                                 settings=training_settings(self, regularisation=alpha), stages=self.parts.stages)
        if not replies:
            return self.conclude(federation, state, chosen, replies)
        mean = self.aggregate(federation, state, replies)
        h = shifted(state.memory["h"], mean.update, -alpha * len(replies) / len(federation.eligible()))
        model = shifted(shifted(state.model, mean.update), h, -1 / alpha)
        return self.conclude(federation, state, chosen, replies, model, mean, h=h)


def _own_gradient(party: Party, payload: Payload) -> Arrays:
    own: Arrays | None = party.state.get("gradient")
    return zeros(payload["model"]) if own is None else own


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    linear = {name: -values for name, values in _own_gradient(party, payload).items()}
    return job_from(party, payload["model"], Correction(linear, settings["regularisation"], payload["model"]))


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    reply = update_of(payload, result)
    party.state["gradient"] = shifted(_own_gradient(party, payload), reply["update"], -settings["regularisation"])
    return reply


train_regularised = training_task("feddyn.train", _job, _reply)
