"""Secure aggregation: the coordinator learns a weighted sum of updates and nothing else about them.

Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017; neighbours as in Bell
et al., CCS 2020. The coordinator carries messages between parties that it cannot read, adds what they send, and takes
off the masks that parties leave behind when they drop out, as long as enough of their neighbours stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.errors import PayloadError, QuorumError
from tequio.federation.stages import NUMBERS, StageSpec, SumCapacity, Summed, SummingStage
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, Phases, Ring, SumWeights, in_sum
from tequio.privacy.aggregation.keys import (
    KEY_BYTES,
    SHARE_BYTES,
    add_masks,
    derived,
    in_common,
    is_signed,
    needed_of,
    public_of,
    recovered,
    ring_of_neighbours,
    safe_degree,
)
from tequio.privacy.aggregation.secure_sum_tasks import (
    COMMITMENT_BYTES,
    Masked,
    Offered,
    Secrets,
    SecureSumSettings,
    Shared,
    committed,
    help_unmask,
    offer_keys,
    pair_purpose,
    point_of,
    send_masked,
    share_secrets,
    signed_part,
)
from tequio.privacy.updates import forget_older, hold
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Replies, Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.privacy.aggregation.keys import Whole

    Culprits = list[tuple[int, str]]
    Secret = Literal["masks", "keys"]
    Shares = dict[Secret, dict[int, bytes]]


# Up to this number of parties each shares a mask with all others.
_ALL_WITH_ALL = 50
_CORRUPT, _DROPPING = 0.1, 0.2
_FEWEST = 3


@register("stage", "secure-sum", paper="Bonawitz et al., 2017; Bell et al., 2020")
@dataclass(frozen=True)
class SecureSum(SummingStage):
    """Secure aggregation: parties mask their updates so that only the weighted sum of all can be read.

    Numbers of rows, steps and losses cross in the open. A sum is exact in fixed point, whoever drops out.

    Parameters:
        threshold: more than this share of a party's neighbours must stay to unmask the sum; below, the run stops
        neighbours: with how many others each party shares masks (0: with all, and from 51 parties on with as many as
            keep the sum secret from the coordinator and a tenth of the parties, and let a fifth drop out)
        bits: of the ring that sums are taken in
        largest: largest size of an entry that a party may send
    """

    threshold: Annotated[float, Interval(ge=0.5, lt=1)] = 0.5
    neighbours: Annotated[int, Ge(0)] = 0
    bits: Literal[32, 64] = 32
    largest: Annotated[float, Gt(0)] = 64.0

    @property
    def spec(self) -> StageSpec:
        """How it goes with other stages."""
        return StageSpec(takes=NUMBERS, gives="hidden", hides=True)

    def enter(self, party: Party) -> None:
        """Before the task: forget what earlier rounds left."""
        forget_older(party, Secrets)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Hold the update back until its weight is known."""
        return hold(party, payload, "secure-sum")

    @property
    def ring(self) -> tuple[int, float]:
        """As set."""
        return self.bits, self.largest

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, extra_counts: int = 0, capacity: SumCapacity | None = None) -> Summed:
        """Keys, shares, masked updates, unmasking."""
        return _Sum(self, federation, name, parties, SumWeights.of(weights, capacity)).run(size, extra_counts)

    def degree(self, parties: int) -> int:
        """How many neighbours each party has."""
        if self.neighbours:
            return min(self.neighbours, parties - 1)
        return parties - 1 if parties <= _ALL_WITH_ALL else safe_degree(parties, self.threshold, _CORRUPT, _DROPPING)


