"""What a party does in a one-shot sum: it sends one message, and if it sits on the committee, it helps to open the sum.

| a member is asked to | when                        | and then                                                     |
|----------------------|-----------------------------|--------------------------------------------------------------|
| offer (Q0)           | once for a committee        | has a key, for which parties seal shares of theirs           |
| check (Q2)           | once for a sum              | holds shares; says whose do not fit, in a way that hides all |
| agree (Q3)           | once for a sum, after Q2    | has signed whose updates are summed, and signs no other set  |
| open (Q4)            | once, when a quorum signed  | has sent the sum of these parties' shares, and erased all    |

What a party sends (Q1), once for an update, is an update under a key of its own and boxes with shares of that key. The
boxes are signed for this sum: nobody else can make them, and those of another sum are worth nothing here. The
ciphertext needs no signature, since nothing opens one that is not of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import DataError, PayloadError, PermissionDenied
from tequio.federation.task import Reveals, task
from tequio.privacy.aggregation import ring_lwe
from tequio.privacy.aggregation.committees import drawn_witnesses, fewest_for, witnesses_for
from tequio.privacy.aggregation.encodings import Draws, as_bitmap, content, derived_key, digest, from_bitmap
from tequio.privacy.aggregation.identities import SIGNATURE_BYTES, check_signed, is_signed_by, signed_by
from tequio.privacy.aggregation.joint_randomness import joint_seed
from tequio.privacy.aggregation.keys import KEY_BYTES, fresh_key, in_common, opened, public_of, sealed
from tequio.privacy.aggregation.one_way import answer_once
from tequio.privacy.aggregation.own_weights import SumSettings, encoded
from tequio.privacy.aggregation.packed_shares import PRIME, Packing
from tequio.privacy.aggregation.secure_sum_tasks import pieces
from tequio.privacy.updates import let_go, shares_of_noise

if TYPE_CHECKING:
    from tequio.federation.population import Party, Roster
    from tequio.privacy.aggregation.joint_randomness import Cohort

_SECRECY = 43
"""The committee is drawn once, in eight attempts at most: more of it are corrupt than allowed for by chance 2^-40."""
CHECKS = 3
"""Random combinations of a party's shares that members show: a polynomial of a wrong degree passes all of them with a
chance of 2^-78."""
HASH_BYTES = 32
SEAL_BYTES = 16
NOBODY = bytes(KEY_BYTES)
"""The key of a member that offered none."""
Numbers = NDArray[np.int64]


class SentMemory(TypedDict, total=False):
    """What a party remembers of what it sent: the updates of its last round, and how many rows weigh in full."""

    round: int
    sent: list[str]
    cap: float


class Seat(TypedDict, total=False):
    """What a member remembers: its key and for which committee, and how far the last sum is."""

    committee: bytes
    round: int
    checked: list[str]
    state: str
    sid: bytes
    candidates: bytes
    agreed: bytes
    secrets: dict[str, bytes]


class InSum(TypedDict):
    """Which update is summed."""

    name: str


class Offered(TypedDict):
    """A member's public key, signed."""

    key: bytes
    signature: bytes


class Members(InSum):
    """The keys of the committee's members in their order, and their signatures; noughts for who offered none."""

    keys: bytes
    signatures: bytes


class Sent(TypedDict):
    """An update under a key of its own, a box with shares of that key for each member, the key that boxes are sealed
    by, and a signature under the boxes."""

    ciphertext: NDArray[np.uint64]
    boxes: bytes
    public: bytes
    signature: bytes


class Candidates(InSum):
    """Whose messages arrived, as a bitmap over the cohort; of each its public key, the hash of its boxes, its
    signature, and its box for this member, one behind the other."""

    members: bytes
    publics: bytes
    hashes: bytes
    signatures: bytes
    boxes: bytes


class Checked(TypedDict):
    """For each candidate three sums that lie on a polynomial if its shares do, and whose boxes do not open, or are
    not signed."""

    sums: NDArray[np.uint32]
    bad: list[int]
    signature: bytes


