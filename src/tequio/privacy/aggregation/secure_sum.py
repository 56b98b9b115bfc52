"""Secure aggregation: the coordinator learns a weighted sum of updates and nothing else about them, even if it lies.

Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017; sparse graphs as in
Bell et al., CCS 2020. The coordinator carries messages between parties that it cannot read, adds what they send, and
takes off the masks of parties that drop out. Before any share is opened, witnesses sign who is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.errors import PayloadError, QuorumError, TequioError
from tequio.privacy.aggregation.committees import catch, dispute, left_out
from tequio.privacy.aggregation.encodings import HASH_BYTES, as_bitmap, content, paths_of
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, Phases
from tequio.privacy.aggregation.identities import is_signed_by
from tequio.privacy.aggregation.joint_randomness import JointSettings, agree
from tequio.privacy.aggregation.keys import (
    KEY_BYTES,
    SHARE_BYTES,
    add_masks,
    fresh_key,
    in_common,
    public_of,
    recovered,
)
from tequio.privacy.aggregation.own_weights import WeighedSum, mean_of
from tequio.privacy.aggregation.secure_sum_tasks import (
    ATTEMPTS,
    BOX_BYTES,
    COMMITMENT_BYTES,
    DEALT_BYTES,
    KEY,
    MASK,
    Sum,
    bad_list,
    commitment_of,
    dealt_part,
    hash_of_numbers,
    mask_key,
    masked_part,
    offer_keys,
    open_boxes,
    open_shares,
    own_commitment,
    pieces,
    point_of,
    send_masked,
    share_secrets,
    shown_part,
    sum_of,
    survivors_part,
    witness_survivors,
)
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from numpy.typing import NDArray

    from tequio.federation.averaging import Weights
    from tequio.federation.exchange import Replies, Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload, R
    from tequio.federation.stages import SumCapacity, Summed
    from tequio.federation.task import Task
    from tequio.privacy.aggregation.committees import Members
    from tequio.privacy.aggregation.keys import Whole
    from tequio.privacy.aggregation.own_weights import SumSettings
    from tequio.privacy.aggregation.secure_sum_tasks import Masked, Offered, Opened, Shared, Shown, Witnessed


@register("stage", "secure-sum", paper="Bonawitz et al., 2017; Bell et al., 2020")
@dataclass(frozen=True)
class SecureSum(WeighedSum):
    """Secure aggregation: parties mask their updates so that only the weighted sum of all can be read.

    It holds against a coordinator that lies and colludes with some of the parties. Each party weighs itself, between a
    sixteenth and one; numbers of rows do not leave it, losses do. A sum is exact in fixed point, whoever drops out.

    Parameters:
        corrupt: share of all parties of the run that may collude with the coordinator
        absent: share of a round's parties that may drop out
        cap: rows of a party that weighs in full (0: as many as the largest party reports)
        bits: of the ring that sums are taken in
        largest: largest size of an entry that a party may send
    """

    bits: Literal[32, 64] = 32

    @property
    def ring(self) -> tuple[int, float]:
        """As set."""
        return self.bits, self.largest

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, extra_counts: int = 0, capacity: SumCapacity | None = None, by: Weights = "size") -> Summed:
        """Joint randomness, keys, shares, masked updates, witnesses, unmasking."""
        return _Sum(self, federation, name, parties, capacity, by).run(size, extra_counts)


class _Sum:
    """One sum under way, at the coordinator."""

    def __init__(self, stage: SecureSum, federation: Federation, name: str, parties: NDArray[np.int64],
                 capacity: SumCapacity | None, by: Weights) -> None:
        self._stage, self._federation, self._name = stage, federation, name
        phases = Phases("secure sum", federation, parties, 0)
        seed, cohort = agree(phases, federation, parties, stage, JointSettings(stage=stage, local=NO_TRAINING))
        # Who is left out has dropped out of the sum.
        self._asked = np.setdiff1d(parties, list(left_out(federation, cohort.corrupt)))
        self._settings, self._capacity = stage.terms(federation, cohort, len(parties), capacity, by), capacity
        self._fewest = self._settings.fewest
        self._seed, self._cohort, self._phases = seed, cohort, Phases("secure sum", federation, parties, self._fewest)
        self._here = self._number(1)
        self._shared_among = b""

    def run(self, size: int, extra_counts: int) -> Summed:
        """The weighted mean of those who sent a masked update and are left."""
        keys = self._offered()
        dealt = self._dealt(keys)
        dealers = self._carried(keys, dealt)
        sent = self._collected(dealers, size + 1 + extra_counts)
        left = self._sound("masked", sent)
        total = sum_of_masked([sent[party].payload["masked"] for party in left])
        members, among = self._bitmap(left), self._bitmap(dealers)
        shown = self._shown(among, members, sent, self._witnessed(among, members))
        unmask(total, Dealt(self._here, self._shared_among, among, members, keys, dealt), shown, self._note,
               partial(catch, self._federation))
        notes = {"secure_sum": {"name": self._name, "asked": len(self._asked), "summed": len(left),
                                "recovered": len(dealers) - len(left), "neighbours": self._here.circle.graph.degree}}
        return mean_of(total, size, left, self._settings, self._capacity, notes)

    def _number(self, attempt: int) -> Sum:
        """What follows from the number of the attempt; messages say which it is."""
        self._phases.common.update({"name": self._name, "attempt": attempt})
        return sum_of(self._federation.roster, self._cohort, self._seed, self._federation.round, self._name, attempt,
                      self._settings)

    def _offered(self) -> dict[int, Reply[Offered]]:
        """Two keys of each party (R0). Played again after a crash, parties may have left an attempt behind."""
        for attempt in range(1, ATTEMPTS + 1):
            self._here = self._number(attempt)
            replies = self._phases.ask("keys", self._asked, offer_keys, settings=self._settings, fewest=0,
                                       fault=partial(keys_fault, self._here), lenient=attempt < ATTEMPTS)
            if len(replies) >= self._fewest:
                break
        return self._kept("keys", replies)

    def _dealt(self, keys: dict[int, Reply[Offered]]) -> dict[int, Reply[Shared]]:
        """Boxes of shares for neighbours, from each party (R1)."""
        members, each = self._bitmap(keys), dict[int, "Payload"]()
        for party in keys:
            around = [keys[other].payload for other in self._here.around(party, members)]
            each[party] = {"keys": b"".join(one["keys"] for one in around),
                           "signatures": b"".join(one["signature"] for one in around)}
        replies = self._ask("shares", keys, share_secrets, {"members": members}, each,
                            partial(shares_fault, self._here, members))
        self._shared_among = members
        return self._kept("shares", replies)

    def _carried(self, keys: dict[int, Reply[Offered]], dealt: dict[int, Reply[Shared]]) -> list[int]:
        """Bring the boxes to their holders, who say which are bad (R2); whose shares enough parties hold."""
        members, before = self._bitmap(dealt), self._shared_among
        boxes = {party: pieces(reply.payload["dealt"], DEALT_BYTES) for party, reply in dealt.items()}
        paths = {party: paths_of([reply.payload["own"], *boxes[party]]) for party, reply in dealt.items()}
        place = {party: {other: at for at, other in enumerate(self._here.around(party, before))} for party in dealt}
        each: dict[int, Payload] = {}
        for party in dealt:
            around = self._here.around(party, members)
            each[party] = {"dealt": [boxes[other][place[other][party]] for other in around],
                           "paths": [paths[other][place[other][party] + 1] for other in around],
                           "signatures": [dealt[other].payload["signature"] for other in around]}
        replies = self._ask("boxes", dealt, open_boxes, {"members": members}, each, partial(boxes_fault, self._here))
        bad = {(dealer, reply.party) for reply in replies for dealer in reply.payload["bad"]}
        dispute(self._federation, bad)
        for dealer, holder in sorted(bad):
            self._note(dealer, f"party {holder} says that its box is bad; one of the two does not keep to the protocol")
        holding, enough = self._bitmap(replies.parties.tolist()), min(
            self._here.circle.graph.needed + self._cohort.absent, self._here.circle.graph.degree)
        good = {party: sum((party, other) not in bad for other in self._here.around(party, holding)) for party in dealt}
        disputed = {party for party, _ in bad if good[party] < enough}
        return list(self._kept("boxes", replies, without=disputed))

    def _collected(self, dealers: list[int], size: int) -> dict[int, Reply[Masked]]:
        """The masked updates (R3)."""
        members = self._bitmap(dealers)
        replies = self._ask("masked", dealers, send_masked, {"members": members}, None,
                            partial(masked_fault, self._here, members, self._stage.bits, size))
        return {reply.party: reply for reply in replies}

    def _witnessed(self, dealers: bytes, members: bytes) -> dict[int, bytes]:
        """Signatures of witnesses under who is left (R4)."""
        asked = [party for party in self._here.witnesses if self._here.has(members, party)]
        statement = survivors_part(self._here.sid, dealers, members)
        replies = self._phases.ask("witness", np.array(asked, dtype=np.int64), witness_survivors, {"members": members},
                                   settings=self._settings, fewest=self._here.quorum,
                                   fault=partial(witness_fault, self._here, statement))
        return {reply.party: reply.payload["signature"] for reply in replies}

    def _shown(self, dealers: bytes, members: bytes, sent: dict[int, Reply[Masked]],
               signed: dict[int, bytes]) -> dict[int, Reply[Shown]]:
        """Shares of what is to be taken off, from all who are left (R5)."""
        hashes = {party: hash_of_numbers(reply.payload["masked"]) for party, reply in sent.items()}
        left, each = [party for party in sent if self._here.has(members, party)], dict[int, "Payload"]()
        for party in left:
            around = self._here.around(party, members)
            each[party] = {"hashes": b"".join(hashes[other] for other in around),
                           "signatures": b"".join(sent[other].payload["signature"] for other in around)}
        replies = self._ask("open", left, open_shares, {
            "members": members, "witnesses": list(signed), "statements": b"".join(signed.values())}, each,
            partial(shown_fault, self._here, dealers), fewest=self._here.circle.graph.needed)
        return {reply.party: reply for reply in replies}

    def _ask(self, phase: str, parties: Iterable[int], task: Task[SumSettings, R], payload: Payload,
             each: dict[int, Payload] | None, fault: Callable[[Reply[R]], str],
             fewest: int | None = None) -> Replies[R]:
        return self._phases.ask(phase, np.array(sorted(parties), dtype=np.int64), task, payload, each,
                                settings=self._settings, fault=fault, fewest=fewest)

    def _kept(self, phase: str, replies: Replies[R], without: Collection[int] = ()) -> dict[int, Reply[R]]:
        """The answers of the sound part of those who gave one, by party."""
        by_party = {reply.party: reply for reply in replies if reply.party not in without}
        return {party: by_party[party] for party in self._sound(phase, by_party)}

    def _sound(self, phase: str, parties: Iterable[int]) -> list[int]:
        """Without those who have too few neighbours among them, which may leave others with too few, and so on."""
        members: Members = np.isin(self._here.circle.cohort, list(parties))
        left = self._here.circle.cohort[self._here.circle.peeled(members)].tolist()
        self._phases.require(phase, len(left))
        return [int(party) for party in left]

    def _bitmap(self, members: Iterable[int]) -> bytes:
        return as_bitmap(self._here.circle.cohort, list(members))

    def _note(self, party: int, cause: str) -> None:
        self._federation.record("failure", {"round": self._federation.round, "task": "secure-sum", "trace": "",
                                            "party": self._federation.name(party), "cause": cause})


def sum_of_masked(masked: list[Whole]) -> Whole:
    """The sum of what parties sent."""
    total = masked[0].copy()
    for one in masked[1:]:
        total += one
    return total


@dataclass(frozen=True)
class Dealt:
    """What the coordinator knows when shares have been opened: among whom shares were dealt, with whom masks are, who
    is left, and what parties offered and dealt."""

    here: Sum
    shared_among: bytes
    dealers: bytes
    left: bytes
    keys: dict[int, Reply[Offered]]
    dealt: dict[int, Reply[Shared]]

    def place(self, dealer: int) -> dict[int, int]:
        """Where each holder's box stands among those of a dealer."""
        return {holder: place for place, holder in enumerate(self.here.around(dealer, self.shared_among))}

    def members(self, bitmap: bytes) -> list[int]:
        """A set as numbers of parties."""
        return [int(party) for party in self.here.circle.cohort[self.here.members(bitmap)]]


