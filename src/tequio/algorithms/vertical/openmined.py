"""Entity alignment with OpenMined's set intersection: every other party against the label holder, both ways.

First the label holder asks all others and so learns which of its ids each of them has; then they ask it, and it answers
with the ids that all have, so that they learn no more than that. The order of common rows is that of hashed ids, which
everyone can work out alone, under a permutation of the label holder's.
"""

from __future__ import annotations

import hashlib
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.meaning import tells
from tequio.algorithms.vertical.rows import QUERY
from tequio.errors import DataError
from tequio.federation.task import task
from tequio.privacy.psi import openmined
from tequio.privacy.psi.sets import require_ids, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]


def intersect_with_openmined(talk: Conversation, into: str) -> int:
    """Let every party keep its common rows, in one order, in its state by a name; how many these are."""
    others, holder = talk.roles.others, talk.roles.label_holder
    settings = {"into": into}
    asked = {reply.party: reply.payload for reply in talk.ask(talk.roles.holders, ask_about_ids)}
    own = asked.pop(holder)
    answers = talk.ask(others, answer_about_ids, own) if others else []
    told = talk.tell(holder, choose_common, {
        "answers": {str(reply.party): reply.payload for reply in answers},
        "asked": {str(party): request for party, request in asked.items()}}, settings=settings)
    if others:
        talk.ask(others, keep_common, {"order": told["order"]}, settings=settings,
                 each={party: told["answers"][str(party)] for party in others})
    return len(told["order"])


@task("openmined.ask")
def ask_about_ids(party: Party, payload: Payload, settings: Settings) -> Payload:
    """The party's ids under a fresh key."""
    ids = party.rows.ids
    require_ids(ids, f"party '{party.name}'")
    party.state["alignment"] = {"key": openmined.new_key()}
    return {"request": openmined.request(party.state["alignment"]["key"], written(ids)), "ids": len(ids)}


@task("openmined.answer")
def answer_about_ids(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Mask what the label holder asks about, and give the own ids, masked by another key than for questions."""
    return dict(openmined.answer(openmined.new_key(), written(party.rows.ids), payload["request"], payload["ids"]))


@task("openmined.choose")
def choose_common(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: the rows that all have, their order, and answers to the others about these only."""
    ids, key = written(party.rows.ids), party.state.pop("alignment")["key"]
    found = [openmined.common(key, answered) for answered in payload["answers"].values()]
    rows = reduce(np.intersect1d, found, np.arange(len(ids)))
    if not len(rows):
        raise DataError("the parties have no ids in common",
                        remedy="check that their ids mean the same and are written alike")
    hashed = _in_hashed_order(ids, rows)
    order = np.argsort(hashed)
    if settings["into"] != QUERY:
        order = order[party.rng("order of common rows").permutation(len(rows))]
    party.state[settings["into"]] = hashed[order]
    answers = {name: openmined.answer(openmined.new_key(), [ids[row] for row in rows], asked["request"], asked["ids"])
               for name, asked in payload["asked"].items()}
    return {"order": order, "answers": answers}


@task("openmined.keep")
def keep_common(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the others: learn which of the own rows all have, and keep them in the agreed order."""
    ids, key = written(party.rows.ids), party.state.pop("alignment")["key"]
    rows = openmined.common(key, {"setup": payload["setup"], "response": payload["response"]})
    if len(rows) != len(payload["order"]):
        raise DataError(f"party '{party.name}' finds {len(rows)} common rows, and the label holder "
                        f"{len(payload['order'])}", remedy="align the parties anew")
    party.state[settings["into"]] = _in_hashed_order(ids, rows)[payload["order"]]
    return {}


def _in_hashed_order(ids: list[bytes], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array(sorted(rows.tolist(), key=lambda row: hashlib.sha256(ids[row]).digest()), dtype=np.int64)


_MASKED = "ids under a key: how many there are"
tells(ask_about_ids, request=_MASKED, ids="how many ids the party has")
tells(answer_about_ids, request=_MASKED, ids="how many ids the label holder has", setup=_MASKED, response=_MASKED)
tells(choose_common, asked=_MASKED, order="in which order common rows are taken",
      answers="which of the own ids each other party has; to others, the common ones masked")
tells(keep_common, setup=_MASKED, response="which of the own ids all have", order="in which order rows are taken")
