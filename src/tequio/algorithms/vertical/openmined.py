"""Entity alignment with OpenMined's set intersection: every other party against the label holder, both ways.

First the label holder asks all others and so learns which of its ids each of them has; then they ask it, and it answers
with the ids that all have, so that they learn no more than that. The order of common rows is that of hashed ids, which
everyone can work out alone, under a permutation of the label holder's.
"""

from __future__ import annotations

import hashlib
from functools import reduce
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.rows import AlignSettings, check_order, keep_common
from tequio.errors import DataError, PayloadError
from tequio.federation.task import Done, NoSettings, Reveals, Rows, task
from tequio.privacy.psi import openmined
from tequio.privacy.psi.ids import require_ids, written

if TYPE_CHECKING:
    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party


class Question(TypedDict):
    """A party's ids under its key, and how many there are."""

    request: bytes
    ids: Rows


class Answer(TypedDict):
    """The ids of the party that answers, masked, and the ids that it was asked about, masked by it too."""

    setup: bytes
    response: bytes


class Answers(TypedDict):
    """At the label holder: what the others answered, and what they ask, by the number of the party."""

    answers: dict[str, Answer]
    asked: dict[str, Question]


class CommonIds(TypedDict):
    """The order of common rows, and the answer to each other party."""

    order: NDArray[np.int64]
    answers: dict[str, Answer]


class AnswerInOrder(Answer):
    """An answer, with the order in which common rows are taken."""

    order: NDArray[np.int64]


class OwnKey(TypedDict, total=False):
    """The key under which a party asks, until it has the answer."""

    key: bytes


def intersect_with_openmined(talk: Conversation, *, query: bool) -> int:
    """Let every party keep its common rows, in one order; how many these are."""
    others, holder = talk.roles.others, talk.roles.label_holder
    settings = AlignSettings(query=query)

    def check(reply: CommonIds, whose: str) -> None:
        check_order(reply["order"], len(reply["order"]), whose)
        if reply["answers"].keys() != {str(party) for party in others}:
            raise PayloadError(f"{whose} did not send an answer for each other party")

    asked = {reply.party: reply.payload for reply in talk.ask(talk.roles.holders, ask_about_ids)}
    own = asked.pop(holder)
    answers = talk.ask(others, answer_about_ids, own) if others else ()
    chosen = talk.ask_one(holder, choose_common, {
        "answers": {str(reply.party): reply.payload for reply in answers},
        "asked": {str(party): request for party, request in asked.items()}}, settings=settings, check=check)
    if others:
        talk.ask(others, take_answer, {"order": chosen["order"]}, settings=settings,
                 each={party: chosen["answers"][str(party)] for party in others})
    return len(chosen["order"])


@task("openmined.ask", settings=NoSettings, reply=Question, reveals=Reveals.COUNTS)
def ask_about_ids(party: Party, payload: Payload, settings: NoSettings) -> Question:
    """The party's ids under a fresh key."""
    ids = party.rows.ids
    require_ids(ids, f"party '{party.name}'")
    key = openmined.new_key()
    party.keep(OwnKey, {"key": key})
    return {"request": openmined.request(key, written(ids)), "ids": len(ids)}


@task("openmined.answer", settings=NoSettings, reply=Answer, reveals=Reveals.COUNTS)
def answer_about_ids(party: Party, payload: Question, settings: NoSettings) -> Answer:
    """Mask what the label holder asks about, and give the own ids, masked by another key than for questions."""
    return _answer(written(party.rows.ids), payload)


@task("openmined.choose", settings=AlignSettings, reply=CommonIds, reveals=Reveals.COUNTS)
def choose_common(party: Party, payload: Answers, settings: AlignSettings) -> CommonIds:
    """At the label holder: the rows that all have, their order, and answers to the others about these only."""
    ids = written(party.rows.ids)
    found = [_common(party, answered) for answered in payload["answers"].values()]
    party.forget(OwnKey)
    rows = reduce(np.intersect1d, found, np.arange(len(ids)))
    if not len(rows):
        raise DataError("the parties have no ids in common",
                        remedy="check that their ids mean the same and are written alike")
    hashed = _in_hashed_order(ids, rows)
    order = np.argsort(hashed)
    if not settings.query:
        order = order[party.rng("order of common rows").permutation(len(rows))]
    keep_common(party, hashed[order], query=settings.query)
    known = [ids[row] for row in rows]
    return {"order": order, "answers": {name: _answer(known, asked) for name, asked in payload["asked"].items()}}


@task("openmined.keep", settings=AlignSettings, reply=Done, reveals=Reveals.NOTHING)
def take_answer(party: Party, payload: AnswerInOrder, settings: AlignSettings) -> Done:
    """At the others: learn which of the own rows all have, and keep them in the agreed order."""
    rows = _common(party, payload)
    party.forget(OwnKey)
    if len(rows) != len(payload["order"]):
        raise DataError(f"party '{party.name}' finds {len(rows)} common rows, and the label holder "
                        f"{len(payload['order'])}", remedy="align the parties again")
    keep_common(party, _in_hashed_order(written(party.rows.ids), rows)[payload["order"]], query=settings.query)
    return {}


TASKS_OF_OPENMINED = (ask_about_ids, answer_about_ids, choose_common, take_answer)


def _answer(ids: list[bytes], asked: Question) -> Answer:
    found = openmined.answer(openmined.new_key(), ids, asked["request"], asked["ids"])
    return {"setup": found["setup"], "response": found["response"]}


def _common(party: Party, answered: Answer) -> NDArray[np.int64]:
    return openmined.common(party.recall(OwnKey)["key"],
                            {"setup": answered["setup"], "response": answered["response"]})


def _in_hashed_order(ids: list[bytes], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array(sorted(rows.tolist(), key=lambda row: hashlib.sha256(ids[row]).digest()), dtype=np.int64)


_MASKED = "ids under a key: how many there are"
describe(ask_about_ids, request=_MASKED, ids="how many ids the party has")
describe(answer_about_ids, request=_MASKED, ids="how many ids the label holder has", setup=_MASKED, response=_MASKED)
describe(choose_common, asked=_MASKED, order="in which order common rows are taken",
         answers="which of the own ids each other party has; to others, the common ones masked")
describe(take_answer, setup=_MASKED, response="which of the own ids all have", order="in which order rows are taken")
