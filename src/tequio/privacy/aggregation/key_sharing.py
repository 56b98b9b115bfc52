"""How parties come to one secret key that the coordinator, which carries it, cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tequio.errors import PayloadError, PermissionDenied
from tequio.federation.task import task
from tequio.privacy.aggregation.ckks import fingerprint, new_key, without_secret
from tequio.privacy.aggregation.keys import (
    derived,
    fresh_key,
    identity_of,
    in_common,
    is_signed,
    opened,
    public_of,
    sealed,
    signature,
    signing_public,
)
from tequio.privacy.aggregation.party_side import KNOWN, about

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

KEY, HELLO = "encryption key", "encrypted-sum"


@task("encrypted-sum.hello")
def say_hello(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Which key the party has, and a fresh public key by which it can be given another."""
    private = fresh_key()
    party.state[HELLO] = {"round": party.round, "session": payload["session"], "private": private}
    return {"has": fingerprint(party.state[KEY]) if KEY in party.state else "", **_signed(party, payload, private)}


@task("encrypted-sum.hand")
def hand_key(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The key, made where there is none, sealed for each party that lacks it."""
    key: bytes = party.state.get(KEY) or new_key()
    party.state[KEY] = key
    private, session, boxes = fresh_key(), payload["session"], []
    for other, offer in zip(payload["parties"], payload["offers"], strict=True):
        common = in_common(private, [trusted(party, int(other), offer, session)])[0]
        purpose = about(session, b"key", party.index, int(other))
        boxes.append(sealed(derived(common, purpose), key, purpose))
    return {"boxes": boxes, "has": fingerprint(key), "settings": without_secret(key),
            **_signed(party, payload, private)}


@task("encrypted-sum.take")
def take_key(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """Open the sealed key and keep it."""
    mine, session, giver = party.state.get(HELLO, {}), payload["session"], int(payload["giver"])
    if mine.get("session") != session:
        raise PermissionDenied(f"party '{party.name}' takes no part in this sum")
    common = in_common(mine["private"], [trusted(party, giver, payload["offer"], session)])[0]
    purpose = about(session, b"key", giver, party.index)
    party.state[KEY] = opened(derived(common, purpose), payload["box"], purpose, f"party {giver}")
    return {"has": fingerprint(party.state[KEY])}


def trusted(party: Party, other: int, offer: Mapping[str, Any], session: bytes) -> bytes:
    """The public key that another party offers, if it signed it with the identity that it had when first met."""
    known = dict(party.state.get(KNOWN, {}))
    if known.get(str(other), offer["identity"]) != offer["identity"]:
        raise PayloadError(f"party {other} has another identity than before",
                           remedy="if it lost its state, its neighbours must forget it too")
    if not is_signed(offer["identity"], offer["signature"], about(session, b"offer", other, other) + offer["public"]):
        raise PayloadError(f"the key of party {other} is not signed by it: forged, replayed or altered")
    party.state[KNOWN] = {**known, str(other): offer["identity"]}
    public: bytes = offer["public"]
    return public


def offer_fault(said: Mapping[str, Any], party: int, session: bytes) -> str:
    """What is wrong with a party's hello, if anything."""
    if not all(isinstance(said.get(name), bytes) for name in ("public", "identity", "signature")) \
            or not isinstance(said.get("has"), str):
        return "it sent no key"
    fits = is_signed(said["identity"], said["signature"], about(session, b"offer", party, party) + said["public"])
    return "" if fits else "it sent a key that it has not signed for this sum"


def _signed(party: Party, payload: Payload, private: bytes) -> Payload:
    seed, public = identity_of(party), public_of(private)
    return {"public": public, "identity": signing_public(seed),
            "signature": signature(seed, about(payload["session"], b"offer", party.index, party.index) + public)}
