"""Messages between peers that the coordinator carries and cannot read.

Each round every peer offers a fresh public key, signed by an identity that lasts; whoever has met it before notices
when another identity claims its place. A message is sealed for one receiver, one round and one sender.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from tequio.errors import PayloadError, PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.task import task
from tequio.privacy.aggregation.key_sharing import trusted
from tequio.privacy.aggregation.keys import (
    derived,
    fresh_key,
    identity_of,
    in_common,
    opened,
    public_of,
    sealed,
    signature,
    signing_public,
)
from tequio.privacy.aggregation.party_side import about

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

_KEPT = "mailbox"


@task("mailbox: offer key")
def offer_key(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """A fresh public key for this round, signed."""
    private, seed = fresh_key(), identity_of(party)
    public = public_of(private)
    party.state[_KEPT] = {"session": payload["session"], "private": private}
    return {"public": public, "identity": signing_public(seed),
            "signature": signature(seed, about(payload["session"], b"offer", party.index, party.index) + public)}


def addressed(links: NDArray[Any], offers: Mapping[int, Payload], session: bytes) -> dict[int, Payload]:
    """For each peer the receivers to seal its message for, with the keys they offered, and how many it hears itself."""
    found: dict[int, Payload] = {party: {"session": session, "receivers": [], "offers": [], "hears": 0}
                                 for party in offers}
    for sender, receiver in links.tolist():
        found[receiver]["hears"] += 1
        found[sender]["receivers"].append(receiver)
        found[sender]["offers"].append(offers[receiver])
    return found


def collect_offers(federation: Federation, parties: NDArray[Any]) -> tuple[bytes, dict[int, Payload]]:
    """A session that nobody can foresee, and the keys that the parties offer for it."""
    session = secrets.token_bytes(16)
    replies = federation.ask(parties, offer_key, {"session": session})
    return session, {reply.party: dict(reply.payload) for reply in replies}


def seal_for_all(party: Party, mail: Mapping[str, Any], content: Payload) -> list[bytes]:
    """At the sender: the same content, sealed for each receiver in turn."""
    private, session, encoded = _private(party, mail["session"]), mail["session"], payloads.encode(content)
    boxes = []
    for receiver, offer in zip(mail["receivers"], mail["offers"], strict=True):
        common = in_common(private, [trusted(party, int(receiver), offer, session)])[0]
        purpose = about(session, b"mail", party.index, int(receiver))
        boxes.append(sealed(derived(common, purpose), encoded, purpose))
    return boxes


def open_all(party: Party, mail: Mapping[str, Any]) -> list[Payload]:
    """At the receiver: what the senders wrote, each with the sender's number."""
    private, session = _private(party, mail["session"]), mail["session"]
    found = []
    for sender, offer, box in zip(mail["senders"], mail["offers"], mail["boxes"], strict=True):
        common = in_common(private, [trusted(party, int(sender), offer, session)])[0]
        purpose = about(session, b"mail", int(sender), party.index)
        content = payloads.decode(opened(derived(common, purpose), box, purpose, f"party {sender}"))
        found.append({**content, "sender": int(sender)})
    return found


def delivered(links: NDArray[Any], boxes: Mapping[int, list[bytes]], offers: Mapping[int, Payload],
              session: bytes) -> dict[int, Payload]:
    """For each receiver the boxes that are for it; those of senders that gave no answer are missing."""
    found: dict[int, Payload] = {party: {"session": session, "senders": [], "offers": [], "boxes": []}
                                 for party in offers}
    place: dict[int, int] = {}
    for sender, receiver in links.tolist():
        number = place[sender] = place.get(sender, -1) + 1
        if sender in boxes:
            if number >= len(boxes[sender]):
                raise PayloadError(f"peer {sender} sealed fewer messages than it has neighbours")
            for name, value in (("senders", sender), ("offers", offers[sender]), ("boxes", boxes[sender][number])):
                found[receiver][name].append(value)
    return found


def _private(party: Party, session: bytes) -> bytes:
    kept = party.state.get(_KEPT, {})
    if kept.get("session") != session:
        raise PermissionDenied(f"party '{party.name}' offered no key in this exchange")
    private: bytes = kept["private"]
    return private
