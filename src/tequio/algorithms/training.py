"""Training at the parties: what the averaging algorithms share.

Their tasks differ in two places only: what a party trains from and under which correction (its job), and what it sends
back (its reply). `training_task` makes a task of these two functions, together with its batched form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Generic, NotRequired, TypedDict, TypeVar

import numpy as np

from tequio.errors import ConfigError, DataError, DivergedError
from tequio.federation.aggregation import difference, take_off
from tequio.federation.payload import Columns
from tequio.federation.population import LEAST_BATCH, STEADY_TRAINING
from tequio.federation.task import Count, Floats, Reveals, Rows, Task, TrainSettings, record, task
from tequio.learners.descent import check_memory, is_finite, steps_of_epochs, without_small_batches
from tequio.learners.learner import (
    Arrays,
    BatchedLearner,
    Correction,
    GradientLearner,
    Job,
    Learner,
    LocalTraining,
    Trained,
    TrainedTogether,
    buffers_of,
)
from tequio.learners.private_training import PrivateTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tequio.federation.federation import Federation
    from tequio.federation.population import Party

S = TypeVar("S", bound=TrainSettings)
R = TypeVar("R")


class ModelPayload(TypedDict):
    """What most parties receive: the model to train."""

    model: Arrays


class UpdateReply(TypedDict):
    """The usual reply: how the received model changed, and what may weigh it. Buffers are no weights."""

    update: Floats
    rows: Rows
    steps: Count
    loss: float
    buffers: NotRequired[Floats]


@dataclass(frozen=True)
class Phase(Generic[S]):
    """One training of a task: from what, under which settings, and what is sent of it."""

    job: Callable[[Party, Any, S], Job]
    reply: Callable[[Party, Any, Trained, S], Mapping[str, Any]]
    training: Callable[[S], LocalTraining] = lambda settings: settings.local
    name: str = "local"


def training_task(name: str, kind: type[S], reply: type[R], *phases: Phase[S],
                  replies: Callable[[Any, TrainedTogether, S], Mapping[str, Any] | None] | None = None,
                  reveals: Reveals = Reveals.UPDATE, by_training: bool = False,
                  check: Callable[[R, Federation, int], object] | None = None) -> Task[S, R]:
    """A task that trains in one phase or several; its `many` form trains all parties of a chunk in one batched call.

    The replies of the phases become one. `replies` makes all replies of a chunk whose parties received the same payload
    at once, or nothing where it cannot; a task of several phases has none. `by_training` says that the replies reveal
    nothing of the rows but what the training with `settings.local` made of them.
    """

    def alone(party: Party, payload: Any, settings: S) -> R:
        content: dict[str, Any] = {}
        for phase in phases:
            work, local = phase.job(party, payload, settings), local_training(party, phase.training(settings))
            kept = f"optimizer memory of {name}, {phase.name}"
            nothing = Trained(dict(work.model), sum(steps_of_epochs(len(work.data), local)), 0.0, len(work.data))
            steady = party.settings.get(STEADY_TRAINING)
            try:
                result = settings.learner.train(work.model, work.data, local, work.rng, correction=work.correction,
                                                learning_rate=local.rate(party.round),
                                                **optimizer_memory(settings.learner, local, party.state, kept))
            except DivergedError:
                if not steady:
                    raise
                result = nothing
            if steady and not is_finite(result.model.values()):
                result = nothing
            content |= phase.reply(party, payload, _sound(result), settings)
            if result.memory:
                party.state[kept] = result.memory
        return content  # type: ignore[return-value]

    def together(parties: Sequence[Party], payloads: Sequence[Any], settings: S) -> Sequence[Mapping[str, Any]]:
        contents: list[dict[str, Any]] = [{} for _ in parties]
        for phase in phases:
            local = _common_training(parties, settings.learner, phase.training(settings))
            if local is None:
                return []
            assert isinstance(settings.learner, BatchedLearner)
            jobs = [phase.job(party, payload, settings) for party, payload in zip(parties, payloads, strict=True)]
            results = settings.learner.train_together(jobs, local, learning_rate=local.rate(parties[0].round))
            if replies is not None and isinstance(results, TrainedTogether) and all(
                    payload is payloads[0] for payload in payloads) and (
                    columns := replies(payloads[0], results, settings)):
                return Columns(dict(columns), len(parties))
            for party, payload, result, content in zip(parties, payloads, results, contents, strict=True):
                content |= phase.reply(party, payload, _sound(result), settings)
        return contents

    # Two modules that claim the same task name are told apart by where the function comes from.
    alone.__module__ = phases[0].job.__module__
    return task(name, settings=kind, reply=reply, reveals=reveals, many=together, by_training=by_training,
                check=check)(alone)


def _common_training(parties: Sequence[Party], learner: Learner, common: LocalTraining) -> LocalTraining | None:
    """The way all these parties train, if it is the same and the learner has a batched form of it."""
    ways = {local_training(party, common) for party in parties}
    local = ways.pop()
    if ways or local.optimizer_memory == "kept" or not isinstance(learner, BatchedLearner):
        return None
    return local if learner.trains_together(parties[0].data.train.schema, local) else None


def _sound(result: Trained) -> Trained:
    """Refuse a diverged model at the party, before anything of it is kept in the party's state."""
    if not is_finite(result.model.values()):
        raise ConfigError("training diverged: the trained model has values that are not finite",
                          remedy="lower the learning rate or clip the gradients, or set rules.on_failure = 'continue' "
                                 "to leave such parties out")
    return result


