"""Secure aggregation for large cohorts: each party sends one message, and absent ones cost nothing.

In the line of LERNA (Li et al., ASIACRYPT 2023), OPA (Karthikeyan and Polychroniadou, 2024) and Willow (Bell-Clark et
al., 2025): every update is encrypted under a key of its own, keys add up like what they encrypt, and a committee, among
whom every party has shared its key, opens the sum of the keys of those that it has agreed on. Nobody ever puts the key
of one party together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np
from annotated_types import Ge

from tequio.errors import PayloadError, QuorumError
from tequio.privacy.aggregation import ring_lwe
from tequio.privacy.aggregation.encodings import as_bitmap
from tequio.privacy.aggregation.hidden_sums import NO_TRAINING, Phases
from tequio.privacy.aggregation.identities import SIGNATURE_BYTES, is_signed_by
from tequio.privacy.aggregation.joint_randomness import JointSettings, agree
from tequio.privacy.aggregation.keys import KEY_BYTES, fresh_key, in_common
from tequio.privacy.aggregation.one_shot_tasks import (
    CHECKS,
    NOBODY,
    OneShot,
    agree_on_survivors,
    check_shares,
    offer_key,
    one_shot,
    open_sum,
    send_encrypted,
)
from tequio.privacy.aggregation.own_weights import WeighedSum, mean_of
from tequio.privacy.aggregation.packed_shares import PRIME, uniform
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from tequio.federation.averaging import Weights
    from tequio.federation.exchange import Replies, Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload, R
    from tequio.federation.stages import SumCapacity, Summed
    from tequio.federation.task import Task
    from tequio.privacy.aggregation.one_shot_tasks import Agreed, Checked, Offered, Sent, Shares
    from tequio.privacy.aggregation.own_weights import SumSettings


@register("stage", "one-shot-sum", paper="Li et al., 2023; Bell-Clark et al., 2025")
@dataclass(frozen=True)
class OneShotSum(WeighedSum):
    """Secure aggregation for large cohorts: each party sends one encrypted message, and a committee opens the sum.

    It holds against a coordinator that lies and colludes with some of the parties, and gives the very numbers of
    `secure-sum` with 32 bits. Each party weighs itself, between a sixteenth and one; numbers of rows do not leave it,
    losses do. A message is larger than that of `secure-sum`, and parties that drop out cost nothing.

    Parameters:
        corrupt: share of all parties of the run that may collude with the coordinator
        absent: share of a round's parties that may drop out
        cap: rows of a party that weighs in full (0: as many as the largest party reports)
        largest: largest size of an entry that a party may send
        fewest: how many updates a sum has at least, where parties want more than the protocol needs
    """

    fewest: Annotated[int, Ge(0)] = 0

    @property
    def ring(self) -> tuple[int, float]:
        """What a ciphertext has room for."""
        return ring_lwe.PLAIN_BITS, self.largest

    def total(self, federation: Federation, parties: NDArray[np.int64], name: str, weights: NDArray[np.float64],
              size: int, extra_counts: int = 0, capacity: SumCapacity | None = None, by: Weights = "size") -> Summed:
        """Joint randomness and a committee, messages, checks, agreement, opening."""
        return _Sum(self, federation, name, parties, capacity, by).run(size, extra_counts)


class _Sum:
    """One sum under way, at the coordinator."""

    def __init__(self, stage: OneShotSum, federation: Federation, name: str, parties: NDArray[np.int64],
                 capacity: SumCapacity | None, by: Weights) -> None:
        self._stage, self._federation, self._name = stage, federation, name
        seed, cohort = agree(Phases("one-shot sum", federation, parties, 0), federation, parties, stage,
                             JointSettings(stage=stage, local=NO_TRAINING))
        # Who has not learnt the joint randomness has dropped out of the sum.
        self._asked = np.intersect1d(parties, cast("list[int]", federation.agreed["learnt"]))
        self._settings = stage.terms(federation, cohort, len(parties), capacity, by, stage.fewest)
        self._capacity = capacity
        ring_lwe.check_room(self._settings.room)
        self._phases = Phases("one-shot sum", federation, parties, self._settings.fewest, {"name": name})
        self._here = one_shot(federation.roster, cohort, seed, federation.round, name, self._settings)

    def run(self, size: int, extra_counts: int) -> Summed:
        """The weighted mean of those whose message arrived and fits."""
        keys, signatures = self._committee()
        sent = self._sent(keys, signatures, size + 1 + extra_counts)
        left = self._fitting(sent, keys)
        survivors = self._bitmap(left)
        keys_summed = self._opened(survivors, self._agreed(survivors))
        total = np.zeros(size + 1 + extra_counts, dtype=np.uint64)
        for count, party in enumerate(left, 1):
            ring_lwe.add(total, sent[party].payload["ciphertext"], count)
        whole = ring_lwe.open_sum(self._here.ring, keys_summed, total, len(left))
        notes = {"one_shot_sum": {"name": self._name, "asked": len(self._asked), "summed": len(left),
                                  "committee": len(self._here.committee), "opened_by": len(self._sitting)}}
        return mean_of(whole, size, left, self._settings, self._capacity, notes)

    def _committee(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Keys and signatures of the members that offered any (Q0), from memory where the committee is the same."""
        known = cast("dict[str, bytes]", self._federation.agreed.setdefault("committee", {}))
        missing = [party for party in self._here.committee if str(party) not in known and party in self._asked]
        replies = self._ask("offer", missing, offer_key, {}, fault=partial(offer_fault, self._here))
        known.update({str(reply.party): reply.payload["key"] + reply.payload["signature"] for reply in replies})
        offered = {party: known[str(party)] for party in self._here.committee if str(party) in known}
        if len(offered) < self._here.packing.needed:
            raise QuorumError(f"only {len(offered)} of the {len(self._here.committee)} members of the committee are "
                              f"here, and {self._here.packing.needed} are needed to open a sum",
                              remedy="ask more parties per round")
        return ({party: both[:KEY_BYTES] for party, both in offered.items()},
                {party: both[KEY_BYTES:] for party, both in offered.items()})

    def _sent(self, keys: Mapping[int, bytes], signatures: Mapping[int, bytes], size: int) -> dict[int, Reply[Sent]]:
        """The messages of the parties (Q1)."""
        committee = self._here.committee
        replies = self._ask("send", self._asked, send_encrypted, {
            "keys": b"".join(keys.get(party, NOBODY) for party in committee),
            "signatures": b"".join(signatures.get(party, bytes(SIGNATURE_BYTES)) for party in committee)},
            fault=partial(sent_fault, self._here, len(keys), size))
        self._phases.require("send", len(replies))
        return {reply.party: reply for reply in replies}

    def _fitting(self, sent: Mapping[int, Reply[Sent]], keys: Mapping[int, bytes]) -> list[int]:
        """The parties whose shares members can open and lie on polynomials of the right degree (Q2).

        A member that disagrees with the others about more parties than may be corrupt is itself at fault.
        """
        candidates = sorted(sent)
        common = {"members": self._bitmap(candidates), **{
            name: b"".join(sent[party].payload["public"] if name == "publics" else sent[party].payload["signature"]
                           for party in candidates) for name in ("publics", "signatures")},
            "hashes": b"".join(sha256(sent[party].payload["boxes"]).digest() for party in candidates)}
        width, each = self._here.box_bytes, dict[int, "Payload"]()
        for place, member in enumerate(keys):
            each[member] = {"boxes": b"".join(sent[party].payload["boxes"][place * width:(place + 1) * width]
                                              for party in candidates)}
        replies = self._ask("check", keys, check_shares, common, each,
                            fault=partial(checked_fault, self._here, common["members"], candidates))
        answers = {reply.party: reply.payload for reply in replies}
        off, lying = disagreements(self._here, candidates, answers)
        while lying is not None:
            self._note(lying, "it disagrees with other members about the shares of more parties than may be at fault")
            del answers[lying]
            off, lying = disagreements(self._here, candidates, answers)
        for party in sorted(off):
            self._note(party, "its shares do not fit together, or a member says that its box does not open or is not "
                              "signed")
        self._sitting = list(answers)
        left = [party for party in candidates if party not in off]
        self._phases.require("check", len(left))
        return left

    def _agreed(self, survivors: bytes) -> dict[int, bytes]:
        """Members' signatures under whose updates are summed (Q3)."""
        replies = self._ask("agree", self._sitting, agree_on_survivors, {"members": survivors},
                            fewest=self._here.packing.needed, fault=partial(agreed_fault, self._here, survivors))
        return {reply.party: reply.payload["signature"] for reply in replies}

    def _opened(self, survivors: bytes, signed: Mapping[int, bytes]) -> NDArray[np.int64]:
        """The sum of the keys, from sums of shares of which wrong ones are found where enough are right (Q4)."""
        packing = self._here.packing
        replies = self._ask("open", self._sitting, open_sum, {
            "members": survivors, "witnesses": list(signed), "statements": b"".join(signed.values())},
            fewest=packing.needed, fault=partial(opened_fault, self._here))
        points = _points(self._here, replies.parties)
        shares = np.stack([reply.payload["shares"].astype(np.int64) for reply in replies])
        wrong = packing.wrong(points, shares @ uniform((shares.shape[1],)) % PRIME)
        if wrong is None:
            raise PayloadError("the members of the committee opened sums that do not fit together: more of them than "
                               "can be found out do not keep to the protocol", remedy="use the stage 'secure-sum'")
        for place in wrong:
            self._note(int(replies.parties[place]), "it opened a wrong sum of shares")
        right = [place for place in range(len(points)) if place not in wrong][:packing.needed]
        return packing.recovered([points[place] for place in right], shares[right], ring_lwe.DEGREE)

    def _ask(self, phase: str, parties: Iterable[int], task: Task[SumSettings, R], payload: Payload,
             each: dict[int, Payload] | None = None, *, fault: Callable[[Reply[R]], str],
             fewest: int = 0) -> Replies[R]:
        return self._phases.ask(phase, np.array(sorted(parties), dtype=np.int64), task, payload, each,
                                settings=self._settings, fault=fault, fewest=fewest)

    def _bitmap(self, parties: list[int]) -> bytes:
        return as_bitmap(self._here.cohort.numbers, parties)

    def _note(self, party: int, cause: str) -> None:
        self._federation.record("failure", {"round": self._federation.round, "task": "one-shot-sum", "trace": "",
                                            "party": self._federation.name(party), "cause": cause})


