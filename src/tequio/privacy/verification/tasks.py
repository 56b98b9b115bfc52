"""What a party does to have a sum proved to it: prove its own part, then check the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import PayloadError, PermissionDenied
from tequio.federation.task import task
from tequio.privacy.aggregation.fixed_point import Ring
from tequio.privacy.aggregation.keys import identity_of, signature
from tequio.privacy.verification.pedersen import blinding_of, commitment, projection
from tequio.privacy.verification.sums import (
    challenge_of,
    digest_of_update,
    product_words,
    receipt_words,
    wrong_with_sum,
)
from tequio.privacy.verification.transcript import follow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

MINE, CHAIN = "committed updates", "transcript"


@task("verified.prove")
def prove_part(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Commit to the product of one's own numbers with the challenge; once only, or differences would tell them."""
    facts = payload["facts"]
    place = _own_place(party, facts)
    name, mine = facts["name"], party.state[MINE]
    if facts["challenge"] != challenge_of(facts):
        raise PayloadError("the challenge does not follow from what was sent: the coordinator chose it")
    if name not in mine["blindings"]:
        raise PermissionDenied(f"party '{party.name}' has proved its part of this sum already")
    bits, largest, parties = facts["ring"]
    ring = Ring.of(bits, largest, parties)
    whole = ring.signed(ring.encoded(mine["vectors"][name], facts["shares"][place]))
    limbs = mine["blindings"][name]
    part = f"{commitment(projection(bytes.fromhex(facts['challenge']), whole), blinding_of(limbs)):x}"
    party.state[MINE] = {**mine, "blindings": {other: kept for other, kept in mine["blindings"].items()
                                               if other != name}}
    reply = {"part": part, "signature": signature(identity_of(party), product_words(facts["challenge"], part)).hex()}
    return {**reply, "blinding": limbs.tolist()} if payload["open"] else reply


@task("verified.check")
def check_line(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Check a line of the transcript and the sum that it is about, and sign that both are right."""
    line, known = payload["line"], _known(party, payload)
    follow(known, line, payload["links"])
    facts = line["body"]
    _own_place(party, facts)
    wrong = wrong_with_sum(facts, payload["sum"])
    if wrong:
        raise PayloadError(f"the aggregate of round {facts['round']} is not the sum of what was sent: {wrong}",
                           remedy="the coordinator has changed it; trust it no more")
    let_go_of(party, facts["name"])
    party.state[CHAIN] = {"coordinator": known["coordinator"], "index": line["index"], "hash": line["hash"]}
    return {"signature": signature(identity_of(party), receipt_words(line["hash"])).hex()}


def let_go_of(party: Party, name: str) -> None:
    """A sum that was found right needs no second check: forget the update."""
    mine = party.state[MINE]
    left = {what: {other: kept for other, kept in mine[what].items() if other != name}
            for what in ("vectors", "salts", "blindings")}
    party.state[MINE] = {"round": mine["round"], **left}
    if not left["vectors"]:
        del party.state[MINE]


def _known(party: Party, payload: Payload) -> Payload:
    """What the party has seen of the transcript; the coordinator's key is the one that it first met."""
    known: Payload = party.state.get(CHAIN) or {"coordinator": payload["coordinator"]}
    if payload["coordinator"] != known["coordinator"]:
        raise PayloadError("the transcript is signed by another key than before")
    if payload["since"] != known.get("index", -1):
        raise PayloadError(f"party '{party.name}' has seen the transcript up to line {known.get('index', -1)}, and was "
                           f"told what follows line {payload['since']}")
    return known


def _own_place(party: Party, facts: Payload) -> int:
    """Where the party stands in a sum; refuses one that does not count what the party sent."""
    name, mine = facts["name"], party.state.get(MINE, {"round": -1})
    if mine["round"] != facts["round"] or facts["round"] != party.round or name not in mine["vectors"]:
        raise PayloadError(f"party '{party.name}' sent no update '{name}' in round {facts['round']}")
    if party.index not in facts["parties"]:
        raise PayloadError(f"the update of party '{party.name}' was not counted")
    place = int(facts["parties"].index(party.index))
    if facts["commitments"][place] != digest_of_update(mine["salts"][name], mine["vectors"][name]):
        raise PayloadError(f"another update than that of party '{party.name}' was counted in its name")
    return place
