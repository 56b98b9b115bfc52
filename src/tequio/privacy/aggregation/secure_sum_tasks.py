"""What a party does in a secure sum. Its state only goes down this table, and each step is journalled before it leaves:

| state     | is asked for             | and then is                                                          |
|-----------|--------------------------|----------------------------------------------------------------------|
| (none)    | keys (R0)                | offered: two public keys, signed                                     |
| offered   | shares (R1)              | dealt: one box of shares for each neighbour, a signed root of them   |
| dealt     | boxes (R2)               | held: the neighbours' shares, and a signed list of bad boxes         |
| held      | masked (R3)              | masked: the masked update, signed; keys and update are erased        |
| masked    | witness (R4), if it is   | witnessed: a signature under who is left, once                       |
| masked, witnessed | open (R5)        | done: one share of each neighbour; all is erased                     |

Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017 (section 6 for signed
survivor sets). Sets come as bitmaps over the cohort; neighbours, thresholds, witnesses and the sum's own number follow
from joint randomness and are never received.
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
from tequio.privacy.aggregation.committees import drawn_circle, drawn_witnesses
from tequio.privacy.aggregation.encodings import (
    HASH_BYTES,
    content,
    derived_key,
    digest,
    from_bitmap,
    root_by_path,
    root_of,
)
from tequio.privacy.aggregation.identities import SIGNATURE_BYTES, check_signed, is_signed_by, signed_by
from tequio.privacy.aggregation.joint_randomness import Cohort, joint_seed
from tequio.privacy.aggregation.keys import (
    KEY_BYTES,
    SHARE_BYTES,
    add_masks,
    fresh_key,
    in_common,
    opened,
    public_of,
    sealed,
    shared,
)
from tequio.privacy.aggregation.one_way import answer_once
from tequio.privacy.aggregation.own_weights import SumSettings, encoded
from tequio.privacy.updates import held, let_go, shares_of_noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.population import Party, Roster
    from tequio.privacy.aggregation.committees import Circle, Members

ATTEMPTS = 3
COMMITMENT_BYTES = 16
PAIR = 2 * SHARE_BYTES
BOX_BYTES = PAIR + 16
DEALT_BYTES = BOX_BYTES + 2 * COMMITMENT_BYTES
MASK, KEY = "mask", "key"
"""The two secrets that a party shares: the key of its own mask, and the private key of the masks with others."""


class SumMemory(TypedDict, total=False):
    """What a party remembers of its last sum, and for good: the updates sent in that round, and what weighs in full."""

    state: str
    round: int
    name: str
    attempt: int
    sent: list[str]
    cap: float
    fewest: int
    sid: bytes
    keys: bytes
    shared: bytes
    dealers: bytes
    survivors: bytes
    secrets: dict[str, bytes]


class InSum(TypedDict):
    """Which update is summed, and which attempt this is."""

    name: str
    attempt: int


class Offered(TypedDict):
    """Two public keys in a row, signed."""

    keys: bytes
    signature: bytes


class Neighbours(InSum):
    """Who sent keys, and keys and signatures of the neighbours among them, one behind the other."""

    members: bytes
    keys: bytes
    signatures: bytes


class Shared(TypedDict):
    """For each neighbour a box and two commitments, one behind the other; a commitment to the own mask; the root of all
    that, signed."""

    dealt: bytes
    own: bytes
    signature: bytes


class Boxes(InSum):
    """Who dealt; of each neighbour among them what it dealt, its path in the tree, and the signature of the root."""

    members: bytes
    dealt: list[bytes]
    paths: list[bytes]
    signatures: list[bytes]


class Opened(TypedDict):
    """The neighbours whose boxes are bad though they signed them."""

    bad: list[int]
    signature: bytes


class Dealers(InSum):
    """Whose shares are held: masks are made with these."""

    members: bytes


class Masked(TypedDict):
    """An update under masks, signed with who the masks are with."""

    masked: NDArray[np.unsignedinteger]
    signature: bytes


class Survivors(InSum):
    """Whose masked update arrived."""

    members: bytes


class Witnessed(TypedDict):
    """A signature under who is left."""

    signature: bytes


class ToOpen(Survivors):
    """The same, with witnesses by number, their signatures, and of each neighbour left the hash of its masked update
    and its signature."""

    witnesses: list[int]
    statements: bytes
    hashes: bytes
    signatures: bytes


class Shown(TypedDict):
    """One share of each neighbour that dealt: of its own mask if it is left, of its key if it is not; signed."""

    shares: bytes
    signature: bytes


@dataclass(frozen=True, eq=False)
class Sum:
    """All that everybody in a sum knows: who may take part, who stands beside whom, and the sum's number."""

    roster: Roster
    cohort: Cohort
    circle: Circle
    sid: bytes
    quorum: int
    witnesses: tuple[int, ...]

    @cached_property
    def _around(self) -> dict[tuple[bytes, int], list[int]]:
        return {}

    def around(self, party: int, members: bytes) -> list[int]:
        """The neighbours of a party in a set."""
        found = self._around.get((members, party))
        if found is None:
            found = self._around[members, party] = self.circle.neighbours(party, self.members(members))
        return found

    def members(self, bitmap: bytes) -> Members:
        """A set as truth values."""
        return from_bitmap(self.circle.cohort, bitmap)

    def has(self, bitmap: bytes, party: int) -> bool:
        """Whether a party is in a set."""
        place = int(np.searchsorted(self.circle.cohort, party))
        return bool(bitmap[place >> 3] >> (place & 7) & 1)


