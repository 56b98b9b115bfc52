"""The task at the heart of every update-vector algorithm: train the given model on the party's own rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tequio.errors import DataError
from tequio.federation.models import difference, mixed
from tequio.federation.task import task
from tequio.learners.learner import BatchedLearner, Correction, Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays, LocalTraining, Trained

# settings: learner, local (LocalTraining), and optionally
#   proximal   pull of every gradient towards the model received (FedProx)
#   mix        share of the received model in the party's starting point; below 1 the party keeps a model of its own


def train_together(parties: Sequence[Party], payloads: Sequence[Payload],
                   settings: Mapping[str, Any]) -> list[Payload]:
    """Train many parties in one batched call where learner and settings allow it, else one after another."""
    learner = settings["learner"]
    locals_ = [local_training(party, settings) for party in parties]
    together = (isinstance(learner, BatchedLearner) and len(set(locals_)) == 1
                and learner.trains_together(parties[0].data.train.schema, locals_[0]))
    if not together:
        return [train.run(party, payload, settings) for party, payload in zip(parties, payloads, strict=True)]
    jobs = [_job(party, payload, settings) for party, payload in zip(parties, payloads, strict=True)]
    results = learner.train_together(jobs, locals_[0], learning_rate=locals_[0].rate(parties[0].round))
    return [_reply(party, payload, result, settings)
            for party, payload, result in zip(parties, payloads, results, strict=True)]


@task("train", many=train_together)
def train(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Train the received model on the party's rows; reply with the change and what weighs it."""
    job, local = _job(party, payload, settings), local_training(party, settings)
    result = settings["learner"].train(job.model, job.data, local, job.rng, learning_rate=local.rate(party.round),
                                       correction=job.correction)
    return _reply(party, payload, result, settings)


def local_training(party: Party, settings: Mapping[str, Any]) -> LocalTraining:
    """How this party trains: the common settings with its own on top."""
    own = party.settings.get("local")
    local: LocalTraining = settings["local"]
    return replace(local, **own) if own else local


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    rows = party.data.train
    if not len(rows):
        raise DataError(f"party '{party.name}' has no rows to train on",
                        remedy="raise rules.minimum_rows so that it is not chosen")
    start = starting_model(party, payload["model"], settings)
    return Job(start, rows, party.rng("train"), correction(payload, settings))


def starting_model(party: Party, received: Arrays, settings: Mapping[str, Any]) -> Arrays:
    """The received model, or a mix of it with the party's own: (1 - mix) * own + mix * received."""
    share, own = settings.get("mix", 1.0), party.state.get("own_model")
    return received if share >= 1 or own is None else mixed(own, received, share)


def correction(payload: Payload, settings: Mapping[str, Any]) -> Correction | None:
    """What the algorithm adds to every gradient."""
    offset, pull = payload.get("offset"), settings.get("proximal", 0.0)
    if offset is None and not pull:
        return None
    return Correction(offset, pull, payload["model"] if pull else None)


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    if settings.get("mix", 1.0) < 1:
        party.state["own_model"] = result.model
    return {"update": difference(result.model, payload["model"]), "rows": result.rows, "steps": result.steps,
            "loss": result.loss}