class _Sum:
    """One sum under way."""

    def __init__(self, stage: SecureSum, federation: Federation, name: str, parties: NDArray[np.int64],
                 weights: SumWeights) -> None:
        self._stage, self._federation, self._name, self._asked = stage, federation, name, parties
        self._weights = weights
        self._shares = dict(zip(parties.tolist(), weights.shares.tolist(), strict=True))
        self._settings = SecureSumSettings(threshold=stage.threshold, bits=stage.bits, largest=stage.largest,
                                           local=NO_TRAINING)
        self._phases = Phases("secure sum", federation, parties, max(needed_of(len(parties), stage.threshold), _FEWEST),
                              in_sum(name))

    def run(self, size: int, extra_counts: int) -> Summed:
        """The weighted mean of those who sent a masked update."""
        offered = self._phases.ask("keys", self._asked, offer_keys, settings=self._settings,
                                   fault=lambda reply: keys_fault(reply, self._phases.common["session"]))
        around = ring_of_neighbours(offered.parties, self._stage.degree(len(offered)),
                                    self._federation.rng("secure-sum neighbours"))
        dealt = self._deal(offered, around)
        masked = self._collect(dealt, size + extra_counts)
        self._phases.require("masked", len(masked), self._weights.fewest)
        sent = {reply.party: reply.payload["masked"] for reply in masked}
        shown = self._unmask(dealt, set(sent))
        ring = Ring.of(self._stage.bits, self._stage.largest, self._weights.count)
        total, culprits = unmasked(sent, dealt, shown, self._stage.threshold)
        for culprit, what in culprits:
            self._federation.record("failure", {"round": self._federation.round, "task": "secure-sum",
                                                "party": self._federation.name(culprit), "cause": what, "trace": ""})
        shares = np.array([self._shares[party] for party in sorted(sent)])
        notes = {"secure_sum": {"name": self._name, "asked": len(self._asked), "summed": len(sent),
                                "neighbours": max(map(len, around.values())), "recovered": len(dealt.keys) - len(sent)}}
        whole = ring.signed(total)
        weight = self._weights.weight * float(shares.sum())
        return Summed(whole[:size] / (ring.scale * shares.sum()), np.array(sorted(sent)), weight, notes, whole[:size],
                      (ring.bits, ring.largest, self._weights.count), shares, whole[size:])

    def _deal(self, offered: Replies[Offered], around: dict[int, list[int]]) -> Dealt:
        """Let everybody share its secrets with its neighbours; keep those that enough neighbours can help."""
        keys = {reply.party: reply.payload for reply in offered}
        each: dict[int, Payload] = {party: {
            "neighbours": others, "keys": [keys[other]["keys"] for other in others],
            "identities": [keys[other]["identity"] for other in others],
            "signatures": [keys[other]["signature"] for other in others]} for party, others in around.items()}
        shares = self._phases.ask("shares", offered.parties, share_secrets, each=each, settings=self._settings,
                                  fault=lambda reply: shares_fault(reply, len(around[reply.party])))
        dealers = _with_enough_help({reply.party for reply in shares}, around, self._stage.threshold)
        self._phases.require("shares", len(dealers))
        return Dealt(self._phases.common["session"], {party: keys[party]["keys"] for party in sorted(dealers)},
                     {reply.party: reply.payload for reply in shares if reply.party in dealers}, around)

    def _collect(self, dealt: Dealt, size: int) -> Replies[Masked]:
        """Carry the sealed shares on, and collect the masked updates."""
        each = {}
        for party in dealt.keys:
            senders = [other for other in dealt.around[party] if other in dealt.keys]
            boxes = [dealt.said[other]["boxes"][dealt.around[other].index(party)] for other in senders]
            each[party] = {"senders": senders, "boxes": boxes, "share": self._shares[party]}
        return self._phases.ask("masked", np.array(list(dealt.keys)), send_masked, {"count": self._weights.count}, each,
                                settings=self._settings,
                                fault=lambda reply: masked_fault(reply, self._stage.bits, size))

    def _unmask(self, dealt: Dealt, alive: set[int]) -> dict[int, Shares]:
        """Each party's shares: of the masks of those who answered, and of the keys of those who did not."""
        wanted: dict[int, Payload] = {}
        for party in sorted(alive):
            others = [other for other in dealt.around[party] if other in dealt.keys]
            wanted[party] = {"alive": [other for other in others if other in alive],
                             "gone": [other for other in others if other not in alive]}
        replies = self._phases.ask("unmask", np.array(sorted(alive)), help_unmask, each=wanted, settings=self._settings)
        return {reply.party: {"masks": _by_dealer(wanted[reply.party]["alive"], reply.payload["masks"]),
                              "keys": _by_dealer(wanted[reply.party]["gone"], reply.payload["keys"])}
                for reply in replies}


def _by_dealer(dealers: list[int], shares: list[bytes]) -> dict[int, bytes]:
    """Whose shares a party showed; nobody's where it did not show one for each that it was asked for."""
    return dict(zip(dealers, shares, strict=True)) if len(shares) == len(dealers) else {}


def _with_enough_help(dealers: set[int], around: dict[int, list[int]], threshold: float) -> set[int]:
    """Without those of whose neighbours too few are left, which may leave others with too few, and so on."""
    while True:
        helped = {party for party in dealers
                  if sum(other in dealers for other in around[party]) >= needed_of(len(around[party]), threshold)}
        if helped == dealers:
            return dealers
        dealers = helped


SEAL_BYTES = 16
"""By so much a sealed box is longer than what is in it."""


@dataclass(frozen=True)
class Dealt:
    """What the coordinator knows after shares were dealt: public keys, sealed shares with commitments, neighbours."""

    session: bytes
    keys: dict[int, bytes]
    said: dict[int, Shared]
    around: dict[int, list[int]]