class Survivors(InSum):
    """Whose updates are summed, as a bitmap over the cohort."""

    members: bytes


class Agreed(TypedDict):
    """A signature under whose updates are summed."""

    signature: bytes


class ToOpen(Survivors):
    """The same, with members by number and their signatures."""

    witnesses: list[int]
    statements: bytes


class Shares(TypedDict):
    """The sum of the shares of the parties whose updates are summed."""

    shares: NDArray[np.uint32]
    signature: bytes


@dataclass(frozen=True, eq=False)
class OneShot:
    """All that everybody in a sum knows: who may take part, who sits on the committee, and the sum's number."""

    roster: Roster
    cohort: Cohort
    seed: bytes
    committee: tuple[int, ...]
    packing: Packing
    sid: bytes

    @cached_property
    def ring(self) -> bytes:
        """What the public polynomials follow from: the same for all sums of a cohort."""
        return derived_key(self.roster.agreed, self.seed, "ring")

    @property
    def box_bytes(self) -> int:
        """How long a box is."""
        return 4 * (self.packing.polynomials(ring_lwe.DEGREE) + CHECKS) + SEAL_BYTES

    def offer_part(self, member: int, key: bytes) -> bytes:
        """What a member signs when it offers a key."""
        return content("committee", self.roster.agreed, self.seed, member, key)

    def sent_part(self, party: int, public: bytes, hashed: bytes) -> bytes:
        """What a party signs under its boxes."""
        return content("one shot", self.sid, party, public, hashed)

    def checked_part(self, member: int, candidates: bytes, sums: NDArray[np.uint32], bad: list[int]) -> bytes:
        """What a member signs when it has checked shares."""
        return content("checked", self.sid, member, sha256(candidates).digest(), sums.tobytes(), *bad)

    def agreed_part(self, survivors: bytes) -> bytes:
        """What a member signs under whose updates are summed."""
        return content("summed", self.sid, sha256(survivors).digest())

    def opened_part(self, member: int, shares: NDArray[np.uint32]) -> bytes:
        """What a member signs under its sum of shares."""
        return content("opened", self.sid, member, shares.tobytes())

    def box_key(self, common: bytes, party: int, member: int) -> bytes:
        """The key of the box of a party for a member: both can make it, and nobody else."""
        return derived_key(self.roster.agreed, common, "one", self.sid, party, member)

    def challenges(self, party: int, hashed: bytes) -> Numbers:
        """What a party's shares are multiplied with when they are checked.

        They follow from all its boxes, so that it could not know them when it dealt, and from what it signed alone, so
        that the coordinator cannot have members show other combinations than each other.
        """
        stream = Draws(digest("check", self.sid, party, hashed))
        words = stream.words(CHECKS * self.packing.polynomials(ring_lwe.DEGREE))
        return (words % np.uint64(PRIME)).astype(np.int64).reshape(CHECKS, -1)

    def those(self, bitmap: bytes) -> Numbers:
        """The numbers of a set's parties."""
        return self.cohort.numbers[from_bitmap(self.cohort.numbers, bitmap)]


@lru_cache(maxsize=8)
def one_shot(roster: Roster, cohort: Cohort, seed: bytes, round: int, name: str, settings: SumSettings) -> OneShot:
    """The sum of an update in a round. The committee is drawn once for a cohort, and sits until there is another."""
    few = witnesses_for(len(cohort.members), cohort.corrupt, cohort.absent, _SECRECY)
    committee = drawn_witnesses(roster.agreed, seed, 0, "committee", cohort.members, few.count)
    terms = f"{settings.room}|{settings.by_rows}|{settings.cap}|{settings.fewest}|{settings.stage.ring}"
    return OneShot(roster, cohort, seed, committee, Packing(few.count, few.quorum, max(few.corrupt, 1)),
                   digest("one-shot sum", roster.agreed, seed, round, name, terms))


# No message tells about rows: ciphertexts, sealed shares and sums of shares are random to all who see them, and what
# the sum of updates tells is revealed by the task whose reply the stage held back.


