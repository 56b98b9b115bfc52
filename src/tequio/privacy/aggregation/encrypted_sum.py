"""Homomorphic aggregation: parties encrypt their updates with a key they share, and the coordinator adds blindly.

It hides updates from a coordinator that keeps to the protocol: it carries the key between parties, but cannot read it.
Every party holds the key, so that one party and the coordinator together can read all updates; `secure-sum` withstands
that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from tequio.errors import PayloadError, PermissionDenied, QuorumError, TequioError
from tequio.federation.stages import NUMBERS, StageSpec, SumCapacity, Summed, SummingStage
from tequio.federation.task import Reveals, TimedSettings, record, task
from tequio.privacy.aggregation.ckks import BlindSum, decrypted, encrypted, fingerprint, new_key, without_secret
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, InSum, Phases, Ring, SumWeights, in_sum
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
from tequio.privacy.updates import OfRound, extra_counts, forget_older, held, hold, let_go
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.federation.averaging import Weights
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

_FEWEST, _READERS, _BITS = 3, 2, 32


@register("stage", "encrypted-sum", paper="Cheon et al., 2017")
@dataclass(frozen=True)
class EncryptedSum(SummingStage):
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
        forget_older(party, Hello)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Hold the update back until its weight is known."""
        return hold(party, payload, "encrypted-sum")

    @property
    def ring(self) -> tuple[int, float]:
        """What a ciphertext has room for."""
        return _BITS, self.largest

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, extra_counts: int = 0, capacity: SumCapacity | None = None, by: Weights = "size") -> Summed:
        """Agree on a key, collect ciphertexts, add them, have the sum decrypted."""
        return _Sum(self, federation, name, parties, SumWeights.of(weights, capacity)).run(size, extra_counts)


class _Sum:
    """One sum under way."""

    def __init__(self, stage: EncryptedSum, federation: Federation, name: str, parties: NDArray[np.int64],
                 weights: SumWeights) -> None:
        self._stage, self._name, self._asked = stage, name, parties
        self._weights = weights
        self._shares = dict(zip(parties.tolist(), weights.shares.tolist(), strict=True))
        self._phases = Phases("encrypted sum", federation, parties, _FEWEST, in_sum(name))
        self._settings = EncryptedSumSettings(largest=stage.largest, local=NO_TRAINING)

    def run(self, size: int, extra_counts: int) -> Summed:
        """The weighted mean of those who sent ciphertexts."""
        holders, key = self._agree()
        replies = self._phases.ask("encrypt", holders, encrypt_update, {"count": self._weights.count, "has": key},
                                   {int(party): {"share": self._shares[int(party)]} for party in holders},
                                   settings=self._settings)
        blind, faults = BlindSum(Counter(reply.payload["settings"] for reply in replies).most_common(1)[0][0]), {}
        for reply in replies:
            try:
                blind.add(reply.payload["ciphertexts"], size + extra_counts)
            except TequioError as cause:
                faults[reply.party] = cause.message
        replies = self._phases.without(replies, faults)
        self._phases.require("encrypt", len(replies), max(_FEWEST, self._weights.fewest))
        ring = Ring.of(_BITS, self._stage.largest, self._weights.count)
        shares = np.array([self._shares[int(party)] for party in replies.parties])
        whole = self._read(replies.parties, blind.result(), size + extra_counts, key)
        notes = {"encrypted_sum": {"name": self._name, "asked": len(self._asked), "summed": len(replies)}}
        weight = self._weights.weight * float(shares.sum())
        return Summed(whole[:size] / (ring.scale * shares.sum()), replies.parties, weight, notes, whole[:size],
                      (ring.bits, ring.largest, self._weights.count), shares, whole[size:])

    def _agree(self) -> tuple[NDArray[np.int64], str]:
        """Parties that hold the same key, and which one: that which most have, or a new one."""
        session = self._phases.common["session"]
        hellos = self._phases.ask("hello", self._asked, say_hello, settings=self._settings,
                                  fault=lambda reply: _unsigned(reply.payload, reply.party, session))
        has = {reply.party: reply.payload["has"] for reply in hellos}
        known = Counter(key for key in has.values() if key).most_common(1)
        usual = known[0][0] if known else ""
        giver = next(party for party, key in has.items() if key == usual)
        others = [party for party, key in has.items() if party != giver and (not usual or key != usual)]
        if usual and not others:
            return hellos.parties, usual
        offers = [_offer(hellos.of(party)) for party in others]
        handed = self._phases.ask("hand", np.array([giver]), hand_key, {"parties": others, "offers": offers}, fewest=1,
                                  settings=self._settings)[0].payload
        if len(handed["boxes"]) != len(others):
            raise PayloadError(f"party {giver} did not hand a key to each of {len(others)} parties")
        taken = self._phases.ask("take", np.array(others), take_key, {"giver": giver, "offer": _offer(handed)}, {
            party: {"box": box} for party, box in zip(others, handed["boxes"], strict=True)}, fewest=0,
            settings=self._settings)
        ready = [giver, *(reply.party for reply in taken if reply.payload["has"] == handed["has"]),
                 *(party for party, key in has.items() if key == usual and usual and party != giver)]
        return np.array(sorted(ready)), handed["has"]

    def _read(self, parties: NDArray[np.int64], total: list[bytes], size: int, key: str) -> NDArray[np.int64]:
        """The sum, decrypted alike by two of the parties."""
        read: list[NDArray[np.int64]] = []
        for party in parties:
            replies = self._phases.ask("decrypt", np.array([party]), decrypt_sum, {"sum": total, "has": key}, fewest=0,
                                       settings=self._settings)
            read += [reply.payload["numbers"] for reply in replies]
            if len(read) == _READERS:
                break
        if len(read) < _READERS:
            raise QuorumError(f"only {len(read)} parties decrypted the sum, and {_READERS} are needed")
        if any(numbers.shape != (size,) for numbers in read) or not np.array_equal(read[0], read[1]):
            raise PayloadError("two parties decrypted the same sum differently: one of them is lying or broken",
                               remedy="look at the parties with the lowest numbers")
        return read[0]