def disagreements(here: OneShot, candidates: list[int], answers: dict[int, Checked]) -> tuple[set[int], int | None]:
    """Parties whose shares do not fit, and a member that is off from the others for more parties than may be corrupt.

    Random combinations of what members show lie on polynomials of the degree that shares have, or else the party dealt
    others, or a member shows others than it was dealt.
    """
    if len(answers) < here.packing.needed:
        raise QuorumError(f"only {len(answers)} members of the committee are left, and {here.packing.needed} are "
                          "needed to open a sum", remedy="ask more parties per round")
    points = _points(here, answers)
    sums = np.stack([said["sums"] for said in answers.values()]).astype(np.int64)
    fitting = ~here.packing.inconsistent(points, sums.reshape(len(points), -1)).reshape(-1, CHECKS).any(axis=1)
    combined = sums @ uniform((CHECKS,)) % PRIME
    reports = Counter(party for said in answers.values() for party in said["bad"])
    members, off = list(answers), set(reports)
    # Where half of the members say that boxes are bad, they are.
    against = [{party for party in said["bad"] if 2 * reports[party] < len(members)} for said in answers.values()]
    for place in np.flatnonzero(~fitting):
        off.add(candidates[place])
        for wrong in here.packing.wrong(points, combined[:, place]) or ():
            against[wrong].add(candidates[place])
        if max(map(len, against)) > here.cohort.corrupt:
            break
    worst = int(np.argmax([len(parties) for parties in against]))
    return off, members[worst] if len(against[worst]) > here.cohort.corrupt else None