def unmask(total: Whole, known: Dealt, shown: dict[int, Reply[Shown]], note: Callable[[int, str], None],
           catch: Callable[[int], None]) -> None:
    """Take off, in place, the own masks of who is left and the masks with who is not; note who showed forged shares,
    and catch who dealt shares of something else."""
    here = known.here
    opened = {holder: dict(zip(here.around(holder, known.dealers), pieces(reply.payload["shares"], SHARE_BYTES),
                               strict=True)) for holder, reply in shown.items()}
    left, dealers = known.members(known.left), known.members(known.dealers)
    add_masks(total, [], [_secret(party, MASK, known, opened, note, catch) for party in left])
    for party in sorted(set(dealers) - set(left)):
        private, others = _secret(party, KEY, known, opened, note, catch), here.around(party, known.left)
        keys = {other: mask_key(here, common, party, other) for other, common in zip(others, in_common(
            private, [known.keys[other].payload["keys"][KEY_BYTES:] for other in others]), strict=True)}
        # A neighbour took the mask off if it has the larger number: put it back, and the reverse.
        add_masks(total, [keys[other] for other in others if other > party],
                  [keys[other] for other in others if other < party])


def _secret(dealer: int, kind: str, known: Dealt, opened: dict[int, dict[int, bytes]],
            note: Callable[[int, str], None], catch: Callable[[int], None]) -> bytes:
    """A secret from its neighbours' shares, of which forged ones are told by their commitments."""
    here, said, place = known.here, known.dealt[dealer].payload, known.place(dealer)
    committed, needed = pieces(said["dealt"], DEALT_BYTES), here.circle.graph.needed
    start = BOX_BYTES + (0 if kind == MASK else COMMITMENT_BYTES)
    true: dict[int, bytes] = {}
    for holder in here.around(dealer, known.left):
        share = opened[holder][dealer] if holder in opened else bytes(SHARE_BYTES)
        if len(true) == needed or not any(share):
            continue
        promised = committed[place[holder]][start:start + COMMITMENT_BYTES]
        if commitment_of(here.sid, dealer, holder, kind, share) == promised:
            true[holder] = share
        else:
            note(holder, f"it showed a forged share of what party {dealer} had shared")
    if len(true) < needed:
        raise QuorumError(f"only {len(true)} neighbours of party {dealer} showed true shares, and {needed} are needed: "
                          "the round of the secure sum is lost", remedy="ask more parties per round", lost=True)
    secret = _recovered([*true], [*true.values()])
    found = own_commitment(here.sid, dealer, secret) if kind == MASK else public_of(secret)
    if found != (said["own"] if kind == MASK else known.keys[dealer].payload["keys"][KEY_BYTES:]):
        catch(dealer)
        cause = "it shared another secret than the one it uses, so that its masks cannot be taken off"
        note(dealer, cause)
        raise QuorumError(f"party {dealer} failed the secure sum: {cause}. The round is lost, and later ones go "
                          "without that party", lost=True,
                          remedy="set rules.on_failure = 'continue' to go on after a lost round")
    return secret