@lru_cache(maxsize=8)
def sum_of(roster: Roster, cohort: Cohort, seed: bytes, round: int, name: str, attempt: int,
           settings: SumSettings) -> Sum:
    """The sum of an update in a round: the same for the coordinator and for every party that was told the same."""
    graph, few = cohort.graph(round), cohort.witnesses(round)
    bits, largest = settings.stage.ring or (0, 0.0)
    terms = f"{settings.room}|{settings.by_rows}|{settings.cap}|{settings.fewest}|{bits}|{largest}"
    return Sum(roster, cohort, drawn_circle(roster.agreed, seed, round, name, cohort.members, graph),
               digest("sum", roster.agreed, seed, round, name, attempt, terms), few.quorum,
               drawn_witnesses(roster.agreed, seed, round, name, cohort.members, few.count))


# No message of the protocol tells about rows: keys, sealed shares and masked numbers are random to all who see them,
# and what their sum tells is revealed by the task whose reply the stage held back.


@task("secure-sum.keys", settings=SumSettings, reply=Offered, reveals=Reveals.NOTHING)
def offer_keys(party: Party, payload: InSum, settings: SumSettings) -> Offered:
    """Two fresh public keys for this sum, one to seal shares and one to agree on masks (R0)."""

    def work(memory: SumMemory) -> tuple[SumMemory, Offered]:
        round, last, name, attempt = party.round, memory.get("round", 0), payload["name"], payload["attempt"]
        sent = memory.get("sent", []) if last == round else []
        if round < last or name in sent:
            raise PermissionDenied(f"the update '{name}' of round {round} has been summed at party '{party.name}', or "
                                   "a later round has: an update is sent once, and rounds only go forward")
        tries = memory.get("attempt", 0) if (last, memory.get("name")) == (round, name) else 0
        if not tries < attempt <= ATTEMPTS:
            raise PermissionDenied(f"this is attempt {attempt} at a sum, and {tries} of {ATTEMPTS} have been made")
        if memory.get("cap", settings.cap) != settings.cap and settings.by_rows:
            raise PermissionDenied(f"a party with {settings.cap:g} rows would weigh in full, and in earlier sums of "
                                   f"this run one with {memory['cap']:g}", remedy="bounds of weights stay as they are")
        held(party, name)
        here, sealing, masking = _sum(party, name, attempt, settings), fresh_key(), fresh_key()
        keys = public_of(sealing) + public_of(masking)
        after: SumMemory = {"state": "offered", "round": round, "name": name, "attempt": attempt, "sent": sent,
                            "fewest": max(here.cohort.fewest, settings.fewest, shares_of_noise(party)),
                            "sid": here.sid, "secrets": {"sealing": sealing, "masking": masking}}
        if settings.by_rows or "cap" in memory:
            after["cap"] = settings.cap if settings.by_rows else memory["cap"]
        return after, {"keys": keys, "signature": signed_by(party, content("keys", here.sid, party.index, keys))}

    return answer_once(party, SumMemory, "keys", payload, work)