def local_training(party: Party, common: LocalTraining) -> LocalTraining:
    """How this party trains: the common settings, its own on top, and no step on fewer rows than its owner wants."""
    own, least = party.settings.get("local"), party.settings.get(LEAST_BATCH, 1)
    local = replace(common, **own) if own else common
    return local if least < 2 or isinstance(local, PrivateTraining) else \
        without_small_batches(len(party.data.train), local, least)


def optimizer_memory(learner: Learner, local: LocalTraining, state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What `train` has to be given so that the optimizer goes on with what is kept under a name, if it is kept."""
    if local.optimizer_memory == "fresh":
        return {}
    if "memory" not in signature(learner.train).parameters:
        check_memory(local, None)
    return {"memory": state.get(name, {})}


def job_from(party: Party, model: Arrays, correction: Correction | None = None, purpose: str = "train") -> Job:
    """Train `model` on all training rows of the party; trainings of one task need streams of different purposes."""
    rows = party.data.train
    if not len(rows):
        raise DataError(f"party '{party.name}' has no rows to train on",
                        remedy="raise rules.minimum_rows so that it is not chosen")
    return Job(model, rows, party.rng(purpose), correction)


def update_of(party: Party, received: Arrays, result: Trained, learner: Learner) -> UpdateReply:
    """The usual reply. The change of buffers travels beside that of the weights."""
    change = difference(result.model, received)
    reply: UpdateReply = {"update": change, "rows": result.rows, "steps": result.steps, "loss": result.loss}
    buffers = buffers_of(learner, party.data.train.schema) & change.keys()
    if buffers:
        reply["update"] = {name: values for name, values in change.items() if name not in buffers}
        # In double precision, so that the statistics of a single party come out as that party has them, bit for bit.
        reply["buffers"] = {name: result.model[name].astype(np.float64) - received[name] for name in received
                            if name in buffers}
    return reply


def weights_of(party: Party, model: Arrays, learner: Learner) -> Arrays:
    """A model without its buffers, which corrections and control variates leave alone."""
    buffers = buffers_of(learner, party.data.train.schema)
    return {name: values for name, values in model.items() if name not in buffers} if buffers else model


def updates_of(payload: ModelPayload, results: TrainedTogether, settings: TrainSettings) -> Mapping[str, Any]:
    """The usual replies of a chunk at once. Learners that train together have no buffers."""
    return {"update": take_off(payload["model"], results.model), "rows": results.rows, "steps": results.steps,
            "loss": results.loss}


def received_job(party: Party, payload: ModelPayload, settings: TrainSettings) -> Job:
    """Train the received model."""
    return job_from(party, payload["model"])


def update_reply(party: Party, payload: ModelPayload, result: Trained, settings: TrainSettings) -> UpdateReply:
    """Send how it changed."""
    return update_of(party, payload["model"], result, settings.learner)


train = training_task("train", TrainSettings, UpdateReply, Phase(received_job, update_reply), replies=updates_of,
                      by_training=True)
"""Train the received model on the party's rows and reply with the change."""


@record
class ProximalSettings(TrainSettings):
    """Training that is pulled towards the received model, as strongly as `proximal` says."""

    proximal: float = 0.0


def proximal_job(party: Party, payload: ModelPayload, settings: ProximalSettings) -> Job:
    """Train the received model under the pull."""
    pull = settings.proximal
    return job_from(party, payload["model"], Correction(pull=pull, anchor=payload["model"]) if pull else None)


def effective_steps(local: LocalTraining, steps: int, pull: float = 0.0) -> float:
    """Local steps in units of plain gradient steps, ||a||_1 of Wang et al. (2020).

    That is how far, in learning rates, a gradient of constant 1 would have carried the party. `pull` is the learning
    rate times the proximal strength.
    """
    distance = velocity = 0.0
    for _ in range(steps):
        velocity = local.momentum * velocity + 1.0 - pull * distance
        distance += velocity
    return distance


def require_gradients(learner: Learner, name: str) -> None:
    """Refuse learners whose gradients cannot be corrected or asked for."""
    if not isinstance(learner, GradientLearner):
        raise ConfigError(f"'{name}' works on gradients, and the learner '{type(learner).__name__}' has none",
                          remedy="set learner.name = 'logistic' or 'mlp', or algorithm.name = 'fedavg'")


def require_sgd(local: LocalTraining, name: str) -> None:
    """Refuse optimizers whose steps are not sums of gradients."""
    if local.optimizer != "sgd":
        raise ConfigError(f"'{name}' infers gradients from how far a party moved, which '{local.optimizer}' hides",
                          remedy="set local.optimizer = 'sgd'")
    if local.momentum and local.optimizer_memory == "kept":
        raise ConfigError(f"'{name}' infers gradients from how far a party moved, which momentum of earlier rounds "
                          "hides", remedy="set local.optimizer_memory = 'fresh', or local.momentum = 0")


