"""What the algorithms that look after badly served parties share: training that also tells the loss it began with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.algorithms.training import job_from, training_task, update_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Job, Trained


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return job_from(party, payload["model"])


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    tally = settings["learner"].evaluate(payload["model"], party.data.train)
    return {**update_of(payload, result), "received_loss": tally["loss_sum"] / tally["rows"]}


train_telling_loss = training_task("fair.train", _job, _reply)
"""Train the received model, and reply with the change and the received model's mean loss on the party's rows."""
