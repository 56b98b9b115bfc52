"""Secure aggregation: the coordinator learns a weighted sum of updates and nothing else about them.

Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017; neighbours as in Bell
et al., CCS 2020. The coordinator carries messages between parties that it cannot read, and unmasks what parties that
drop out on the way leave behind, as long as enough of their neighbours stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from tequio.federation.stages import NUMBERS, Room, Summed, Trait
from tequio.privacy.aggregation.fixed_point import Ring
from tequio.privacy.aggregation.graph import needed_of, ring_of_neighbours, safe_degree
from tequio.privacy.aggregation.holding import forget_older, hold
from tequio.privacy.aggregation.party_side import SECRETS, help_unmask, offer_keys, send_masked, share_secrets
from tequio.privacy.aggregation.phases import Phases
from tequio.privacy.aggregation.portions import Portions, portions
from tequio.privacy.aggregation.unmasking import Dealt, keys_fault, masked_fault, shares_fault, unmasked
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies

# Up to so many parties everybody shares a mask with everybody.
_ALL_WITH_ALL = 50
_CORRUPT, _DROPPING = 0.1, 0.2
_FEWEST = 3


@register("stage", "secure-sum", paper="Bonawitz et al., 2017; Bell et al., 2020")
@dataclass(frozen=True)
class SecureSum:
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

    trait: ClassVar[Trait] = Trait(takes=NUMBERS, gives="hidden", hides=True)

    def enter(self, party: Party) -> None:
        """Before the task: forget what earlier rounds left."""
        forget_older(party, SECRETS)

    def send(self, party: Party, payload: Payload) -> Payload:
        """Hold the update back until its weight is known."""
        return hold(party, payload, "secure-sum")

    def receive(self, replies: Replies, round: int, seed: int) -> Replies:
        """Nothing: there is nothing to read."""
        return replies

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, riders: int = 0, room: Room | None = None) -> Summed:
        """Keys, shares, masked updates, unmasking."""
        return _Sum(self, federation, name, parties, portions(weights, room)).run(size, riders)

    def degree(self, parties: int) -> int:
        """How many neighbours each of so many parties has."""
        if self.neighbours:
            return min(self.neighbours, parties - 1)
        return parties - 1 if parties <= _ALL_WITH_ALL else safe_degree(parties, self.threshold, _CORRUPT, _DROPPING)


class _Sum:
    """One sum under way."""

    def __init__(self, stage: SecureSum, federation: Federation, name: str, parties: NDArray[np.int64],
                 portions: Portions) -> None:
        self._stage, self._federation, self._name, self._asked = stage, federation, name, parties
        self._portions = portions
        self._shares = dict(zip(parties.tolist(), portions.shares.tolist(), strict=True))
        self._phases = Phases("secure sum", stage, federation, name, parties,
                              max(needed_of(len(parties), stage.threshold), _FEWEST))

    def run(self, size: int, riders: int) -> Summed:
        """The weighted mean of those who sent a masked update."""
        offered = self._phases.ask("keys", self._asked, offer_keys,
                                   fault=lambda reply: keys_fault(reply, self._phases.session))
        around = ring_of_neighbours(offered.parties, self._stage.degree(len(offered)),
                                    self._federation.rng("secure-sum neighbours"))
        dealt = self._deal(offered, around)
        masked = self._collect(dealt, size + riders)
        self._phases.require("masked", len(masked), self._portions.fewest)
        sent = {reply.party: reply.payload["masked"] for reply in masked}
        shown = self._unmask(dealt, set(sent))
        ring = Ring.of(self._stage.bits, self._stage.largest, self._portions.count)
        total, culprits = unmasked(sent, dealt, shown, self._stage.threshold)
        for culprit, what in culprits:
            self._federation.record("failure", {"round": self._federation.round, "task": "secure-sum",
                                                "party": self._federation.name(culprit), "cause": what, "trace": ""})
        shares = np.array([self._shares[party] for party in sorted(sent)])
        notes = {"secure_sum": {"name": self._name, "asked": len(self._asked), "summed": len(sent),
                                "neighbours": max(map(len, around.values())), "recovered": len(dealt.keys) - len(sent)}}
        whole = ring.signed(total)
        weight = self._portions.weight * float(shares.sum())
        return Summed(whole[:size] / (ring.scale * shares.sum()), np.array(sorted(sent)), weight, notes, whole[:size],
                      (ring.bits, ring.largest, self._portions.count), shares, whole[size:])

    def _deal(self, offered: Replies, around: dict[int, list[int]]) -> Dealt:
        """Let everybody share its secrets with its neighbours; keep those that enough neighbours can help."""
        keys = {reply.party: reply.payload for reply in offered}
        shares = self._phases.ask("shares", offered.parties, share_secrets, each={
            party: {"neighbours": others, **{what: [keys[other][one] for other in others] for what, one in (
                ("keys", "keys"), ("identities", "identity"), ("signatures", "signature"))}}
            for party, others in around.items()}, fault=lambda reply: shares_fault(reply, len(around[reply.party])))
        dealers = _with_enough_help({reply.party for reply in shares}, around, self._stage.threshold)
        self._phases.require("shares", len(dealers))
        return Dealt(self._phases.session, {party: keys[party]["keys"] for party in sorted(dealers)},
                     {reply.party: reply.payload for reply in shares if reply.party in dealers}, around)

    def _collect(self, dealt: Dealt, size: int) -> Replies:
        """Carry the sealed shares on, and collect the masked updates."""
        each = {}
        for party in dealt.keys:
            senders = [other for other in dealt.around[party] if other in dealt.keys]
            boxes = [dealt.said[other]["boxes"][dealt.around[other].index(party)] for other in senders]
            each[party] = {"senders": senders, "boxes": boxes, "share": self._shares[party]}
        room = {"count": self._portions.count}
        return self._phases.ask("masked", np.array(list(dealt.keys)), send_masked, room, each,
                                fault=lambda reply: masked_fault(reply, self._stage.bits, size))

    def _unmask(self, dealt: Dealt, alive: set[int]) -> dict[int, Payload]:
        """Each party's shares: of the masks of those who answered, and of the keys of those who did not."""
        wanted = {}
        for party in sorted(alive):
            others = [other for other in dealt.around[party] if other in dealt.keys]
            wanted[party] = {"alive": [other for other in others if other in alive],
                             "gone": [other for other in others if other not in alive]}
        replies = self._phases.ask("unmask", np.array(sorted(alive)), help_unmask, each=wanted)
        return {reply.party: {**wanted[reply.party], **reply.payload} for reply in replies}


def _with_enough_help(dealers: set[int], around: dict[int, list[int]], threshold: float) -> set[int]:
    """Without those of whose neighbours too few are left, which may leave others with too few, and so on."""
    while True:
        helped = {party for party in dealers
                  if sum(other in dealers for other in around[party]) >= needed_of(len(around[party]), threshold)}
        if helped == dealers:
            return dealers
        dealers = helped