@task("secure-sum.shares", settings=SumSettings, reply=Shared, reveals=Reveals.NOTHING)
def share_secrets(party: Party, payload: Neighbours, settings: SumSettings) -> Shared:
    """Shares of a mask of its own and of its masking key, each sealed for one neighbour (R1)."""

    def work(memory: SumMemory) -> tuple[SumMemory, Shared]:
        here = _in_state(party, payload, settings, memory, "offered")
        _check_set(here, party, memory, payload["members"], "sent keys")
        around, secrets = here.around(party.index, payload["members"]), memory["secrets"]
        keys = _checked_keys(here, around, payload)
        own_mask, needed = fresh_key(), here.circle.graph.needed
        points = [point_of(other) for other in around]
        shares = [shared(secret, needed, points).astype("<u4") for secret in (own_mask, secrets["masking"])]
        dealt, commons = [], in_common(secrets["sealing"], [key[:KEY_BYTES] for key in keys])
        for place, (other, common) in enumerate(zip(around, commons, strict=True)):
            pair = [share[place].tobytes() for share in shares]
            key = derived_key(here.roster.agreed, common, "box", here.sid, party.index, other)
            dealt.append(sealed(key, b"".join(pair), b"") + b"".join(
                commitment_of(here.sid, party.index, other, kind, share)
                for kind, share in zip((MASK, KEY), pair, strict=True)))
        own = own_commitment(here.sid, party.index, own_mask)
        after: SumMemory = {**memory, "state": "dealt", "shared": payload["members"], "secrets": {
            "masking": secrets["masking"], "mask": own_mask, "common": b"".join(commons),
            "keys": b"".join(key[KEY_BYTES:] for key in keys)}}
        signature = signed_by(party, dealt_part(here.sid, party.index, own, dealt))
        return after, {"dealt": b"".join(dealt), "own": own, "signature": signature}

    return answer_once(party, SumMemory, "shares", payload, work)


@task("secure-sum.boxes", settings=SumSettings, reply=Opened, reveals=Reveals.NOTHING)
def open_boxes(party: Party, payload: Boxes, settings: SumSettings) -> Opened:
    """Open the neighbours' boxes, and say whose are bad though it signed them (R2)."""

    def work(memory: SumMemory) -> tuple[SumMemory, Opened]:
        here = _in_state(party, payload, settings, memory, "dealt")
        members, before, secrets = here.members(payload["members"]), memory["shared"], memory["secrets"]
        if (members & ~here.members(before)).any() or not here.has(payload["members"], party.index):
            raise PermissionDenied("parties are said to have dealt shares that sent no keys, or this one not to have")
        dealers, dealt_with = here.around(party.index, payload["members"]), here.around(party.index, before)
        commons, keys = (_by_party(dealt_with, secrets[what], KEY_BYTES) for what in ("common", "keys"))
        if not len(dealers) == len(payload["dealt"]) == len(payload["paths"]) == len(payload["signatures"]):
            raise PermissionDenied("not exactly one box of each neighbour that dealt")
        good, bad = [], []
        for dealer, dealt, path, signature in zip(dealers, payload["dealt"], payload["paths"], payload["signatures"],
                                                  strict=True):
            _check_dealt(here, party.index, dealer, before, dealt, path, signature)
            pair = _good_shares(here, party.index, dealer, commons[dealer], dealt)
            good.append(pair or bytes(PAIR))
            bad += [] if pair else [dealer]
        after: SumMemory = {**memory, "state": "held", "dealers": payload["members"], "secrets": {
            "masking": secrets["masking"], "mask": secrets["mask"], "shares": b"".join(good),
            "keys": b"".join(keys[dealer] for dealer in dealers)}}
        return after, {"bad": bad, "signature": signed_by(party, bad_list(here.sid, party.index, bad))}

    return answer_once(party, SumMemory, "boxes", payload, work)