@task("one-shot-sum.offer", settings=SumSettings, reply=Offered, reveals=Reveals.NOTHING)
def offer_key(party: Party, payload: InSum, settings: SumSettings) -> Offered:
    """A member's public key, made once for a committee (Q0)."""

    def work(memory: Seat) -> tuple[Seat, Offered]:
        here = _seated(party, payload, settings)
        secret = memory.get("secrets", {})
        if memory.get("committee") != here.seed or "key" not in secret:
            secret, memory = {"key": fresh_key()}, {"committee": here.seed}
        key = public_of(secret["key"])
        return {**memory, "secrets": secret}, {
            "key": key, "signature": signed_by(party, here.offer_part(party.index, key))}

    return answer_once(party, Seat, "offer", payload, work)


@task("one-shot-sum.send", settings=SumSettings, reply=Sent, reveals=Reveals.NOTHING)
def send_encrypted(party: Party, payload: Members, settings: SumSettings) -> Sent:
    """The weighed update under a key of its own, and shares of that key for the committee (Q1)."""

    def work(memory: SentMemory) -> tuple[SentMemory, Sent]:
        here, name, last = _sum(party, payload, settings), payload["name"], memory.get("round", 0)
        sent = memory.get("sent", []) if last == party.round else []
        if party.round < last or name in sent:
            raise PermissionDenied(f"the update '{name}' of round {party.round} has been summed at party "
                                   f"'{party.name}', or a later round has: an update is sent once")
        if settings.by_rows and memory.get("cap", settings.cap) != settings.cap:
            raise PermissionDenied(f"a party with {settings.cap:g} rows would weigh in full, and in earlier sums of "
                                   f"this run one with {memory['cap']:g}", remedy="bounds of weights stay as they are")
        _check_terms(here, party, settings)
        reply = _encrypted(here, party, _checked_keys(here, payload), encoded(party, name, settings))
        let_go(party, name)
        after: SentMemory = {"round": party.round, "sent": [*sent, name]}
        if settings.by_rows or "cap" in memory:
            after["cap"] = settings.cap if settings.by_rows else memory["cap"]
        return after, reply

    return answer_once(party, SentMemory, "send", payload, work)


@task("one-shot-sum.check", settings=SumSettings, reply=Checked, reveals=Reveals.NOTHING)
def check_shares(party: Party, payload: Candidates, settings: SumSettings) -> Checked:
    """At a member: open the boxes, and show sums by which the coordinator sees whose shares fit together (Q2)."""

    def work(memory: Seat) -> tuple[Seat, Checked]:
        here = _seated(party, payload, settings)
        if memory.get("committee") != here.seed:
            raise PermissionDenied(f"party '{party.name}' has offered no key for this committee")
        last, checked = memory.get("round", 0), memory.get("checked", [])
        if party.round < last or (party.round == last and payload["name"] in checked):
            raise PermissionDenied(f"party '{party.name}' has checked the shares of this sum, or of a later one: "
                                   "shares are checked once")
        candidates = here.those(payload["members"])
        shares, sums, bad = _opened_shares(here, party, memory["secrets"]["key"], candidates, payload)
        _check_enough(here, len(candidates) - len(bad), settings, "have shares that open and are signed for this sum")
        after: Seat = {"committee": here.seed, "round": party.round, "state": "checked", "sid": here.sid,
                       "checked": [*(checked if party.round == last else []), payload["name"]],
                       "candidates": as_bitmap(here.cohort.numbers, np.setdiff1d(candidates, bad)),
                       "secrets": {"key": memory["secrets"]["key"], "shares": shares.tobytes()}}
        return after, {"sums": sums, "bad": bad, "signature": signed_by(
            party, here.checked_part(party.index, payload["members"], sums, bad))}

    return answer_once(party, Seat, "check", payload, work)