def unmasked(sent: dict[int, Whole], dealt: Dealt, shown: dict[int, Shares],
             threshold: float) -> tuple[Whole, Culprits]:
    """The sum of what is under the masks, and who showed forged shares."""
    culprits: Culprits = []
    total = _sum_of(sent)
    add_masks(total, [], [_secret(party, "masks", dealt, shown, threshold, culprits) for party in sent])
    for party in sorted(dealt.keys.keys() - sent.keys()):
        private = _secret(party, "keys", dealt, shown, threshold, culprits)
        others = [other for other in dealt.around[party] if other in sent]
        common = in_common(private, [dealt.keys[other][KEY_BYTES:] for other in others])
        keys = {other: derived(secret, pair_purpose(dealt.session, party, other))
                for other, secret in zip(others, common, strict=True)}
        # A neighbour took the mask off if it has the larger number: put it back, and the reverse.
        add_masks(total, [keys[other] for other in others if other > party],
                  [keys[other] for other in others if other < party])
    return total, culprits


def _sum_of(sent: dict[int, Whole]) -> Whole:
    first, *others = sent.values()
    total = first.copy()
    for masked in others:
        if len(masked) != len(total):
            raise PayloadError(f"masked updates of {len(total)} and {len(masked)} numbers cannot be added")
        total += masked
    return total


def _secret(dealer: int, what: Secret, dealt: Dealt, shown: dict[int, Shares], threshold: float,
            culprits: Culprits) -> bytes:
    """A party's own mask or masking key from its neighbours' shares; forged ones are told by their commitments."""
    points: list[int] = []
    shares: list[NDArray[np.uint32]] = []
    needed = needed_of(len(dealt.around[dealer]), threshold)
    for place, holder in enumerate(dealt.around[dealer]):
        share = shown[holder][what].get(dealer) if holder in shown else None
        if share is None or len(points) == needed:
            continue
        if _is_true(dealer, holder, place, what, share, dealt):
            points.append(point_of(holder))
            shares.append(np.frombuffer(share, dtype="<u4"))
        else:
            culprits.append((holder, f"it showed a forged share of what party {dealer} had shared"))
    if len(points) < needed:
        raise QuorumError(f"only {len(points)} of {len(dealt.around[dealer])} neighbours of party {dealer} showed true "
                          f"shares, and {needed} are needed", remedy="ask more parties, or lower the stage's threshold")
    secret = recovered(points, np.stack(shares))
    expected = dealt.said[dealer]["own_mask"] if what == "masks" else dealt.keys[dealer][KEY_BYTES:]
    found = committed(dealt.session, dealer, -1, secret) if what == "masks" else public_of(secret)
    if found != expected:
        raise PayloadError(f"party {dealer} shared another secret than the one it uses, so that its masks cannot be "
                           "taken off", remedy="leave that party out")
    return secret


def _is_true(dealer: int, holder: int, place: int, what: Secret, share: object, dealt: Dealt) -> bool:
    start = 0 if what == "masks" else COMMITMENT_BYTES
    promised = dealt.said[dealer]["commitments"][place][start:start + COMMITMENT_BYTES]
    return (isinstance(share, bytes) and len(share) == SHARE_BYTES
            and committed(dealt.session, dealer, holder, share) == promised)


def keys_fault(reply: Reply[Offered], session: bytes) -> str:
    """What is wrong with the keys that a party offers, if anything."""
    keys, identity, signed = reply.payload["keys"], reply.payload["identity"], reply.payload["signature"]
    if len(keys) != 2 * KEY_BYTES or not is_signed(identity, signed, signed_part(session, reply.party, keys)):
        return "it sent keys that it has not signed for this sum"
    return ""


def shares_fault(reply: Reply[Shared], neighbours: int) -> str:
    """What is wrong with the form of sealed shares; whether they open is for their receivers to find out."""
    boxes, promises = reply.payload["boxes"], reply.payload["commitments"]
    for pieces, length in ((boxes, 2 * SHARE_BYTES + SEAL_BYTES), (promises, 2 * COMMITMENT_BYTES)):
        if len(pieces) != neighbours or any(not isinstance(piece, bytes) or len(piece) != length for piece in pieces):
            return "it did not send one sealed box and one commitment for each neighbour"
    return ""


def masked_fault(reply: Reply[Masked], bits: int, size: int) -> str:
    """What is wrong with the form of a masked update."""
    masked = reply.payload["masked"]
    if masked.dtype.itemsize * 8 != bits or masked.shape != (size,) or masked.dtype.kind != "u":
        return f"it did not send a masked update of {size} numbers of {bits} bits"
    return ""