@task("secure-sum.masked", settings=SumSettings, reply=Masked, reveals=Reveals.NOTHING)
def send_masked(party: Party, payload: Dealers, settings: SumSettings) -> Masked:
    """The weighed update as whole numbers, under the party's own mask and one with each neighbour (R3)."""

    def work(memory: SumMemory) -> tuple[SumMemory, Masked]:
        here = _in_state(party, payload, settings, memory, "held")
        members, before, name = payload["members"], memory["dealers"], memory["name"]
        if (here.members(members) & ~here.members(before)).any():
            raise PermissionDenied("masks are asked for with parties that dealt no shares")
        if (count := _check_set(here, party, memory, members, "dealt shares")) > settings.room:
            raise DataError(f"the secure sum was sized for {settings.room} parties, but {count} joined")
        secrets, around = memory["secrets"], here.around(party.index, members)
        keys = _by_party(here.around(party.index, before), secrets["keys"], KEY_BYTES)
        own = {other: mask_key(here, common, party.index, other) for other, common in zip(
            around, in_common(secrets["masking"], [keys[other] for other in around]), strict=True)}
        masked = encoded(party, name, settings)
        add_masks(masked, [secrets["mask"], *(own[other] for other in around if other > party.index)],
                  [own[other] for other in around if other < party.index])
        let_go(party, name)
        shares = _by_party(here.around(party.index, before), secrets["shares"], PAIR)
        after: SumMemory = {**memory, "state": "masked", "sent": [*memory["sent"], name], "dealers": members,
                            "secrets": {"shares": b"".join(shares[other] for other in around)}}
        signature = signed_by(party, masked_part(here.sid, members, party.index, hash_of_numbers(masked)))
        return after, {"masked": masked, "signature": signature}

    return answer_once(party, SumMemory, "masked", payload, work)


@task("secure-sum.witness", settings=SumSettings, reply=Witnessed, reveals=Reveals.NOTHING)
def witness_survivors(party: Party, payload: Survivors, settings: SumSettings) -> Witnessed:
    """Sign who is left, once: no two quorums can have signed different sets (R4)."""

    def work(memory: SumMemory) -> tuple[SumMemory, Witnessed]:
        here = _in_state(party, payload, settings, memory, "masked")
        if party.index not in here.witnesses:
            raise PermissionDenied(f"party '{party.name}' is no witness of this sum")
        _check_survivors(here, memory, payload["members"])
        after: SumMemory = {**memory, "state": "witnessed", "survivors": payload["members"]}
        return after, {"signature": signed_by(party, survivors_part(here.sid, memory["dealers"], payload["members"]))}

    return answer_once(party, SumMemory, "witness", payload, work)


@task("secure-sum.open", settings=SumSettings, reply=Shown, reveals=Reveals.NOTHING)
def open_shares(party: Party, payload: ToOpen, settings: SumSettings) -> Shown:
    """For each neighbour one share: of its own mask if it is left, of its masking key if it is not. Never both (R5)."""

    def work(memory: SumMemory) -> tuple[SumMemory, Shown]:
        here = _in_state(party, payload, settings, memory, "masked", "witnessed")
        members, dealers = payload["members"], memory["dealers"]
        _check_survivors(here, memory, members)
        if not here.has(members, party.index):
            raise PermissionDenied(f"party '{party.name}' is said to have dropped out, and opens nothing")
        if memory.get("survivors", members) != members:
            raise PermissionDenied(f"party '{party.name}' has witnessed another set of parties that are left")
        _check_quorum(here, dealers, payload)
        left = here.around(party.index, members)
        for other, hashed, signature in zip(left, pieces(payload["hashes"], HASH_BYTES), pieces(
                payload["signatures"], SIGNATURE_BYTES), strict=True):
            check_signed(here.roster, other, signature, masked_part(here.sid, dealers, other, hashed),
                         "the masked numbers")
        alive, shares = set(left), _by_party(here.around(party.index, dealers), memory["secrets"]["shares"], PAIR)
        shown = b"".join(pair[:SHARE_BYTES] if other in alive else pair[SHARE_BYTES:] for other, pair in shares.items())
        after: SumMemory = {**memory, "state": "done", "secrets": {}}
        return after, {"shares": shown, "signature": signed_by(party, shown_part(here.sid, party.index, shown))}

    return answer_once(party, SumMemory, "open", payload, work)


