"""Evaluation at the parties: additive tallies come back, never predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np

from tequio.errors import DataError
from tequio.federation.aggregation import sha256_of
from tequio.federation.payload import Payload
from tequio.federation.population import STEADY_EVALUATION
from tequio.federation.task import LARGEST_COUNT, Done, NoSettings, Reveals, most_rows, record, task
from tequio.learners.answers import One, pack_answer
from tequio.learners.learner import Scorer, Tally
from tequio.learners.metrics import check_tally, tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.population import Party
    from tequio.learners.answers import Answer

Part = Literal["train", "validation", "test"]
"""A part of a party's rows."""


@record
class EvaluateSettings:
    """By which learner a model is evaluated, and on which part of the rows."""

    learner: Scorer
    part: Part


class OwnModel(TypedDict, total=False):
    """The model that a party keeps for itself."""

    model: Payload


class KeptAnswer(TypedDict, total=False):
    """How a party answers with what it keeps for itself, once a run is over; see `learners.answers`."""

    answer: Payload


class Fingerprint(TypedDict):
    """A hash by which a party's own model can be compared without being seen."""

    sha256: str


def check_own_tally(tally: Tally, federation: Federation, party: int) -> None:
    """Refuse a tally that the party's rows cannot have."""
    check_tally(federation.target(party), tally, most_rows(int(federation.sizes[party])),
                f"party '{federation.name(party)}'")


def check_any_tally(tally: Tally, federation: Federation, party: int) -> None:
    """Refuse a tally that no rows can have, where they are not the party's own; who asks knows how many they are."""
    check_tally(federation.schema.target, tally, LARGEST_COUNT, f"party '{federation.name(party)}'")


def tallies_in(replies: Replies[Tally]) -> dict[int, Tally]:
    """Each party's tally, where it has rows and says more of them than how many there are."""
    return {reply.party: reply.payload for reply in replies if len(reply.payload) > 1 and reply.payload["rows"]}


@task("evaluate", settings=EvaluateSettings, reply=Tally, reveals=Reveals.METRICS, check=check_own_tally)
def evaluate(party: Party, payload: Payload, settings: EvaluateSettings) -> Tally:
    """Tally the received model on one part of the party's rows."""
    return tally_here(party, payload["model"], settings.learner, settings.part)


@task("evaluate own model", settings=EvaluateSettings, reply=Tally, reveals=Reveals.METRICS, check=check_own_tally)
def evaluate_own(party: Party, payload: Payload, settings: EvaluateSettings) -> Tally:
    """Tally the model that the party keeps for itself."""
    return tally_here(party, party.recall(OwnModel)["model"], settings.learner, settings.part)


def tally_here(party: Party, model: Payload, learner: Scorer, part: Part) -> Tally:
    """The tally of a model on this party's rows; empty where the party has none in that part."""
    rows: Dataset = party.data.part(part)
    try:
        return dict(learner.evaluate(model, rows)) if len(rows) else {}
    except DataError:
        if not party.settings.get(STEADY_EVALUATION):
            raise
        scores = np.nan_to_num(learner.predict(model, rows), nan=0.0, posinf=1.0, neginf=0.0)
        return tally(rows.schema.target, scores if rows.schema.target.kind == "number" else scores.clip(0.0, 1.0),
                     rows.target)


@task("fingerprint own model", settings=NoSettings, reply=Fingerprint, reveals=Reveals.NOTHING)
def fingerprint_own(party: Party, payload: Payload, settings: NoSettings) -> Fingerprint:
    """A hash of the model that the party keeps for itself."""
    return {"sha256": sha256_of(party.recall(OwnModel)["model"])}


def keep_answer(party: Party, answer: Answer | None) -> Done:
    """Let a party remember how it answers, for rows that come when the run is over."""
    if answer is not None:
        party.keep(KeptAnswer, {"answer": pack_answer(answer)})
    return {}


@task("keep own model to answer with", settings=EvaluateSettings, reply=Done, reveals=Reveals.NOTHING)
def keep_own(party: Party, payload: Payload, settings: EvaluateSettings) -> Done:
    """Keep how the party's own model answers."""
    return keep_answer(party, One(settings.learner, party.recall(OwnModel)["model"]))


def own_fingerprints(federation: Federation, parties: NDArray[np.int64]) -> list[str]:
    """Hashes of the models that parties keep for themselves."""
    return [payload["sha256"] for payload in federation.ask(parties, fingerprint_own).payloads]
