"""What a party of FLProtector does: train its increment, fit its router, and answer each row by one of two models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.personal.inference import inference
from tequio.algorithms.training import job_from, training_task
from tequio.data.dataset import Dataset
from tequio.federation.models import difference, shifted
from tequio.federation.task import task
from tequio.learners.metrics import merge, summarise
from tequio.learners.routers.router import Own, fit_router, is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.learners.learner import Arrays, Job, Tally, Trained

    Settings = Mapping[str, Any]

_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much of its increment a party may choose to use."""


def personal_model(party: Party, payload: Payload) -> Arrays:
    """W + share * delta; W itself for a party without an increment."""
    model: Arrays = payload["model"]
    delta: Arrays | None = party.state.get("increment")
    return model if delta is None else shifted(model, delta, float(party.state.get("share", 1.0)))


def _job(party: Party, payload: Payload, settings: Settings) -> Job:
    delta: Arrays | None = party.state.get("increment")
    start = payload["model"] if delta is None else shifted(payload["model"], delta)
    return job_from(party, start, purpose="personal")


def _keep(party: Party, payload: Payload, result: Trained, settings: Settings) -> Payload:
    party.state["increment"] = difference(result.model, payload["model"])
    if settings["adaptive"]:
        party.state["share"] = _best_share(party, payload, settings)
    if "router" in settings:
        _fit(party, payload, settings)
    return {"rows": result.rows, "personal_loss": result.loss}


personalise = training_task("flprotector.personalise", _job, _keep)
"""Train W + delta from the received W, keep the new delta, and fit the router where that is due."""


def _best_share(party: Party, payload: Payload, settings: Settings) -> float:
    """The share of the increment with the fewest errors on the validation rows, then the least loss, then the smallest.

    Not the loss alone: a model that has learnt its rows by heart is too sure of itself and yet more often right.
    """
    rows = party.data.validation
    if not len(rows):
        return 1.0
    tallies = [settings["learner"].evaluate(shifted(payload["model"], party.state["increment"], share), rows)
               for share in _SHARES]
    right = [summarise(rows.schema.target, tally).get("accuracy", 0.0) for tally in tallies]
    return min(zip(_SHARES, right, tallies, strict=True), key=lambda one: (-one[1], one[2]["loss_sum"], one[0]))[0]


def _fit(party: Party, payload: Payload, settings: Settings) -> None:
    router, rows = settings["router"], party.data.train
    if router.follows_model or "router" not in party.state:
        own = Own(settings["learner"], personal_model(party, payload))
        party.state["router"] = fit_router(router, rows, own, party.rng("router"))
    known = len(party.state["router"].get("others", ()))
    if "others" in payload and len(payload["others"]) != known:
        party.state["router"] = router.meet(party.state["router"], rows, payload["others"])


@task("flprotector.tell")
def tell(party: Party, payload: Payload, settings: Settings) -> Payload:
    """What the router wants others to know of this party's rows: sums over all of them, never a row."""
    return dict(settings["router"].describe(party.data.train))


def answered_by_own(party: Party, payload: Payload, rows: Dataset, settings: Settings) -> NDArray[np.bool_]:
    """Row by row, whether the party's own model answers."""
    if "increment" not in party.state or not settings["personal"]:
        return np.zeros(len(rows), dtype=bool)
    if "router" not in settings:
        return np.ones(len(rows), dtype=bool)
    own = Own(settings["learner"], personal_model(party, payload))
    return is_own(settings["router"], party.state["router"], rows, own)


def _tally(party: Party, payload: Payload, rows: Dataset, settings: Settings) -> Tally:
    mine = answered_by_own(party, payload, rows, settings)
    models = ((personal_model(party, payload), mine), (payload["model"], ~mine))
    return merge([settings["learner"].evaluate(model, rows.take(which)) for model, which in models if which.any()])


INFERENCE = inference("flprotector", _tally)


@task("flprotector: where rows go")
def where_rows_go(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Of rows that the coordinator sends, which the party's own model would answer, and how novel they are."""
    schema = party.data.train.schema
    rows = Dataset.of(schema, payload["features"], np.zeros(len(payload["features"]), dtype=np.int64))
    reply: Payload = {"own": answered_by_own(party, payload, rows, settings)}
    if "router" in settings and "router" in party.state:
        own = Own(settings["learner"], personal_model(party, payload))
        reply["novelty"] = settings["router"].novelty(party.state["router"], rows, own)
    return reply