def point_of(party: int) -> int:
    """Where a party's share lies on the polynomials; 0 is where the secret is."""
    return party + 1


def pieces(whole: bytes, size: int) -> list[bytes]:
    """What stands one behind the other."""
    return [whole[start:start + size] for start in range(0, len(whole), size)]


def commitment_of(sid: bytes, dealer: int, holder: int, kind: str, share: bytes) -> bytes:
    """By this a forged share is told from the true one."""
    return digest("share", sid, dealer, holder, kind, share)[:COMMITMENT_BYTES]


def own_commitment(sid: bytes, party: int, own_mask: bytes) -> bytes:
    """A commitment to the key of a party's own mask."""
    return digest("own", sid, party, own_mask)


def mask_key(here: Sum, common: bytes, one: int, other: int) -> bytes:
    """The key of the mask of a pair: the same for both."""
    return derived_key(here.roster.agreed, common, "mask", here.sid, min(one, other), max(one, other))


def hash_of_numbers(masked: NDArray[np.unsignedinteger]) -> bytes:
    """What stands for a masked update in signatures."""
    return sha256(np.ascontiguousarray(masked).data).digest()


def masked_part(sid: bytes, dealers: bytes, party: int, hashed: bytes) -> bytes:
    """What a party signs under its masked update."""
    return content("masked", sid, sha256(dealers).digest(), party, hashed)


def survivors_part(sid: bytes, dealers: bytes, survivors: bytes) -> bytes:
    """What a witness signs."""
    return content("survivors", sid, sha256(dealers).digest(), sha256(survivors).digest())


def shown_part(sid: bytes, party: int, shares: bytes) -> bytes:
    """What a party signs under the shares that it opens."""
    return content("opened", sid, party, shares)


def dealt_part(sid: bytes, party: int, own: bytes, dealt: Sequence[bytes]) -> bytes:
    """What a dealer signs."""
    return content("dealt", sid, party, root_of([own, *dealt]))


def bad_list(sid: bytes, party: int, bad: Sequence[int]) -> bytes:
    """What a party signs when it says whose boxes are bad."""
    return content("bad boxes", sid, party, *bad)


def _sum(party: Party, name: str, attempt: int, settings: SumSettings) -> Sum:
    seed, cohort = joint_seed(party, settings.stage)
    return sum_of(party.roster, cohort, seed, party.round, name, attempt, settings)


def _in_state(party: Party, payload: InSum, settings: SumSettings, memory: SumMemory, *states: str) -> Sum:
    """The sum under way, if the message belongs to it and the party waits for it."""
    if (memory.get("round"), memory.get("name"), memory.get("attempt")) != (
            party.round, payload["name"], payload["attempt"]) or not memory.get("secrets"):
        raise PermissionDenied(f"party '{party.name}' takes no part in this sum, or has ended it",
                               remedy="messages of an earlier sum are not answered again")
    if memory["state"] not in states:
        raise PermissionDenied(f"party '{party.name}' has left the state '{states[0]}' of this sum (it is "
                               f"'{memory['state']}'), and does not go back", remedy="each message is answered once")
    here = _sum(party, payload["name"], payload["attempt"], settings)
    if here.sid != memory["sid"]:
        raise PermissionDenied("the terms of the sum have changed while it was under way")
    return here


