"""IFCA: several global models; each party trains the one that fits it best.

Ghosh, Chung, Yin, Ramchandran: An efficient framework for clustered federated learning, NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

import numpy as np
from annotated_types import Ge

from tequio.algorithms.personal.answering import Inference, Personal, by_model
from tequio.algorithms.training import Phase, UpdateReply, job_from, training_task, update_of
from tequio.federation.aggregation import shifted
from tequio.federation.algorithm import Answering, State
from tequio.federation.averaging import (
    Weights,
    aggregate,
    averaged_buffers,
    finish_round,
    select,
    split_buffers,
    weights_by,
    with_sound_buffers,
)
from tequio.federation.evaluation import EvaluateSettings
from tequio.federation.task import TrainSettings
from tequio.learners.learner import Arrays, buffers_of
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.learners.learner import Job, Scorer, Trained


@register("algorithm", "ifca", paper="Ghosh et al., 2020")
@dataclass(frozen=True, kw_only=True)
class Ifca(Personal):
    """Several models begin at random; each party trains the one with the least loss on its rows, and groups form.

    Parameters:
        clusters: how many models
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    # There is no one model that a selector, a contribution or an adoption could judge.
    shows_replies: ClassVar[bool] = False
    adoptable: ClassVar[bool] = False
    sums_only: ClassVar[bool] = False
    contribution: None = field(default=None, init=False)

    clusters: Annotated[int, Ge(1)] = 2
    weights: Weights = "size"

    @property
    def inference(self) -> Inference:
        """By the model that fits the party's training rows best."""
        return _INFERENCE

    def start(self, federation: Federation) -> State:
        """Fresh models, each from a stream of its own."""
        return State({str(number): self.learner.initial(federation.schema, federation.rng("initial model", number))
                      for number in range(self.clusters)})

    def round(self, federation: Federation, state: State) -> State:
        """Parties choose a model and train it; each model is averaged over those who chose it."""
        chosen = select(self, federation, state)
        replies = federation.ask(chosen.parties, train_best, self.evaluation_payload(state), stages=self.way,
                                 settings=TrainSettings(learner=self.learner, local=self.local))
        models, memories = dict(state.model), dict(state.memory.get("clusters", {}))
        for cluster in state.model:
            mine = replace(replies, answers=tuple(reply for reply in replies if reply.payload["cluster"] == cluster))
            if len(mine):
                alone = State(state.model[cluster], {"aggregator": memories.get(cluster, {})})
                models[cluster], memories[cluster] = self._averaged(federation, alone, mine)
        federation.record("clusters", {"round": federation.round, "parties": replies.parties.tolist(),
                                       "clusters": [reply.payload["cluster"] for reply in replies]})
        return finish_round(self, federation, state, chosen, replies, models, clusters=memories)

    def answer(self, federation: Federation, state: State) -> None:
        """There are several models, of which each party has one."""

    def answering(self, federation: Federation, state: State) -> Answering:
        """Every party chooses among the common models."""
        return replace(super().answering(federation, state), parties=tuple(federation.eligible().tolist()))

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """None: every model that parties answer with is a common one."""
        return []

    def _averaged(self, federation: Federation, state: State, replies: Replies[Any]) -> tuple[Arrays, Payload]:
        """One cluster's model after the round, and what the aggregator remembers of it."""
        trained, buffers = split_buffers(state.model, buffers_of(self.learner, federation.schema))
        replies = with_sound_buffers(federation, replies, buffers)
        shares = weights_by(self.weights, replies)
        mean = aggregate(self, federation, state, replies, trained, shares)
        after = shifted(trained, mean.update)
        if buffers:
            after |= averaged_buffers(self, federation, state, replies, buffers, shares, mean, self.weights)
        return {name: after[name] for name in state.model}, mean.memory


class Clusters(TypedDict):
    """All models, by the name of their cluster."""

    model: dict[str, Arrays]


class ClusterReply(UpdateReply):
    """How the model of a cluster changed, and of which."""

    cluster: str


class ChosenCluster(TypedDict, total=False):
    """The cluster that the party chose last."""

    name: str


def best_cluster(party: Party, models: dict[str, Arrays], learner: Scorer) -> str:
    """The model with the least loss on the party's training rows; the first of those that tie."""
    rows = party.data.train
    losses = [learner.evaluate(model, rows)["loss_sum"] for model in models.values()] if len(rows) else [0]
    return list(models)[int(np.argmin(losses))]


def _job(party: Party, payload: Clusters, settings: TrainSettings) -> Job:
    cluster = best_cluster(party, payload["model"], settings.learner)
    party.keep(ChosenCluster, {"name": cluster})
    return job_from(party, payload["model"][cluster])


def _reply(party: Party, payload: Clusters, result: Trained, settings: TrainSettings) -> ClusterReply:
    cluster = party.recall(ChosenCluster)["name"]
    return {**update_of(party, payload["model"][cluster], result, settings.learner), "cluster": cluster}


def _best_model(party: Party, payload: Clusters, settings: EvaluateSettings) -> Arrays:
    return payload["model"][best_cluster(party, payload["model"], settings.learner)]


train_best = training_task("ifca.train", TrainSettings, ClusterReply, Phase(_job, _reply))
_INFERENCE = on_own, on_sent, fingerprint, keep, _ = by_model("ifca", EvaluateSettings, _best_model)