def _offer(said: Offer) -> Offer:
    return {"public": said["public"], "identity": said["identity"], "signature": said["signature"]}


@record
class EncryptedSumSettings(TimedSettings):
    """The largest entry that a sum has room for."""

    largest: float


class Key(TypedDict, total=False):
    """The key that all parties share, and by which the coordinator adds without reading."""

    key: bytes


class Hello(OfRound, total=False):
    """The private half of the key by which a party can be given the common one."""

    session: bytes
    private: bytes


class Offer(TypedDict):
    """A public key to seal something for, signed."""

    public: bytes
    identity: bytes
    signature: bytes


class Offering(Offer):
    """The same, and which common key the party has, if any."""

    has: str


class Handed(Offering):
    """The common key, sealed for each party that lacks it."""

    boxes: list[bytes]
    settings: bytes


class Encrypted(TypedDict):
    """An update under the common key, and the settings by which ciphertexts are added."""

    ciphertexts: list[bytes]
    settings: bytes


class Decrypted(TypedDict):
    """The whole numbers of a sum."""

    numbers: NDArray[np.int64]


class Has(TypedDict):
    """The fingerprint of the common key that a party has."""

    has: str


class ToEncrypt(InSum):
    """What an update has to be multiplied with, for how many parties the sum is sized, and under which key."""

    share: float
    count: int
    has: str


class ToDecrypt(InSum):
    """A sum under a key."""

    sum: list[bytes]
    has: str


class ToHand(InSum):
    """Who lacks the common key, and what each offers."""

    parties: list[int]
    offers: list[Offer]


class ToTake(InSum):
    """The common key in a box, and who sealed it."""

    giver: int
    offer: Offer
    box: bytes


# No message tells about rows but for the sum itself, which is revealed by the task whose reply the stage held back:
# the coordinator has no key for what parties encrypt.