@task("one-shot-sum.agree", settings=SumSettings, reply=Agreed, reveals=Reveals.NOTHING)
def agree_on_survivors(party: Party, payload: Survivors, settings: SumSettings) -> Agreed:
    """At a member: sign whose updates are summed, once: no two quorums can have signed different sets (Q3)."""

    def work(memory: Seat) -> tuple[Seat, Agreed]:
        here = _in_state(party, payload, settings, memory, "checked")
        _check_survivors(here, memory, payload["members"], settings)
        return {**memory, "state": "agreed", "agreed": payload["members"]}, {
            "signature": signed_by(party, here.agreed_part(payload["members"]))}

    return answer_once(party, Seat, "agree", payload, work)


@task("one-shot-sum.open", settings=SumSettings, reply=Shares, reveals=Reveals.NOTHING)
def open_sum(party: Party, payload: ToOpen, settings: SumSettings) -> Shares:
    """At a member: the sum of the shares of those that a quorum has agreed on; everything else is erased (Q4)."""

    def work(memory: Seat) -> tuple[Seat, Shares]:
        here, survivors = _in_state(party, payload, settings, memory, "checked", "agreed"), payload["members"]
        _check_survivors(here, memory, survivors, settings)
        if memory.get("agreed", survivors) != survivors:
            raise PermissionDenied(f"party '{party.name}' has agreed to the sum of other parties")
        _check_quorum(here, payload)
        columns = here.packing.polynomials(ring_lwe.DEGREE)
        kept = np.frombuffer(memory["secrets"]["shares"], dtype="<u4").reshape(-1, columns)
        among = np.isin(here.those(memory["candidates"]), here.those(survivors))
        shares = (kept[among].sum(axis=0, dtype=np.int64) % PRIME).astype(np.uint32)
        after: Seat = {"committee": memory["committee"], "round": memory["round"], "checked": memory["checked"],
                       "state": "done", "sid": here.sid, "secrets": {"key": memory["secrets"]["key"]}}
        return after, {"shares": shares, "signature": signed_by(party, here.opened_part(party.index, shares))}

    return answer_once(party, Seat, "open", payload, work)


def _sum(party: Party, payload: InSum, settings: SumSettings) -> OneShot:
    seed, cohort = joint_seed(party, settings.stage)
    return one_shot(party.roster, cohort, seed, party.round, payload["name"], settings)


def _seated(party: Party, payload: InSum, settings: SumSettings) -> OneShot:
    """The sum, at a member of its committee."""
    here = _sum(party, payload, settings)
    if party.index not in here.committee:
        raise PermissionDenied(f"party '{party.name}' does not sit on the committee of this sum")
    return here


def _in_state(party: Party, payload: InSum, settings: SumSettings, memory: Seat, *states: str) -> OneShot:
    """The sum under way, if the message belongs to it and the member waits for it."""
    here = _seated(party, payload, settings)
    if memory.get("sid") != here.sid:
        raise PermissionDenied(f"party '{party.name}' holds no shares of this sum, or its terms have changed")
    if memory["state"] not in states:
        raise PermissionDenied(f"party '{party.name}' has left the state '{states[0]}' of this sum (it is "
                               f"'{memory['state']}'), and does not go back", remedy="each message is answered once")
    return here


def _check_terms(here: OneShot, party: Party, settings: SumSettings) -> None:
    """Refuse a sum that others would open for fewer parties than this one wants: members go by its terms."""
    size, corrupt = len(here.cohort.members), here.cohort.corrupt
    if size > settings.room:
        raise DataError(f"the sum was sized for {settings.room} parties, but {size} may join")
    wanted, opened = max(here.cohort.fewest, shares_of_noise(party)), max(fewest_for(size, corrupt), settings.fewest)
    if opened < wanted:
        raise PermissionDenied(f"the sum would be opened for {opened} parties, and party '{party.name}' wants at least "
                               f"{wanted}", remedy=f"set fewest = {wanted} for the stage 'one-shot-sum'")


def _check_enough(here: OneShot, count: int, settings: SumSettings, did: str) -> None:
    if count < (fewest := max(here.cohort.fewest, settings.fewest)):
        raise PermissionDenied(f"only {count} of {len(here.cohort.members)} parties {did}, and {fewest} are the fewest "
                               "among whom an update is hidden", remedy="ask more parties per round")


