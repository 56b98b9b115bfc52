"""Training at the parties: what the update-vector algorithms share.

Their tasks differ in two places only: what a party trains from and under which correction (its job), and what it sends
back (its reply). `training_task` makes a task of these two functions, together with its batched form.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from tequio.errors import ConfigError, DataError
from tequio.federation.algorithm import Algorithm, State
from tequio.federation.columns import Columns
from tequio.federation.models import difference, mixed, take_off
from tequio.federation.task import task
from tequio.learners.batches import check_memory, is_finite
from tequio.learners.learner import Correction, GradientLearner, Job, TrainedTogether

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.task import Task
    from tequio.learners.learner import Arrays, Learner, LocalTraining, Trained

    MakeJob = Callable[[Party, Payload, Mapping[str, Any]], Job]
    MakeReply = Callable[[Party, Payload, Trained, Mapping[str, Any]], Payload]
    MakeReplies = Callable[[Payload, TrainedTogether, Mapping[str, Any]], Payload | None]

Weights = Literal["size", "uniform"]
"""Weigh each party by its number of training rows, or all alike."""


def training_task(name: str, job: MakeJob, reply: MakeReply, *then: tuple[MakeJob, MakeReply],
                  replies: MakeReplies | None = None) -> Task:
    """A task that trains `job` and sends `reply`; its `many` form trains all parties of a chunk in one batched call.

    Further pairs of a job and a reply make a second training after the first, by the setting `second` if there is one;
    the replies become one. `replies` makes all replies of a chunk whose parties received the same payload at once, or
    nothing where it cannot; a task of several trainings has none.
    """
    phases = (("local", job, reply), *(("second", *pair) for pair in then))

    def alone(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
        content: Payload = {}
        for how, make_job, make_reply in phases:
            work, local = make_job(party, payload, settings), local_training(party, settings, how)
            kept = f"optimizer memory of {name}, {how}"
            result = settings["learner"].train(work.model, work.data, local, work.rng, correction=work.correction,
                                               learning_rate=local.rate(party.round),
                                               **optimizer_memory(settings["learner"], local, party.state, kept))
            content |= make_reply(party, payload, _sound(result), settings)
            if result.memory:
                party.state[kept] = result.memory
        return content

    def together(parties: Sequence[Party], payloads: Sequence[Payload],
                 settings: Mapping[str, Any]) -> Sequence[Payload]:
        contents: list[Payload] = [{} for _ in parties]
        for how, make_job, make_reply in phases:
            local = _common_training(parties, settings, how)
            if local is None:
                return []
            jobs = [make_job(party, payload, settings) for party, payload in zip(parties, payloads, strict=True)]
            results = settings["learner"].train_together(jobs, local, learning_rate=local.rate(parties[0].round))
            if replies is not None and isinstance(results, TrainedTogether) and _all_the_same(payloads) and (
                    columns := replies(payloads[0], results, settings)):
                return Columns(columns, len(parties))
            for party, payload, result, content in zip(parties, payloads, results, contents, strict=True):
                content |= make_reply(party, payload, _sound(result), settings)
        return contents

    # Two modules that claim the same task name are told apart by where the function comes from.
    alone.__module__ = job.__module__
    return task(name, many=together)(alone)


def _common_training(parties: Sequence[Party], settings: Mapping[str, Any], how: str) -> LocalTraining | None:
    """The way all these parties train, if it is the same and the learner has a batched form of it."""
    learner, ways = settings["learner"], {local_training(party, settings, how) for party in parties}
    if len(ways) > 1 or not hasattr(learner, "train_together"):  # isinstance of a protocol is slow, and this is hot
        return None
    local = ways.pop()
    if local.optimizer_memory == "kept":
        return None
    return local if learner.trains_together(parties[0].data.train.schema, local) else None


def _all_the_same(payloads: Sequence[Payload]) -> bool:
    return all(payload is payloads[0] for payload in payloads)


def _sound(result: Trained) -> Trained:
    """Refuse a diverged model at the party, before anything of it is kept in the party's state."""
    if not is_finite(result.model.values()):
        raise ConfigError("training diverged: the trained model has values that are not finite",
                          remedy="lower the learning rate or clip the gradients, or set rules.on_failure = 'continue' "
                                 "to leave such parties out")
    return result


