"""What parties do: train core and head together, or a network of their own, and score rows with it.

A head lives in the party's state under the name `head`. No reply ever holds one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.algorithms.multilabel.balance import around_half, balanced_weights, best_borders
from tequio.algorithms.multilabel.heads import (
    core_of,
    head_of,
    label_weights,
    narrowed,
    own_head,
    scores_of,
    widened,
    widened_data,
)
from tequio.algorithms.multilabel.validation import validated
from tequio.algorithms.training import job_from, training_task
from tequio.data.dataset import Dataset
from tequio.federation.models import difference
from tequio.federation.task import task
from tequio.learners.label_metrics import macro, tally_labels
from tequio.learners.learner import Correction, Job
from tequio.learners.metrics import tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays, Trained


def _job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    return _widened_job(party, payload["model"], settings)


def _widened_job(party: Party, core: Arrays, settings: Mapping[str, Any]) -> Job:
    width, train = settings["width"], party.data.train
    own = balanced_weights(train.target, settings["balance"])
    weights = label_weights(own, train.schema.target.size, width)
    model = {**core, **widened(own_head(party, settings["learner"]), width)}
    job = job_from(party, model, None if weights is None else Correction(label_weights=weights))
    return Job(job.model, widened_data(job.data, width), job.rng, job.correction)


def _reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    core, head = _keep_head(party, result)
    if settings["evaluated"] == "local":
        party.state["core"] = core
    return {"update": difference(core, payload["model"]), "rows": result.rows, "steps": result.steps,
            "loss": result.loss, "labels": party.data.train.schema.target.size,
            **_validated(party, core, head, settings)}


train_shared = training_task("multilabel.train", _job, _reply)
"""Train the received core with the party's own head; reply with the core's change and how validation rows fare."""


def _own_job(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Job:
    core = party.state.get("core")
    if core is None:
        received: Arrays | None = payload.get("model")
        core = received or core_of(settings["learner"].initial(party.data.train.schema, party.rng("initial model")))
    return _widened_job(party, core, settings)


def _own_reply(party: Party, payload: Payload, result: Trained, settings: Mapping[str, Any]) -> Payload:
    core, head = _keep_head(party, result)
    _keep_best(party, core, head, settings)
    finished = bool(settings["patience"] and party.state["waited"] >= settings["patience"])
    return {"rows": result.rows, "steps": result.steps, "loss": result.loss, "finished": finished}


def _keep_best(party: Party, core: Arrays, head: Arrays, settings: Mapping[str, Any]) -> None:
    """Keep the network, and remember it if none was better on validation rows; without such rows the last is best."""
    best = party.state.get("best")
    score = _choice(party, core, head, settings) if len(party.data.validation) else 0.0
    party.state["core"] = core
    if best is None or score < best["score"] or not len(party.data.validation):
        party.state["best"] = {"core": core, "head": head, "score": score}
        party.state["waited"] = 0
    else:
        party.state["waited"] = party.state["waited"] + 1


train_own_network = training_task("multilabel.train own network", _own_job, _own_reply)
"""Train a network of the party's own on. It has finished when validation rows did not get better for a while."""


@task("multilabel.adopt core")
def adopt_core(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Begin a personal phase: the received core and the party's head are its first and so far best network."""
    party.state["head"] = own_head(party, settings["learner"])
    _keep_best(party, payload["model"], party.state["head"], settings)
    return {}


@task("multilabel.set network aside")
def set_network_aside(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Put the best network so far aside: the party begins a second one, from nothing."""
    if "best" in party.state:
        party.state["aside"] = party.state["best"]
    for name in ("core", "head", "best", "waited"):
        party.state.pop(name, None)
    return {}


def _keep_head(party: Party, result: Trained) -> tuple[Arrays, Arrays]:
    core, head = core_of(result.model), narrowed(head_of(result.model), party.data.train.schema.target.size)
    party.state["head"] = head
    return core, head


def _validated(party: Party, core: Arrays, head: Arrays, settings: Mapping[str, Any]) -> Payload:
    rows = party.data.validation
    if not len(rows) or settings["accuracy"] == "none":
        return {}
    return validated(scores_of(settings["learner"], core, head, rows, settings), rows.target, settings["accuracy"])


def _choice(party: Party, core: Arrays, head: Arrays, settings: Mapping[str, Any]) -> float:
    """What the best network of a party is chosen by, on its validation rows; less is better."""
    rows = party.data.validation
    scores = scores_of(settings["learner"], core, head, rows, settings)
    loss = float(validated(scores, rows.target, "subset_accuracy")["validation_loss"])
    if settings["chosen_by"] == "loss":
        return loss
    centred = around_half(scores, best_borders(scores, rows.target)) if settings["calibrate"] else scores
    counts = tally_labels(centred, rows.target, 0.0)
    f1 = macro(*(counts[name] for name in ("true_positives", "false_positives", "false_negatives")))["f1_macro"]
    # The loss decides between networks of equal F1, of which there are many on few rows.
    return float(-f1) + 1e-3 * loss


@task("multilabel.evaluate")
def evaluate_own_rows(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The tally of the party's network on one part of its own rows; empty where it has no rows or no head yet."""
    rows: Dataset = getattr(party.data, settings["part"])
    if not len(rows) or "head" not in party.state:
        return {}
    return tally(rows.schema.target, _scores(party, payload, rows, settings), rows.target)


@task("multilabel.score")
def score_received_rows(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Scores of the coordinator's own rows for the party's labels; empty where it has no head yet."""
    if "head" not in party.state:
        return {}
    mine = party.data.train
    rows = Dataset(mine.schema, type(mine.source)(_unpacked(payload["rows"])))
    return {"scores": np.asarray(_scores(party, payload, rows, settings), dtype=np.float32)}


def packed(rows: Dataset) -> Payload:
    """Features as a payload; sparse ones stay sparse."""
    features = rows.features
    if not sparse.issparse(features):
        return {"dense": np.asarray(features, dtype=np.float32)}
    return {"data": features.data, "indices": features.indices, "indptr": features.indptr,
            "shape": [int(size) for size in features.shape]}


def _unpacked(payload: Payload) -> Any:
    if "dense" in payload:
        return payload["dense"]
    return sparse.csr_matrix((payload["data"], payload["indices"], payload["indptr"]), shape=tuple(payload["shape"]))


def _scores(party: Party, payload: Payload, rows: Dataset, settings: Mapping[str, Any]) -> Any:
    networks = _networks(party, payload, settings)
    scores = _mean_scores(networks, rows, settings)
    if not settings["calibrate"]:
        return scores
    chosen_on = party.data.validation
    borders = best_borders(_mean_scores(networks, chosen_on, settings), chosen_on.target) \
        if len(chosen_on) else np.full(scores.shape[1], 0.5)
    return around_half(scores, borders)


def _mean_scores(networks: Sequence[tuple[Arrays, Arrays]], rows: Dataset, settings: Mapping[str, Any]) -> Any:
    scores = [scores_of(settings["learner"], core, head, rows, settings) for core, head in networks]
    return scores[0] if len(scores) == 1 else np.mean(scores, axis=0)


def _networks(party: Party, payload: Payload, settings: Mapping[str, Any]) -> list[tuple[Arrays, Arrays]]:
    """The networks to judge: the shared core or the party's own with its head, or the best on validation rows."""
    state = party.state
    if settings["evaluated"] == "best" and "best" in state:
        return [(state[kept]["core"], state[kept]["head"]) for kept in ("best", "aside") if kept in state]
    if settings["evaluated"] == "aggregated" or "core" not in state:
        return [(payload["model"], state["head"])]
    return [(state["core"], state["head"])]