def _check_survivors(here: OneShot, memory: Seat, bitmap: bytes, settings: SumSettings) -> None:
    """Refuse a set that has others than those whose shares this member holds, or too few."""
    survivors = here.those(bitmap)
    if not np.isin(survivors, here.those(memory["candidates"])).all():
        raise PermissionDenied("updates are to be summed of parties whose shares this member does not hold")
    _check_enough(here, len(survivors), settings, "are to be summed")


def _check_quorum(here: OneShot, payload: ToOpen) -> None:
    statement = here.agreed_part(payload["members"])
    valid = {other for other, signature in zip(payload["witnesses"], pieces(
        payload["statements"], SIGNATURE_BYTES), strict=True)
        if other in here.committee and is_signed_by(here.roster, other, signature, statement)}
    if len(valid) < here.packing.needed:
        raise PermissionDenied(f"{len(valid)} members have agreed whose updates are summed, and {here.packing.needed} "
                               "are a quorum: others may have been told of other parties")


def _checked_keys(here: OneShot, payload: Members) -> list[bytes]:
    """The members' keys, each signed by its member, all different, and enough of them."""
    keys, signatures = pieces(payload["keys"], KEY_BYTES), pieces(payload["signatures"], SIGNATURE_BYTES)
    for member, key, signature in zip(here.committee, keys, signatures, strict=True):
        if key != NOBODY:
            check_signed(here.roster, member, signature, here.offer_part(member, key), "the keys")
    offered = [key for key in keys if key != NOBODY]
    if len(set(offered)) != len(offered) or len(offered) < here.packing.needed:
        raise PermissionDenied(f"{len(set(offered))} members have offered keys of their own, and {here.packing.needed} "
                               "are needed to open a sum", remedy="ask more parties per round")
    return keys


def _encrypted(here: OneShot, party: Party, keys: list[bytes], plain: NDArray[np.uint32]) -> Sent:
    """The message of a party: nothing of it is used twice."""
    key, private = ring_lwe.small(ring_lwe.DEGREE), fresh_key()
    shares = here.packing.shared(key, CHECKS).astype("<u4")
    seats = [place for place, other in enumerate(keys) if other != NOBODY]
    boxes = b"".join(
        sealed(here.box_key(common, party.index, here.committee[place]), shares[place].tobytes(), b"")
        for place, common in zip(seats, in_common(private, [keys[place] for place in seats]), strict=True))
    ciphertext, public = ring_lwe.encrypt(here.ring, key, plain), public_of(private)
    part = here.sent_part(party.index, public, sha256(boxes).digest())
    return {"ciphertext": ciphertext, "boxes": boxes, "public": public, "signature": signed_by(party, part)}


def _opened_shares(here: OneShot, party: Party, key: bytes, candidates: Numbers,
                   payload: Candidates) -> tuple[NDArray[np.uint32], NDArray[np.uint32], list[int]]:
    """The shares in the boxes, the sums that are shown of each, and whose boxes do not open, or are not signed.

    The random polynomials behind the shares hide what the sums would tell.
    """
    columns = here.packing.polynomials(ring_lwe.DEGREE)
    shares, sums = [], np.zeros((len(candidates), CHECKS), dtype=np.uint32)
    bad: list[int] = []
    for place, (other, public, hashed, signature, box) in enumerate(zip(
            candidates.tolist(), pieces(payload["publics"], KEY_BYTES), pieces(payload["hashes"], HASH_BYTES),
            pieces(payload["signatures"], SIGNATURE_BYTES), pieces(payload["boxes"], here.box_bytes), strict=True)):
        try:
            check_signed(here.roster, other, signature, here.sent_part(other, public, hashed), "the shares")
            content = opened(here.box_key(in_common(key, [public])[0], other, party.index), box, b"", "")
        except (PayloadError, PermissionDenied):
            bad.append(other)
            continue
        row = np.frombuffer(content, dtype="<u4").astype(np.int64)
        sums[place] = (row[columns:] + here.challenges(other, hashed) @ row[:columns]) % PRIME
        shares.append(row[:columns].astype("<u4"))
    return np.array(shares, dtype="<u4"), sums, bad