def _check_set(here: Sum, party: Party, memory: SumMemory, bitmap: bytes, did: str) -> int:
    """Refuse a set that this party is not in, that is too small, or that is not sound; how many are in it."""
    members = here.members(bitmap)
    count, fewest = int(members.sum()), memory["fewest"]
    if not here.has(bitmap, party.index):
        raise PermissionDenied(f"party '{party.name}' is not among those that {did}")
    if count < fewest:
        raise PermissionDenied(f"only {count} of {len(members)} parties {did}, and {fewest} are the fewest among whom "
                               "an update is hidden", remedy="ask more parties per round")
    if here.circle.broken(members).any():
        raise PermissionDenied(f"those who {did} are no sound set: one of them has too few neighbours there",
                               remedy="leave out who has too few neighbours, and who then has")
    return count


def _check_survivors(here: Sum, memory: SumMemory, bitmap: bytes) -> None:
    """The same for who is left, of whom enough stand beside each dealer to open its secret."""
    dealers, left = here.members(memory["dealers"]), here.members(bitmap)
    if (left & ~dealers).any():
        raise PermissionDenied("parties are said to be left that the masks are not with")
    count, fewest = int(left.sum()), memory["fewest"]
    if count < fewest:
        raise PermissionDenied(f"only {count} of {len(left)} parties are left, and {fewest} are the fewest among whom "
                               "an update is hidden", remedy="ask more parties per round")
    if here.circle.broken(left).any() or (here.circle.helpers(left)[dealers] < here.circle.graph.needed).any():
        raise PermissionDenied("those who are left are no sound set: a party has too few neighbours there")


def _check_quorum(here: Sum, dealers: bytes, payload: ToOpen) -> None:
    statement = survivors_part(here.sid, dealers, payload["members"])
    valid = {other for other, signature in zip(payload["witnesses"], pieces(
        payload["statements"], SIGNATURE_BYTES), strict=True)
        if other in here.witnesses and is_signed_by(here.roster, other, signature, statement)}
    if len(valid) < here.quorum:
        raise PermissionDenied(f"{len(valid)} witnesses have signed who is left, and {here.quorum} are a quorum: "
                               "others may have been told of other parties")


def _checked_keys(here: Sum, around: Sequence[int], payload: Neighbours) -> list[bytes]:
    """The neighbours' keys, each signed by its party for this sum, and all different."""
    keys = pieces(payload["keys"], 2 * KEY_BYTES)
    for other, key, signature in zip(around, keys, pieces(payload["signatures"], SIGNATURE_BYTES), strict=True):
        check_signed(here.roster, other, signature, content("keys", here.sid, other, key), "the keys")
    halves = {half for key in keys for half in pieces(key, KEY_BYTES)}
    if len(halves) != 2 * len(keys):
        raise PermissionDenied("two neighbours came with the same keys")
    return keys


def _check_dealt(here: Sum, holder: int, dealer: int, shared_among: bytes, dealt: bytes, path: bytes,
                 signature: bytes) -> None:
    """Whether the dealer signed this very box for this holder: if not, the coordinator is at fault."""
    around = here.around(dealer, shared_among)
    root = root_by_path(dealt, around.index(holder) + 1, len(around) + 1, path)
    check_signed(here.roster, dealer, signature, content("dealt", here.sid, dealer, root), "the shares")


def _good_shares(here: Sum, holder: int, dealer: int, common: bytes, dealt: bytes) -> bytes:
    """The shares in a box; nothing where the box or a commitment is bad."""
    key = derived_key(here.roster.agreed, common, "box", here.sid, dealer, holder)
    try:
        pair = opened(key, dealt[:BOX_BYTES], b"", f"party {dealer}")
    except PayloadError:
        return b""
    fits = len(pair) == PAIR and dealt[BOX_BYTES:] == b"".join(
        commitment_of(here.sid, dealer, holder, kind, share)
        for kind, share in zip((MASK, KEY), pieces(pair, SHARE_BYTES), strict=True))
    return pair if fits else b""


def _by_party(parties: Sequence[int], whole: bytes, size: int) -> dict[int, bytes]:
    return dict(zip(parties, pieces(whole, size), strict=True))
