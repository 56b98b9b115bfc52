"""IFCA: several global models; each party trains the one that fits it best.

Ghosh, Chung, Yin, Ramchandran: An efficient framework for clustered federated learning, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from tequio.algorithms.personal.averaging import Personal
from tequio.algorithms.personal.inference import by_model
from tequio.algorithms.training import Weights, job_from, party_weights, training_settings, training_task
from tequio.federation.algorithm import State
from tequio.federation.models import difference, shifted
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.learners.learner import Arrays, Job, Trained


@register("algorithm", "ifca", paper="Ghosh et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Ifca(Personal):
    """Several models begin at random; each party trains the one with the least loss on its rows, and groups form.

    Parameters:
        clusters: how many models
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    clusters: Annotated[int, Ge(1)] = 2
    weights: Weights = "size"

    @property
    def inference(self) -> Any:
        """By the model that fits the party's training rows best."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """Fresh models, each from a stream of its own."""
        return State({str(number): self.learner.initial(federation.schema, federation.rng("initial model", number))
                      for number in range(self.clusters)})

    def round(self, federation: Federation, state: State) -> State:
        """Parties choose a model and train it; each model is averaged over those who chose it."""
        chosen = self.select(federation, state)
        replies = federation.ask(chosen.parties, train_best, self.asked(state), settings=training_settings(self),
                                 stages=self.parts.stages)
        models, memories = dict(state.model), dict(state.memory.get("clusters", {}))
        for cluster in state.model:
            mine = replace(replies, answers=tuple(reply for reply in replies if reply.payload["cluster"] == cluster))
            if len(mine):
                models[cluster], memories[cluster] = self._averaged(federation, state, mine, cluster)
        federation.record("clusters", {"round": federation.round, "parties": replies.parties.tolist(),
                                       "clusters": [reply.payload["cluster"] for reply in replies]})
        return state.next(models, clusters=memories, selector=chosen.memory)

    def _averaged(self, federation: Federation, state: State, mine: Replies, cluster: str) -> tuple[Arrays, Payload]:
        alone = State(state.model[cluster], {"aggregator": state.memory.get("clusters", {}).get(cluster, {})})
        mean = self.aggregate(federation, alone, mine, weights=party_weights(mine, self.weights))
        return shifted(alone.model, mean.update), mean.memory


def best_cluster(party: Party, payload: Payload, settings: Mapping[str, Any]) -> str:
    """The model with the least loss on the party's training rows; the first of those that tie."""
    rows, models = party.data.train, payload["model"]
    losses = [settings["learner"].evaluate(model, rows)["loss_sum"] for model in models.values()] if len(rows) else [0]
    return str(list(models)[int(np.argmin(losses))])


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    party.state["cluster"] = best_cluster(party, payload, settings)
    return job_from(party, payload["model"][party.state["cluster"]])


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    cluster = party.state["cluster"]
    return {"update": difference(result.model, payload["model"][cluster]), "cluster": cluster, "rows": result.rows,
            "steps": result.steps, "loss": result.loss}


def _best_model(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Arrays:
    model: Arrays = payload["model"][best_cluster(party, payload, settings)]
    return model


train_best = training_task("ifca.train", _job, _reply)
_INFERENCE = by_model("ifca", _best_model)