def local_training(party: Party, settings: Mapping[str, Any], how: str = "local") -> LocalTraining:
    """How this party trains: the common settings with its own on top."""
    own = party.settings.get("local")
    local: LocalTraining = settings.get(how) or settings["local"]
    return replace(local, **own) if own else local


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


def update_of(payload: Payload, result: Trained) -> Payload:
    """The usual reply: how the received model changed, and what may weigh it."""
    return {"update": difference(result.model, payload["model"]), "rows": result.rows, "steps": result.steps,
            "loss": result.loss}


def proximal_correction(payload: Payload, settings: Mapping[str, Any]) -> Correction | None:
    """A pull of every gradient towards the received model, as strong as the setting `proximal`."""
    pull = settings.get("proximal", 0.0)
    return Correction(pull=pull, anchor=payload["model"]) if pull else None


def starting_model(party: Party, received: Arrays, settings: Mapping[str, Any]) -> Arrays:
    """The received model, or a mix of it with the party's own: (1 - mix) * own + mix * received."""
    share, own = settings.get("mix", 1.0), party.state.get("own_model")
    return received if share >= 1 or own is None else mixed(own, received, share)


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, starting_model(party, payload["model"], settings), proximal_correction(payload, settings))


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    if settings.get("mix", 1.0) < 1:
        party.state["own_model"] = result.model
    return update_of(payload, result)


def _replies(payload: Payload, results: TrainedTogether, settings: Mapping[str, Any]) -> Payload | None:
    if settings.get("mix", 1.0) < 1:
        return None
    return {"update": take_off(payload["model"], results.model), "rows": results.rows, "steps": results.steps,
            "loss": results.loss}


train = training_task("train", _job, _reply, replies=_replies)
"""Train the received model on the party's rows and reply with the change.

Settings besides learner and local: `proximal` pulls towards the received model (FedProx); `mix` below 1 makes the party
keep the model it trained and start from a mix of it and the received one.
"""


def training_settings(algorithm: Algorithm, **extra: Any) -> dict[str, Any]:
    """What the parties need to know to train."""
    return {"learner": algorithm.learner, "local": algorithm.parts.local, **extra}


def fresh_state(algorithm: Algorithm, federation: Federation, **memory: Any) -> State:
    """A fresh model of the learner, and what the algorithm remembers from the start."""
    if federation.population.partition.labels is not None:
        raise ConfigError("the parties know different labels, and this algorithm trains one model for all of them",
                          remedy="set algorithm.name = 'mlfedavg', or deal rows by another partition")
    return State(algorithm.learner.initial(federation.schema, federation.rng("initial model")), memory)


def party_weights(replies: Replies, rule: Weights) -> NDArray[Any] | None:
    """Training rows of each party, or nothing for equal weights."""
    return replies.values("rows") if rule == "size" else None


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


def require_gradients(algorithm: Algorithm, name: str) -> None:
    """Refuse learners whose gradients cannot be corrected or asked for."""
    if not isinstance(algorithm.learner, GradientLearner):
        raise ConfigError(f"'{name}' works on gradients, and the learner '{type(algorithm.learner).__name__}' has none",
                          remedy="choose a learner that is trained by gradient descent, or another algorithm")


def require_sgd(local: LocalTraining, name: str) -> None:
    """Refuse optimizers whose steps are not sums of gradients."""
    if local.optimizer != "sgd":
        raise ConfigError(f"'{name}' infers gradients from how far a party moved, which '{local.optimizer}' hides",
                          remedy="set the local optimizer to 'sgd'")
    if local.momentum and local.optimizer_memory == "kept":
        raise ConfigError(f"'{name}' infers gradients from how far a party moved, which momentum of earlier rounds "
                          "hides", remedy="set local.optimizer_memory = 'fresh', or local.momentum = 0")