def _recovered(holders: list[int], shares: list[bytes]) -> bytes:
    try:
        return recovered([point_of(holder) for holder in holders], np.stack(
            [np.frombuffer(share, dtype="<u4") for share in shares]))
    except PayloadError:
        return bytes(KEY_BYTES)  # no secret at all: another than was committed to


def keys_fault(here: Sum, reply: Reply[Offered]) -> str:
    """What is wrong with the keys that a party offers, if anything."""
    keys = reply.payload["keys"]
    if len(keys) != 2 * KEY_BYTES or not is_signed_by(here.roster, reply.party, reply.payload["signature"], content(
            "keys", here.sid, reply.party, keys)):
        return "it sent keys that it has not signed for this sum"
    try:
        in_common(_OWN, pieces(keys, KEY_BYTES))
    except TequioError as cause:
        return cause.message
    return ""


_OWN = fresh_key()
"""By this it is tried out whether keys can be used."""


def shares_fault(here: Sum, members: bytes, reply: Reply[Shared]) -> str:
    """What is wrong with what a party dealt; whether boxes open is for their holders to find out."""
    said, dealt = reply.payload, pieces(reply.payload["dealt"], DEALT_BYTES)
    if len(said["dealt"]) != DEALT_BYTES * len(here.around(reply.party, members)) or len(said["own"]) != HASH_BYTES:
        return "it did not send one sealed box and two commitments for each neighbour"
    signed = is_signed_by(here.roster, reply.party, said["signature"],
                          dealt_part(here.sid, reply.party, said["own"], dealt))
    return "" if signed else "it dealt boxes that it has not signed"


