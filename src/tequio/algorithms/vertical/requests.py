"""What becomes of predictions that parties with different columns have made together, of rows that are with them.

The label holder works them out. It keeps them for itself, hands them to the coordinator, or seals them for the party
that asks, so that the coordinator carries what it cannot read. Each of these is a task of its own, which a party may
refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.rows import QueryRows, taken_scores
from tequio.data.dataset import Array
from tequio.errors import PayloadError
from tequio.federation import payload as payloads
from tequio.federation.task import Done, NoSettings, Reveals, task
from tequio.privacy.aggregation.keys import derived, fresh_key, in_common, opened, public_of, sealed

if TYPE_CHECKING:
    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

COORDINATOR = "coordinator"
_PURPOSE = b"tequio answers of a vertical model"


class Answers(TypedDict, total=False):
    """What a party keeps of a request that it was told the answers of: scores, and which of its rows they are of."""

    scores: Array
    rows: NDArray[np.int64]


class ToldAnswers(TypedDict):
    """Scores, and the ids of the rows that they are of."""

    scores: Array
    ids: list[str]


class Told(NamedTuple):
    """How many rows were predicted and, where the coordinator is told, what the label holder says."""

    rows: int
    answers: ToldAnswers | None = None


def deliver(talk: Conversation, rows: int, tell: str) -> Told:
    """Let the answers go where they are to go: to the label holder (''), the coordinator, or the party of that name."""
    holder, told = talk.roles.label_holder, Told(rows)
    asking = holder if tell in ("", COORDINATOR) else talk.federation.index(tell)
    if tell == COORDINATOR:
        told = Told(rows, talk.ask_one(holder, tell_answers))
    elif asking == holder:
        talk.ask_one(holder, hold_answers)
    else:
        key = talk.ask_one(asking, give_key)["key"]
        box = talk.ask_one(holder, seal_answers, {"key": key})
        talk.ask_one(asking, open_answers, box)
    talk.ask(talk.roles.holders, end_request)
    return told


class _Scores(TypedDict):
    scores: Array


@task("vertical.hand out", settings=NoSettings, reply=_Scores, reveals=Reveals.SCORES)
def hand_out(party: Party, payload: Payload, settings: NoSettings) -> _Scores:
    """At the label holder: the scores of the rows asked about."""
    return {"scores": taken_scores(party)}


@task("vertical.hold answers", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def hold_answers(party: Party, payload: Payload, settings: NoSettings) -> Done:
    """At the label holder: keep the scores of the rows asked about for itself."""
    party.keep(Answers, {"scores": taken_scores(party), "rows": party.recall(QueryRows)["rows"]})
    return {}


@task("vertical.tell answers", settings=NoSettings, reply=ToldAnswers, reveals=Reveals.SCORES)
def tell_answers(party: Party, payload: Payload, settings: NoSettings) -> ToldAnswers:
    """At the label holder: the scores of the rows asked about, with their ids."""
    rows = party.rows.take(party.recall(QueryRows)["rows"])
    return {"scores": taken_scores(party), "ids": [str(identity) for identity in rows.ids.tolist()]}


class AskingKey(TypedDict, total=False):
    """At the party that asks: the private key that answers are sealed for, until they are there."""

    private: bytes


class PublicKey(TypedDict):
    """A public key that answers can be sealed for."""

    key: bytes


class SealedAnswers(PublicKey):
    """Answers that only the party that asks can read, and the public key that they were sealed with."""

    box: bytes


@task("vertical.give key", settings=NoSettings, reply=PublicKey, reveals=Reveals.NOTHING)
def give_key(party: Party, payload: Payload, settings: NoSettings) -> PublicKey:
    """At the party that asks: a fresh key for the answers to this request."""
    private = fresh_key()
    party.keep(AskingKey, {"private": private})
    return {"key": public_of(private)}


@task("vertical.seal answers", settings=NoSettings, reply=SealedAnswers, reveals=Reveals.NOTHING)
def seal_answers(party: Party, payload: PublicKey, settings: NoSettings) -> SealedAnswers:
    """At the label holder: the scores of the rows asked about, for the party that asks and nobody on the way."""
    private = fresh_key()
    public = public_of(private)
    key = derived(in_common(private, [payload["key"]])[0], _PURPOSE)
    content = payloads.encode({"scores": taken_scores(party)})
    return {"key": public, "box": sealed(key, content, public + payload["key"])}


@task("vertical.open answers", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def open_answers(party: Party, payload: SealedAnswers, settings: NoSettings) -> Done:
    """At the party that asks: open the scores and keep them; they are in the order of the common rows."""
    private = party.recall(AskingKey)["private"]
    key = derived(in_common(private, [payload["key"]])[0], _PURPOSE)
    content = opened(key, payload["box"], payload["key"] + public_of(private), "the label holder")
    scores, rows = payloads.decode(content)["scores"], party.recall(QueryRows)["rows"]
    if len(scores) != len(rows):
        raise PayloadError(f"party '{party.name}' asked about {len(rows)} rows and was told of {len(scores)}")
    party.forget(AskingKey)
    party.keep(Answers, {"scores": scores, "rows": rows})
    return {}


class _OwnRows(TypedDict):
    rows: NotRequired[NDArray[np.int64]]


@task("vertical.end request", settings=NoSettings, reply=_OwnRows, reveals=Reveals.COUNTS)
def end_request(party: Party, payload: Payload, settings: NoSettings) -> _OwnRows:
    """Forget which rows were asked about; the party that asked says so to itself."""
    rows = party.recall(QueryRows)["rows"]
    party.forget(QueryRows)
    return {"rows": rows} if payload.get("asking") else {}


_SCORES = "the prediction for each row asked about"
describe(hand_out, scores=_SCORES)
describe(tell_answers, scores=_SCORES, ids="which rows these are")
describe(give_key, key="a public key")
describe(seal_answers, key="a public key", box="predictions, sealed for the party that asks")
describe(open_answers, key="a public key", box="the predictions that it asked for")
describe(end_request, asking="who asked", rows="which of the asking party's rows these are")
