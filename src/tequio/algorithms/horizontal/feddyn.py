"""FedDyn: dynamic regularisation.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: Federated learning based on dynamic regularization, ICLR 2021.

With strength alpha, party k minimises L_k(w) - <g_k, w> + alpha/2 ||w - w_received||^2 by its local training, and then
keeps g_k <- g_k - alpha (w_k - w_received), which at the exact minimum is the gradient of L_k there. The coordinator
keeps h <- h - alpha/m * sum of the cohort's changes, m being the number of all parties, and takes the mean of the
cohort's models less h / alpha. g_k and h are about weights only, not about buffers.

The paper weighs all parties alike, and so does this: with unequal weights alpha would have to differ by party. Buffers
are weighed by rows, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypedDict

from annotated_types import Gt

from tequio.algorithms.training import Phase, UpdateReply, job_from, training_task, update_of, weights_of
from tequio.federation.aggregation import shifted, zeros
from tequio.federation.algorithm import part
from tequio.federation.averaging import Averaging, averaging_round, split_buffers
from tequio.federation.task import TrainSettings, record
from tequio.learners.learner import Arrays, Correction, GradientLearner, buffers_of
from tequio.registry import register

if TYPE_CHECKING:
    from typing import Any

    from tequio.algorithms.training import ModelPayload
    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Disclosure, State
    from tequio.federation.averaging import Averaged
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Job, Trained


@register("algorithm", "feddyn", paper="Acar et al., 2021")
@dataclass(frozen=True, kw_only=True)
class FedDyn(Averaging):
    """Each party's objective is bent so that, at convergence, its optimum is everybody's.

    Parameters:
        regularisation: strength alpha of the dynamic regulariser
    """

    learner: GradientLearner = part()
    regularisation: Annotated[float, Gt(0)] = 0.1

    def start(self, federation: Federation) -> State:
        """A fresh model and an h of zero."""
        state = super().start(federation)
        weights, _ = split_buffers(state.model, buffers_of(self.learner, federation.schema))
        return state.next(h=zeros(weights))

    def disclosure(self, schema: Schema) -> Disclosure:
        """The change of the model, as a mean whose share of all depends on how many answered."""
        return self.discloses(schema, counts_answers=True, by_rows=bool(buffers_of(self.learner, schema)))

    def round(self, federation: Federation, state: State) -> State:
        """Select, train the bent objectives, average, and take off what the parties have drifted so far."""
        settings = DynSettings(learner=self.learner, local=self.local, regularisation=self.regularisation)
        return averaging_round(self, federation, state, train_regularised, settings, step=self.step,
                               weights="uniform", buffers_by="size")

    def step(self, averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        """The mean of the models less h / alpha, and the next h."""
        alpha, share = self.regularisation, len(averaged.replies) / len(averaged.federation.eligible())
        h = shifted(averaged.state.memory["h"], averaged.mean, -alpha * share)
        return shifted(averaged.following(), h, -1 / alpha), {"h": h}


@record
class DynSettings(TrainSettings):
    """Training of the bent objective."""

    regularisation: float


class DynMemory(TypedDict, total=False):
    """The party's own gradient g_k."""

    gradient: Arrays


def _own_gradient(party: Party, payload: ModelPayload, settings: DynSettings) -> Arrays:
    own = party.recall(DynMemory).get("gradient")
    return zeros(weights_of(party, payload["model"], settings.learner)) if own is None else own


def _job(party: Party, payload: ModelPayload, settings: DynSettings) -> Job:
    linear = {name: -values for name, values in _own_gradient(party, payload, settings).items()}
    return job_from(party, payload["model"], Correction(linear, settings.regularisation, payload["model"]))


def _reply(party: Party, payload: ModelPayload, result: Trained, settings: DynSettings) -> UpdateReply:
    reply = update_of(party, payload["model"], result, settings.learner)
    own = _own_gradient(party, payload, settings)
    party.keep(DynMemory, {"gradient": shifted(own, reply["update"], -settings.regularisation)})
    return reply


train_regularised = training_task("feddyn.train", DynSettings, UpdateReply, Phase(_job, _reply), by_training=True)
