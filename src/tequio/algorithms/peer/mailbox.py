"""Messages between peers that the coordinator carries and cannot read.

Each round every peer offers a fresh public key, signed by an identity that lasts; peers that met it before notice
when another identity claims its place. A message is sealed for one receiver, one round and one sender.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypedDict

from tequio.errors import PayloadError, PermissionDenied
from tequio.federation import payload as payloads
from tequio.federation.task import NoSettings, Reveals, task
from tequio.privacy.aggregation.keys import (
    about,
    derived,
    fresh_key,
    identity_of,
    in_common,
    is_signed,
    meet,
    opened,
    public_of,
    sealed,
    signature,
    signing_public,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

class Offer(TypedDict):
    """A public key to seal something for, signed."""

    public: bytes
    identity: bytes
    signature: bytes


class Session(TypedDict):
    """An unpredictable number, under which keys are offered and boxes sealed."""

    session: bytes


class OutgoingMail(TypedDict):
    """Whom to seal a message for, with the keys that they offered, and how many others the sender hears."""

    session: bytes
    receivers: list[int]
    offers: list[Offer]
    hears: int


class IncomingMail(TypedDict):
    """Boxes for one receiver, with who sent them and the keys that those offered."""

    session: bytes
    senders: list[int]
    offers: list[Offer]
    boxes: list[bytes]


class MailKey(TypedDict, total=False):
    """A party's private key of the exchange under way."""

    session: bytes
    private: bytes


@task("mailbox: offer key", settings=NoSettings, reply=Offer, reveals=Reveals.NOTHING)
def offer_key(party: Party, payload: Session, settings: NoSettings) -> Offer:
    """A fresh public key for this round, signed."""
    private, seed = fresh_key(), identity_of(party)
    public = public_of(private)
    party.keep(MailKey, {"session": payload["session"], "private": private})
    return {"public": public, "identity": signing_public(seed),
            "signature": signature(seed, about(payload["session"], b"offer", party.index, party.index) + public)}


def addressed(links: NDArray[np.int64], offers: Mapping[int, Offer], session: bytes) -> dict[int, OutgoingMail]:
    """For each peer the receivers to seal its message for, with the keys they offered, and how many it hears itself."""
    found: dict[int, OutgoingMail] = {party: {"session": session, "receivers": [], "offers": [], "hears": 0}
                                      for party in offers}
    for sender, receiver in links.tolist():
        found[receiver]["hears"] += 1
        found[sender]["receivers"].append(receiver)
        found[sender]["offers"].append(offers[receiver])
    return found


def collect_offers(federation: Federation, parties: NDArray[np.int64]) -> tuple[bytes, dict[int, Offer]]:
    """An unpredictable session, and the keys that the parties offer for it."""
    session = secrets.token_bytes(16)
    replies = federation.ask(parties, offer_key, {"session": session})
    return session, {reply.party: reply.payload for reply in replies}


def seal_for_all(party: Party, mail: OutgoingMail, content: Payload) -> list[bytes]:
    """At the sender: the same content, sealed for each receiver in turn."""
    private, session, encoded = _private(party, mail["session"]), mail["session"], payloads.encode(content)
    boxes = []
    for receiver, offer in zip(mail["receivers"], mail["offers"], strict=True):
        common = in_common(private, [trusted(party, int(receiver), offer, session)])[0]
        purpose = about(session, b"mail", party.index, int(receiver))
        boxes.append(sealed(derived(common, purpose), encoded, purpose))
    return boxes


def open_all(party: Party, mail: IncomingMail) -> list[Payload]:
    """At the receiver: what the senders wrote, each with the sender's number."""
    private, session = _private(party, mail["session"]), mail["session"]
    found = []
    for sender, offer, box in zip(mail["senders"], mail["offers"], mail["boxes"], strict=True):
        common = in_common(private, [trusted(party, int(sender), offer, session)])[0]
        purpose = about(session, b"mail", int(sender), party.index)
        content = payloads.decode(opened(derived(common, purpose), box, purpose, f"party {sender}"))
        found.append({**content, "sender": int(sender)})
    return found


def delivered(links: NDArray[np.int64], boxes: Mapping[int, list[bytes]], offers: Mapping[int, Offer],
              session: bytes) -> dict[int, IncomingMail]:
    """For each receiver the boxes that are for it; those of senders that gave no answer are missing."""
    found: dict[int, IncomingMail] = {party: {"session": session, "senders": [], "offers": [], "boxes": []}
                                      for party in offers}
    carried = dict.fromkeys(boxes, 0)
    for sender, receiver in links.tolist():
        if sender not in boxes:
            continue
        if carried[sender] >= len(boxes[sender]):
            raise PayloadError(f"peer {sender} sealed fewer messages than it has neighbours")
        mail = found[receiver]
        mail["senders"].append(sender)
        mail["offers"].append(offers[sender])
        mail["boxes"].append(boxes[sender][carried[sender]])
        carried[sender] += 1
    return found


def _private(party: Party, session: bytes) -> bytes:
    kept = party.recall(MailKey)
    if kept.get("session") != session:
        raise PermissionDenied(f"party '{party.name}' offered no key in this exchange")
    return kept["private"]


def trusted(party: Party, other: int, offer: Offer, session: bytes) -> bytes:
    """The public key that another party offers, if it signed it with the identity that it had when first met."""
    if not is_signed(offer["identity"], offer["signature"], about(session, b"offer", other, other) + offer["public"]):
        raise PayloadError(f"the key of party {other} is not signed by it: forged, replayed or altered")
    meet(party, {other: offer["identity"]})
    return offer["public"]