@task("encrypted-sum.encrypt", settings=EncryptedSumSettings, reply=Encrypted, reveals=Reveals.NOTHING)
def encrypt_update(party: Party, payload: ToEncrypt, settings: EncryptedSumSettings) -> Encrypted:
    """The update as whole numbers, encrypted."""
    key = _key(party, payload["has"])
    ring = Ring.of(_BITS, settings.largest, payload["count"])
    whole = np.concatenate([ring.signed(ring.encoded(held(party, payload["name"]), payload["share"])),
                            extra_counts(party, payload["name"], payload["count"])])
    let_go(party, payload["name"])
    party.forget(Hello)
    return {"ciphertexts": encrypted(key, whole), "settings": without_secret(key)}


@task("encrypted-sum.decrypt", settings=EncryptedSumSettings, reply=Decrypted, reveals=Reveals.NOTHING)
def decrypt_sum(party: Party, payload: ToDecrypt, settings: EncryptedSumSettings) -> Decrypted:
    """The numbers of a sum."""
    return {"numbers": decrypted(_key(party, payload["has"]), payload["sum"])}


def _key(party: Party, has: str) -> bytes:
    key = party.recall(Key).get("key")
    if key is None or fingerprint(key) != has:
        raise PayloadError(f"party '{party.name}' does not hold the key of this sum")
    return key


@task("encrypted-sum.hello", settings=EncryptedSumSettings, reply=Offering, reveals=Reveals.NOTHING)
def say_hello(party: Party, payload: InSum, settings: EncryptedSumSettings) -> Offering:
    """Which key the party has, and a fresh public key by which it can be given another."""
    private, key = fresh_key(), party.recall(Key).get("key")
    party.keep(Hello, {"round": party.round, "session": payload["session"], "private": private})
    return {"has": fingerprint(key) if key else "", **_signed(party, payload, private)}


@task("encrypted-sum.hand", settings=EncryptedSumSettings, reply=Handed, reveals=Reveals.NOTHING)
def hand_key(party: Party, payload: ToHand, settings: EncryptedSumSettings) -> Handed:
    """The key, made where there is none, sealed for each party that lacks it."""
    key = party.recall(Key).get("key") or new_key()
    party.keep(Key, {"key": key})
    private, session, boxes = fresh_key(), payload["session"], []
    for other, offer in zip(payload["parties"], payload["offers"], strict=True):
        common = in_common(private, [trusted(party, int(other), offer, session)])[0]
        purpose = about(session, b"key", party.index, int(other))
        boxes.append(sealed(derived(common, purpose), key, purpose))
    return {"boxes": boxes, "has": fingerprint(key), "settings": without_secret(key),
            **_signed(party, payload, private)}


@task("encrypted-sum.take", settings=EncryptedSumSettings, reply=Has, reveals=Reveals.NOTHING)
def take_key(party: Party, payload: ToTake, settings: EncryptedSumSettings) -> Has:
    """Open the sealed key and keep it."""
    mine, session, giver = party.recall(Hello), payload["session"], int(payload["giver"])
    if mine.get("session") != session:
        raise PermissionDenied(f"party '{party.name}' takes no part in this sum")
    common = in_common(mine["private"], [trusted(party, giver, payload["offer"], session)])[0]
    purpose = about(session, b"key", giver, party.index)
    key = opened(derived(common, purpose), payload["box"], purpose, f"party {giver}")
    party.keep(Key, {"key": key})
    return {"has": fingerprint(key)}


def trusted(party: Party, other: int, offer: Offer, session: bytes) -> bytes:
    """The public key that another party offers, if it signed it with the identity that it had when first met."""
    if not is_signed(offer["identity"], offer["signature"], about(session, b"offer", other, other) + offer["public"]):
        raise PayloadError(f"the key of party {other} is not signed by it: forged, replayed or altered")
    meet(party, {other: offer["identity"]})
    return offer["public"]


def _unsigned(said: Offer, party: int, session: bytes) -> str:
    """What is wrong with a party's hello, if anything."""
    fits = is_signed(said["identity"], said["signature"], about(session, b"offer", party, party) + said["public"])
    return "" if fits else "it sent a key that it has not signed for this sum"


def _signed(party: Party, payload: InSum, private: bytes) -> Offer:
    seed, public = identity_of(party), public_of(private)
    return {"public": public, "identity": signing_public(seed),
            "signature": signature(seed, about(payload["session"], b"offer", party.index, party.index) + public)}