def boxes_fault(here: Sum, reply: Reply[Opened]) -> str:
    """What is wrong with a list of bad boxes."""
    said = reply.payload
    if not set(said["bad"]) <= set(here.circle.neighbours(reply.party)):
        return "it says that boxes are bad of parties that are no neighbours"
    signed = is_signed_by(here.roster, reply.party, said["signature"], bad_list(here.sid, reply.party, said["bad"]))
    return "" if signed else "it has not signed which boxes are bad"


def masked_fault(here: Sum, dealers: bytes, bits: int, size: int, reply: Reply[Masked]) -> str:
    """What is wrong with a masked update."""
    masked = reply.payload["masked"]
    if masked.dtype.itemsize * 8 != bits or masked.shape != (size,) or masked.dtype.kind != "u":
        return f"it did not send a masked update of {size} numbers of {bits} bits"
    signed = is_signed_by(here.roster, reply.party, reply.payload["signature"], masked_part(
        here.sid, dealers, reply.party, hash_of_numbers(masked)))
    return "" if signed else "it sent a masked update that it has not signed"


def witness_fault(here: Sum, statement: bytes, reply: Reply[Witnessed]) -> str:
    """What is wrong with a witness's signature."""
    signed = is_signed_by(here.roster, reply.party, reply.payload["signature"], statement)
    return "" if signed else "it has not signed who is left"


def shown_fault(here: Sum, dealers: bytes, reply: Reply[Shown]) -> str:
    """What is wrong with the form of opened shares; whether they are true their commitments say."""
    said = reply.payload
    if len(said["shares"]) != SHARE_BYTES * len(here.around(reply.party, dealers)):
        return "it did not show one share of each neighbour"
    signed = is_signed_by(here.roster, reply.party, said["signature"],
                          shown_part(here.sid, reply.party, said["shares"]))
    return "" if signed else "it showed shares that it has not signed"