def _points(here: OneShot, members: Iterable[int]) -> list[int]:
    """Where members' shares lie on the polynomials."""
    return [here.committee.index(int(member)) + 1 for member in members]


_OWN = fresh_key()
"""By this it is tried out whether keys can be used."""


def _usable(key: bytes) -> bool:
    try:
        return len(key) == KEY_BYTES and bool(in_common(_OWN, [key]))
    except PayloadError:
        return False


def offer_fault(here: OneShot, reply: Reply[Offered]) -> str:
    """What is wrong with the key that a member offers, if anything."""
    key = reply.payload["key"]
    signed = is_signed_by(here.roster, reply.party, reply.payload["signature"], here.offer_part(reply.party, key))
    return "" if signed and _usable(key) else "it sent a key that it has not signed, or none"


def sent_fault(here: OneShot, members: int, size: int, reply: Reply[Sent]) -> str:
    """What is wrong with the form of a message; whether boxes open and are signed is for members to find out."""
    said = reply.payload
    if said["ciphertext"].dtype != np.uint64 or said["ciphertext"].shape != (size,) or \
            said["ciphertext"].max() >= ring_lwe.MODULUS:
        return f"it did not send {size} numbers under its key"
    if (len(said["boxes"]), len(said["public"]), len(said["signature"])) != (
            members * here.box_bytes, KEY_BYTES, SIGNATURE_BYTES):
        return "it did not send one sealed box for each member of the committee"
    return ""


def checked_fault(here: OneShot, members: bytes, candidates: list[int], reply: Reply[Checked]) -> str:
    """What is wrong with the form of a member's sums; whether they are true shows beside those of others."""
    sums, bad = reply.payload["sums"], reply.payload["bad"]
    if sums.dtype != np.uint32 or sums.shape != (len(candidates), CHECKS) or (sums >= PRIME).any() \
            or not set(bad) <= set(candidates):
        return "it did not show three sums of each party's shares"
    part = here.checked_part(reply.party, members, sums, bad)
    return "" if is_signed_by(here.roster, reply.party, reply.payload["signature"], part) else \
        "it has not signed what it shows"


def agreed_fault(here: OneShot, survivors: bytes, reply: Reply[Agreed]) -> str:
    """What is wrong with a member's signature."""
    signed = is_signed_by(here.roster, reply.party, reply.payload["signature"], here.agreed_part(survivors))
    return "" if signed else "it has not signed whose updates are summed"


def opened_fault(here: OneShot, reply: Reply[Shares]) -> str:
    """What is wrong with the form of a member's sum of shares."""
    shares = reply.payload["shares"]
    if shares.dtype != np.uint32 or shares.shape != (here.packing.polynomials(ring_lwe.DEGREE),) or (
            shares >= PRIME).any():
        return "it did not open one sum of shares for each polynomial"
    signed = is_signed_by(here.roster, reply.party, reply.payload["signature"], here.opened_part(reply.party, shares))
    return "" if signed else "it has not signed what it opens"
