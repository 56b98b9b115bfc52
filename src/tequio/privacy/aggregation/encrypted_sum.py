"""Homomorphic aggregation: parties encrypt their updates with a key they share, and the coordinator adds blindly.

It hides updates from a coordinator that keeps to the protocol: it carries the key between parties, but cannot read it.
Every party holds the key, so that one party and the coordinator together can read all updates; `secure-sum` withstands
that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Gt

from tequio.errors import PayloadError, PermissionDenied, QuorumError, TequioError
from tequio.federation.stages import NUMBERS, SumCapacity, Summed, StageSpec
from tequio.federation.task import task
from tequio.privacy.aggregation.ckks import BlindSum, decrypted, encrypted, fingerprint, new_key, without_secret
from tequio.privacy.aggregation.hidden_sums import Phases, Ring, SumWeights
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
from tequio.privacy.aggregation.secure_sum_tasks import KNOWN, about
from tequio.privacy.updates import extra_counts, forget_older, held, hold, let_go
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

KEY, HELLO = "encryption key", "encrypted-sum"
_FEWEST, _READERS = 3, 2


@register("stage", "encrypted-sum", paper="Cheon et al., 2017")
@dataclass(frozen=True)
class EncryptedSum:
    """Homomorphic aggregation: the coordinator adds updates encrypted by CKKS, and parties decrypt the sum.

    Numbers of rows, steps and losses cross in the open. A sum is exact in fixed point; two parties decrypt it, and have
    to agree.

    Parameters:
        largest: largest size of an entry that a party may send
    """

    largest: Annotated[float, Gt(0)] = 64.0

    @property

    def spec(self) -> StageSpec:

        """How it goes with other stages."""

        return StageSpec(takes=NUMBERS, gives="hidden", hides=True)

    def enter(self, party: Party) -> None:
        """Before the task: forget what earlier rounds left, but for the key."""
        forget_older(party, HELLO)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Hold the update back until its weight is known."""
        return hold(party, payload, "encrypted-sum")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Nothing: there is nothing to read."""
        return replies

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, riders: int = 0, room: SumCapacity | None = None) -> Summed:
        """Agree on a key, collect ciphertexts, add them, have the sum decrypted."""
        return _Sum(self, federation, name, parties, SumWeights.of(weights, room)).run(size, riders)


class _Sum:
    """One sum under way."""

    def __init__(self, stage: EncryptedSum, federation: Federation, name: str, parties: NDArray[np.int64],
                 weights: SumWeights) -> None:
        self._stage, self._name, self._asked = stage, name, parties
        self._weights = weights
        self._shares = dict(zip(parties.tolist(), weights.shares.tolist(), strict=True))
        self._phases = Phases("encrypted sum", stage, federation, name, parties, _FEWEST)

    def run(self, size: int, extra_counts: int) -> Summed:
        """The weighted mean of those who sent ciphertexts."""
        holders, key = self._agree()
        replies = self._phases.ask("encrypt", holders, encrypt_update, {"count": self._weights.count, "has": key},
                                   {int(party): {"share": self._shares[int(party)]} for party in holders})
        settings = Counter(bytes(reply.payload.get("settings", b"")) for reply in replies).most_common(1)[0][0]
        blind, faults = BlindSum(settings), {}
        for reply in replies:
            try:
                blind.add(reply.payload.get("ciphertexts", []), size + extra_counts)
            except TequioError as cause:
                faults[reply.party] = cause.message
        replies = self._phases.without(replies, faults)
        self._phases.require("encrypt", len(replies), max(_FEWEST, self._weights.fewest))
        ring = Ring.of(32, self._stage.largest, self._weights.count)
        shares = np.array([self._shares[int(party)] for party in replies.parties])
        whole = self._read(replies.parties, blind.result(), size + extra_counts, key)
        notes = {"encrypted_sum": {"name": self._name, "asked": len(self._asked), "summed": len(replies)}}
        weight = self._weights.weight * float(shares.sum())
        return Summed(whole[:size] / (ring.scale * shares.sum()), replies.parties, weight, notes, whole[:size],
                      (ring.bits, ring.largest, self._weights.count), shares, whole[size:])

    def _agree(self) -> tuple[NDArray[np.int64], str]:
        """Parties that hold the same key, and which one: that which most have, or a new one."""
        session = self._phases.session
        hellos = self._phases.ask("hello", self._asked, say_hello,
                                  fault=lambda reply: offer_fault(reply.payload, reply.party, session))
        has = {reply.party: reply.payload["has"] for reply in hellos}
        known = Counter(key for key in has.values() if key).most_common(1)
        usual = known[0][0] if known else ""
        giver = next(party for party, key in has.items() if key == usual)
        others = [party for party, key in has.items() if party != giver and (not usual or key != usual)]
        if usual and not others:
            return hellos.parties, usual
        offers = [{name: hellos.of(party)[name] for name in ("public", "identity", "signature")} for party in others]
        handed = self._phases.ask("hand", np.array([giver]), hand_key, {"parties": others, "offers": offers}, fewest=1)
        boxes = handed[0].payload
        if not isinstance(boxes.get("boxes"), list) or len(boxes["boxes"]) != len(others):
            raise PayloadError(f"party {giver} did not hand a key to each of {len(others)} parties")
        offer = {name: boxes[name] for name in ("public", "identity", "signature")}
        taken = self._phases.ask("take", np.array(others), take_key, {"giver": giver, "offer": offer}, {
            party: {"box": box} for party, box in zip(others, boxes["boxes"], strict=True)}, fewest=0)
        ready = [giver, *(reply.party for reply in taken if reply.payload["has"] == boxes["has"]),
                 *(party for party, key in has.items() if key == usual and usual and party != giver)]
        return np.array(sorted(ready)), str(boxes["has"])

    def _read(self, parties: NDArray[np.int64], total: list[bytes], size: int, key: str) -> NDArray[np.int64]:
        """The sum, decrypted alike by two of the parties."""
        read: list[NDArray[np.int64]] = []
        for party in parties:
            replies = self._phases.ask("decrypt", np.array([party]), decrypt_sum, {"sum": total, "has": key}, fewest=0)
            read += [reply.payload["numbers"] for reply in replies]
            if len(read) == _READERS:
                break
        if len(read) < _READERS:
            raise QuorumError(f"only {len(read)} parties decrypted the sum, and {_READERS} are needed")
        if any(not isinstance(numbers, np.ndarray) or numbers.shape != (size,) for numbers in read) \
                or not np.array_equal(read[0], read[1]):
            raise PayloadError("two parties decrypted the same sum differently: one of them is lying or broken",
                               remedy="look at the parties with the lowest numbers")
        return read[0]


@task("encrypted-sum.encrypt")
def encrypt_update(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The update as whole numbers, encrypted."""
    key, stage = _key(party, payload), settings["stage"]
    ring = Ring.of(32, stage.largest, payload["count"])
    whole = np.concatenate([ring.signed(ring.encoded(held(party, payload["name"]), payload["share"])),
                            extra_counts(party, payload["name"], payload["count"])])
    let_go(party, payload["name"])
    party.state.pop(HELLO, None)
    return {"ciphertexts": encrypted(key, whole), "settings": without_secret(key)}


@task("encrypted-sum.decrypt")
def decrypt_sum(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """The numbers of a sum."""
    return {"numbers": decrypted(_key(party, payload), payload["sum"])}


def _key(party: Party, payload: Payload) -> bytes:
    key: bytes | None = party.state.get(KEY)
    if key is None or fingerprint(key) != payload["has"]:
        raise PayloadError(f"party '{party.name}' does not hold the key of this sum")
    return key


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
