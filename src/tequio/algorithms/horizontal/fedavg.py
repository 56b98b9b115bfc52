"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017.

Parties send the change of the model rather than the model; the mean is the same, and stages that clip, noise or
compress see something small. FederatedSGD is the case of one step on all rows: each party sends -learning rate *
gradient; weighted by rows, the mean of these is the step on the pooled rows of the cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Interval

from tequio.algorithms.training import Phase, UpdateReply, job_from, train, training_task, update_of
from tequio.federation.aggregation import mixed
from tequio.federation.algorithm import Answering, part
from tequio.federation.averaging import Averaging, Weights, averaging_round
from tequio.federation.evaluation import (
    EvaluateSettings,
    OwnModel,
    check_own_tally,
    keep_answer,
    own_fingerprints,
    tallies_in,
    tally_here,
)
from tequio.federation.task import Done, Reveals, TrainSettings, record, task
from tequio.learners.answers import One
from tequio.learners.learner import GradientLearner, Tally
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.algorithms.training import ModelPayload
    from tequio.data.dataset import Schema
    from tequio.federation.algorithm import Disclosure, State
    from tequio.federation.averaging import Averaged
    from tequio.federation.evaluation import Part
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.learner import Arrays, Job, LocalTraining, Trained


@register("algorithm", "fedavg", paper="McMahan et al., 2017")
@dataclass(frozen=True, kw_only=True)
class FedAvg(Averaging):
    """Parties train the model they received; the coordinator takes the mean of their changes.

    Parameters:
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    weights: Weights = "size"

    def disclosure(self, schema: Schema) -> Disclosure:
        """The change of the model, as a mean."""
        return self.discloses(schema, by_rows=self.weights == "size")

    def round(self, federation: Federation, state: State) -> State:
        """Select, train, average."""
        return averaging_round(self, federation, state, train, TrainSettings(learner=self.learner, local=self.local),
                               weights=self.weights)


@register("algorithm", "fedsgd", paper="McMahan et al., 2017")
@dataclass(frozen=True, kw_only=True)
class FedSGD(Averaging):
    """One gradient step per round, on all rows of the chosen parties.

    Of the local training settings learning_rate, decay, weight_decay and clip_norm (of each party's gradient) apply.

    Parameters:
        weights: weigh each party by its number of training rows (size: as if pooled), or all alike (uniform)
    """

    learner: GradientLearner = part()
    weights: Weights = "size"

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The training of one step."""
        return (one_step(self.local),)

    def disclosure(self, schema: Schema) -> Disclosure:
        """The change of the model, as a mean."""
        return self.discloses(schema, by_rows=self.weights == "size", local=one_step(self.local))

    def round(self, federation: Federation, state: State) -> State:
        """Select, take one step each, average."""
        settings = TrainSettings(learner=self.learner, local=one_step(self.local))
        return averaging_round(self, federation, state, train, settings, weights=self.weights)


def one_step(local: LocalTraining) -> LocalTraining:
    """The same training cut down to a single plain step on all rows, in stored order."""
    return replace(local, epochs=1, steps=0, batch=0, optimizer="sgd", momentum=0.0, shuffle=False)


@register("algorithm", "fedavg-mix")
@dataclass(frozen=True, kw_only=True)
class FedAvgMix(Averaging):
    """Federated averaging in which parties start each round from a mix of the global model and their own last one.

    Parameters:
        mix: share of the global model in a party's next starting point; the rest is its own model
        weights: weigh each party by its number of training rows (size), or all alike (uniform)
    """

    mix: Annotated[float, Interval(gt=0, lt=1)] = 0.5
    weights: Weights = "size"

    def round(self, federation: Federation, state: State) -> State:
        """Select, train from the mix, average."""
        settings = MixSettings(learner=self.learner, local=self.local, mix=self.mix)
        return averaging_round(self, federation, state, train_mix, settings, weights=self.weights, step=self.step)

    def step(self, averaged: Averaged) -> tuple[Arrays, dict[str, Any]]:
        """Follow the mean; those that answered keep a model of their own."""
        trained = averaged.state.memory.get("trained", np.empty(0, dtype=np.int64))
        return averaged.following(), {"trained": np.union1d(trained, averaged.replies.parties)}

    def own_answer(self, party: Party, federation: Federation, state: State) -> One:
        """The mix that the party would start its next round from."""
        return One(self.learner, _start(party, state.model, self.mix))

    def keep_answers(self, federation: Federation, state: State, parties: NDArray[np.int64]) -> None:
        """Each keeps its mix."""
        federation.ask(parties, keep_mix, {"model": state.model},
                       settings=MixEvaluation(learner=self.learner, part="test", mix=self.mix))

    def answering(self, federation: Federation, state: State) -> Answering:
        """The common model; parties that trained have a mix of their own."""
        return Answering(parties=tuple(state.memory.get("trained", np.empty(0, dtype=np.int64)).tolist()))

    def fingerprints(self, federation: Federation, state: State) -> list[str]:
        """A hash of each party's own model."""
        return own_fingerprints(federation, state.memory.get("trained", np.empty(0, dtype=np.int64)))

    def evaluate(self, federation: Federation, state: State, part: Part,
                 parties: NDArray[np.int64]) -> dict[int, Tally]:
        """Each party's tally of the mix that it would start its next round from."""
        settings = MixEvaluation(learner=self.learner, part=part, mix=self.mix)
        replies = federation.ask(parties, evaluate_mix, {"model": state.model}, settings=settings)
        return tallies_in(replies)


@record
class MixSettings(TrainSettings):
    """Training from a mix."""

    mix: float


@record
class MixEvaluation(EvaluateSettings):
    """Evaluation of a mix."""

    mix: float


def _start(party: Party, received: Arrays, mix: float) -> Arrays:
    """(1 - mix) * own + mix * received, once the party has a model of its own."""
    own = party.recall(OwnModel).get("model")
    return received if own is None else mixed(own, received, mix)


def _job(party: Party, payload: ModelPayload, settings: MixSettings) -> Job:
    return job_from(party, _start(party, payload["model"], settings.mix))


def _reply(party: Party, payload: ModelPayload, result: Trained, settings: MixSettings) -> UpdateReply:
    party.keep(OwnModel, {"model": result.model})
    return update_of(party, payload["model"], result, settings.learner)


train_mix = training_task("fedavg-mix.train", MixSettings, UpdateReply, Phase(_job, _reply), by_training=True)


@task("evaluate mixed model", settings=MixEvaluation, reply=Tally, reveals=Reveals.METRICS,
      check=check_own_tally)
def evaluate_mix(party: Party, payload: ModelPayload, settings: MixEvaluation) -> Tally:
    """Tally the mix of the received model and the party's own."""
    return tally_here(party, _start(party, payload["model"], settings.mix), settings.learner, settings.part)


@task("keep mixed model to answer with", settings=MixEvaluation, reply=Done, reveals=Reveals.NOTHING)
def keep_mix(party: Party, payload: ModelPayload, settings: MixEvaluation) -> Done:
    """Keep the mix of the received model and the party's own."""
    return keep_answer(party, One(settings.learner, _start(party, payload["model"], settings.mix)))
