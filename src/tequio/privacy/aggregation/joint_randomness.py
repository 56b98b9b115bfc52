"""Randomness that all parties of a cohort make together, so that nobody chooses who watches whom.

Once for a cohort, each party commits to a secret number, and signs that (S0). The coordinator passes the list of all
commitments on (S1); a party opens its own, signed with the hash of that list, for no other list (S2). Who holds the
list and all openings checks them and knows the seed (S3). Two lists cannot both be opened: each has more than half of
the cohort and of the corrupt parties, so that they share an honest one. Whoever sees the last opening can only let the
attempt end, and there are eight of them at most.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, TypedDict, cast

import numpy as np
from annotated_types import Interval

from tequio.errors import PermissionDenied, QuorumError
from tequio.federation.population import LEAST_COHORT
from tequio.federation.stages import SummingStage
from tequio.federation.task import Reveals, TimedSettings, record, task
from tequio.privacy.aggregation.committees import (
    Graph,
    Witnesses,
    check_room,
    count_of,
    fewest_for,
    graph_for,
    secrecy,
    witnesses_for,
)
from tequio.privacy.aggregation.encodings import HASH_BYTES, as_bitmap, content, digest, from_bitmap
from tequio.privacy.aggregation.identities import SIGNATURE_BYTES, check_signed, is_signed_by, signed_by
from tequio.privacy.aggregation.one_way import answer_once, memory_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.exchange import Reply
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party, Roster
    from tequio.privacy.aggregation.hidden_sums import Phases

ATTEMPTS = 8
_NUMBER_BYTES = 4
_ENTRY = _NUMBER_BYTES + HASH_BYTES + SIGNATURE_BYTES
_OPENING = HASH_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True)
class SignedSum(SummingStage):
    """What stages have in common whose parties check each other's signatures: how many of them may be corrupt.

    Parameters:
        corrupt: share of all parties of the run that may collude with the coordinator
        absent: share of a cohort that may drop out
    """

    corrupt: Annotated[float, Interval(ge=0, lt=0.5)] = 0.1
    absent: Annotated[float, Interval(ge=0, lt=0.5)] = 0.1


@dataclass(frozen=True)
class Cohort:
    """Who may take part in a sum, in rising order, and the bounds that follow."""

    members: tuple[int, ...]
    corrupt: int
    absent: int
    fewest: int

    @classmethod
    def of(cls, members: Sequence[int], roster: Roster, stage: SignedSum, own: int = 0) -> Cohort:
        """The cohort of these members; all corrupt parties of the run may be among them."""
        size, corrupt = len(members), count_of(stage.corrupt, roster.parties)
        check_room(size, corrupt)
        return cls(tuple(members), corrupt, count_of(stage.absent, size), fewest_for(size, corrupt, own))

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The members' numbers."""
        return np.array(self.members, dtype=np.int64)

    def graph(self, round: int) -> Graph:
        """How many neighbours each has in a round."""
        return graph_for(len(self.members), self.corrupt, self.absent, secrecy(round))

    def witnesses(self, round: int) -> Witnesses:
        """How many witnesses there are in a round."""
        return witnesses_for(len(self.members), self.corrupt, self.absent, secrecy(round))


@record
class JointSettings(TimedSettings):
    """The stage that parties make randomness for."""

    stage: SignedSum


class Agreement(TypedDict, total=False):
    """What a party remembers: its last attempt, what it opened in it, and the seeds that it knows by their round."""

    round: int
    attempt: int
    members: bytes
    secrets: dict[str, bytes]
    commitment: bytes
    opened: bytes
    seed: bytes
    of: list[bytes | int]


class Attempt(TypedDict):
    """The round in which randomness is made, the attempt, and a bitmap of the cohort over all parties of the run."""

    epoch: int
    attempt: int
    members: bytes


class Committed(TypedDict):
    """A commitment, signed."""

    commitment: bytes
    signature: bytes


class Commitments(Attempt):
    """The list of commitments: number, commitment and signature of each, one behind the other."""

    list: bytes


class Opened(TypedDict):
    """The secret number, signed with the hash of the list."""

    nonce: bytes
    signature: bytes


class Openings(Commitments):
    """The same list, and what each in it opened, in the same order."""

    openings: bytes


class Learnt(TypedDict):
    """A hash of the seed, by which the coordinator sees that both mean the same."""

    seed: bytes


# No message tells about rows: all are random numbers, their hashes, and signatures.


@task("joint.commit", settings=JointSettings, reply=Committed, reveals=Reveals.NOTHING)
def commit(party: Party, payload: Attempt, settings: JointSettings) -> Committed:
    """Commit to a fresh secret number (S0)."""

    def work(memory: Agreement) -> tuple[Agreement, Committed]:
        _cohort(party, payload["members"], settings.stage)
        last = memory.get("round", 0), memory.get("attempt", 0)
        if payload["epoch"] != party.round or not last < (party.round, payload["attempt"]) \
                or not 1 <= payload["attempt"] <= ATTEMPTS:
            raise PermissionDenied(f"party '{party.name}' was asked for randomness in attempt {payload['attempt']} of "
                                   f"round {payload['epoch']}, and was in attempt {last[1]} of round {last[0]}",
                                   remedy="attempts only go forward, and there are 8 in a round")
        nonce = secrets.token_bytes(HASH_BYTES)
        commitment = _commitment(party.roster, payload, party.index, nonce)
        after: Agreement = {**memory, "round": party.round, "attempt": payload["attempt"], "opened": b"",
                            "members": payload["members"], "commitment": commitment, "secrets": {"nonce": nonce}}
        return after, {"commitment": commitment,
                       "signature": signed_by(party, _to_sign(party.roster, payload, party.index, commitment))}

    return answer_once(party, Agreement, "commit", payload, work)


@task("joint.reveal", settings=JointSettings, reply=Opened, reveals=Reveals.NOTHING)
def open_commitment(party: Party, payload: Commitments, settings: JointSettings) -> Opened:
    """Open the own commitment, for one list only (S2)."""

    def work(memory: Agreement) -> tuple[Agreement, Opened]:
        listed = _checked_list(party, payload, settings)
        mine = memory.get("secrets", {})
        if (memory.get("round"), memory.get("attempt"), memory.get("members")) != \
                (payload["epoch"], payload["attempt"], payload["members"]) or "nonce" not in mine:
            raise PermissionDenied(f"party '{party.name}' takes no part in this attempt at joint randomness, or has "
                                   "opened its commitment for another list")
        if listed.get(party.index) != memory["commitment"]:
            raise PermissionDenied("the list of commitments does not have this party's own")
        chosen = _hash_of_list(party.roster, payload, payload["list"])
        after: Agreement = {**memory, "opened": chosen, "secrets": {}}
        return after, {"nonce": mine["nonce"],
                       "signature": signed_by(party, content("open", chosen, party.index, mine["nonce"]))}

    return answer_once(party, Agreement, "open", payload, work)


@task("joint.learn", settings=JointSettings, reply=Learnt, reveals=Reveals.NOTHING)
def learn_seed(party: Party, payload: Openings, settings: JointSettings) -> Learnt:
    """Check the whole list and all openings, and remember the seed (S3)."""

    def work(memory: Agreement) -> tuple[Agreement, Learnt]:
        if not 0 <= payload["epoch"] <= party.round or payload["epoch"] < int(memory.get("of", [0])[0]):
            raise PermissionDenied("joint randomness of another round came, or older than what is known")
        _checked_list(party, payload, settings)
        seed = _seed(party.roster, payload["epoch"], payload["attempt"], payload["members"], payload["list"],
                     payload["openings"])
        after: Agreement = {**memory, "seed": seed, "of": [payload["epoch"], payload["members"]]}
        return after, {"seed": digest("seed known", seed)}

    return answer_once(party, Agreement, "learn", payload, work)


def joint_seed(party: Party, stage: SignedSum) -> tuple[bytes, Cohort]:
    """The seed that a party knows last, and the cohort that made it; its owner may want a larger one."""
    memory = memory_of(party, Agreement)
    if "seed" not in memory:
        raise PermissionDenied(f"party '{party.name}' knows no joint randomness of this run")
    return memory["seed"], _cohort(party, bytes(memory["of"][1]), stage)


def _cohort(party: Party, bitmap: bytes, stage: SignedSum) -> Cohort:
    """A cohort as a party takes part in it."""
    roster, own = party.roster, int(party.settings.get(LEAST_COHORT, 0))
    cohort = _read_cohort(roster, bitmap, stage, own)
    if not bitmap[party.index >> 3] >> (party.index & 7) & 1:
        raise PermissionDenied(f"party '{party.name}' was asked to take part in a sum of others")
    if len(cohort.members) < own:
        raise PermissionDenied(f"the party's policy refuses: a sum of {len(cohort.members)} parties, and it wants at "
                               f"least {own}", remedy="the party's owner decides: lower 'minimum_parties' if that is "
                                                      "too strict")
    return cohort


# What follows are checks of what all parties receive alike: parties in one process make each of them once.


@lru_cache(maxsize=16)
def _read_cohort(roster: Roster, bitmap: bytes, stage: SignedSum, own: int) -> Cohort:
    everybody = np.arange(roster.parties)
    return Cohort.of(everybody[from_bitmap(everybody, bitmap)].tolist(), roster, stage, own)


def _checked_list(party: Party, payload: Commitments, settings: JointSettings) -> dict[int, bytes]:
    """The commitments by party: of more than half of the cohort and the corrupt ones, each signed by its party."""
    cohort = _cohort(party, payload["members"], settings.stage)
    return _listed(party.roster, cohort, payload["epoch"], payload["attempt"], payload["members"], payload["list"])


@lru_cache(maxsize=4)
def _listed(roster: Roster, cohort: Cohort, epoch: int, attempt: int, members: bytes, given: bytes) -> dict[int, bytes]:
    listed, tried = _entries(given), Attempt(epoch=epoch, attempt=attempt, members=members)
    if 2 * len(listed) <= len(cohort.members) + cohort.corrupt:
        raise PermissionDenied(f"only {len(listed)} of {len(cohort.members)} parties committed to joint randomness, "
                               "too few to be sure that no other list is opened", remedy="ask more parties per round")
    if not listed.keys() <= set(cohort.members):
        raise PermissionDenied("the list of commitments has parties that are not of the cohort")
    for number, (commitment, signature) in listed.items():
        check_signed(roster, number, signature, _to_sign(roster, tried, number, commitment), "the commitments")
    return {number: commitment for number, (commitment, _) in listed.items()}


def _entries(listed: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Commitment and signature of each party of a list."""
    pieces = [listed[start:start + _ENTRY] for start in range(0, len(listed), _ENTRY)]
    numbers = [int.from_bytes(piece[:_NUMBER_BYTES], "little") for piece in pieces]
    if len(listed) % _ENTRY or any(one >= other for one, other in pairwise(numbers)):
        raise PermissionDenied("the list of commitments is cut short, or not in the order of the parties' numbers")
    return {number: (piece[_NUMBER_BYTES:-SIGNATURE_BYTES], piece[-SIGNATURE_BYTES:])
            for number, piece in zip(numbers, pieces, strict=True)}


@lru_cache(maxsize=4)
def _seed(roster: Roster, epoch: int, attempt: int, members: bytes, given: bytes, openings: bytes) -> bytes:
    """The seed that follows from all openings, if each is signed for this list and opens its commitment."""
    listed, tried = _entries(given), Attempt(epoch=epoch, attempt=attempt, members=members)
    chosen, nonces = _hash_of_list(roster, tried, given), []
    if len(openings) != _OPENING * len(listed):
        raise PermissionDenied("not every party of the list has opened its commitment")
    for place, (number, (commitment, _)) in enumerate(listed.items()):
        piece = openings[place * _OPENING:(place + 1) * _OPENING]
        nonce, signature = piece[:HASH_BYTES], piece[HASH_BYTES:]
        check_signed(roster, number, signature, content("open", chosen, number, nonce), "the openings")
        if _commitment(roster, tried, number, nonce) != commitment:
            raise PermissionDenied(f"what party {number} opened is not what it had committed to")
        nonces.append(nonce)
    return digest("seed", chosen, b"".join(nonces))


def _commitment(roster: Roster, payload: Attempt, party: int, nonce: bytes) -> bytes:
    return digest("nonce", roster.agreed, payload["epoch"], payload["attempt"], payload["members"], party, nonce)


def _to_sign(roster: Roster, payload: Attempt, party: int, commitment: bytes) -> bytes:
    return content("commit", roster.agreed, payload["epoch"], payload["attempt"], payload["members"], party, commitment)


def _hash_of_list(roster: Roster, payload: Attempt, listed: bytes) -> bytes:
    return digest("list", roster.agreed, payload["epoch"], payload["attempt"], payload["members"], listed)


class Agreed(TypedDict):
    """What the coordinator knows of joint randomness: the seed, whose it is, what others need to learn it, who did."""

    seed: bytes
    members: list[int]
    openings: Openings
    learnt: list[int]


def agree(phases: Phases, federation: Federation, parties: NDArray[np.int64], stage: SignedSum,
          settings: JointSettings) -> tuple[bytes, Cohort]:
    """The seed that these parties know, and its cohort, at the coordinator: of an earlier round if that will do.

    Who is of the cohort and not among the parties has dropped out of the sum.
    """
    known, present = cast("Agreed", federation.agreed), set(parties.tolist())
    if "seed" not in known or not present <= set(known["members"]) or len(known["members"]) - len(present) > count_of(
            stage.absent, len(known["members"])):
        # Nothing of another cohort outlives it but who is in dispute with whom.
        disputes = {name: federation.agreed[name] for name in ("disputes",) if name in federation.agreed}
        known = cast("Agreed", {**_made(phases, federation, parties, stage, settings), **disputes})
    missing = np.array(sorted(present - set(known["learnt"])), dtype=np.int64)
    if len(missing):
        answers = phases.ask("learn", missing, learn_seed, {**known["openings"]}, settings=settings, fewest=0,
                             fault=lambda reply: "" if reply.payload["seed"] == digest("seed known", known["seed"])
                             else "it found another seed in the same openings")
        known["learnt"] = sorted({*known["learnt"], *answers.parties.tolist()})
    federation.agreed = cast("Payload", known)
    return known["seed"], Cohort.of(known["members"], federation.roster, stage)


def _made(phases: Phases, federation: Federation, parties: NDArray[np.int64], stage: SignedSum,
          settings: JointSettings) -> Agreed:
    """New randomness among everybody, if nearly all of them are here, or else among those who are."""
    roster, everybody = federation.roster, federation.eligible()
    wide = len(everybody) - len(parties) <= count_of(stage.absent, len(everybody)) and np.isin(parties, everybody).all()
    cohort = Cohort.of((everybody if wide else parties).tolist(), roster, stage)
    members, left = as_bitmap(np.arange(roster.parties), cohort.members), parties
    for number in range(1, ATTEMPTS + 1):
        attempt: Attempt = {"epoch": federation.round, "attempt": number, "members": members}
        committed = phases.ask("commit", left, commit, {**attempt}, settings=settings, fewest=0, lenient=True,
                               fault=partial(_unsigned, roster, attempt))
        if 2 * len(committed) <= len(cohort.members) + cohort.corrupt:
            continue  # asked again after a crash, parties have left this attempt
        listed = b"".join(reply.party.to_bytes(_NUMBER_BYTES, "little") + reply.payload["commitment"]
                          + reply.payload["signature"] for reply in committed)
        opened = phases.ask("reveal", committed.parties, open_commitment, {**attempt, "list": listed},
                            settings=settings, fewest=0)
        if len(opened) == len(committed):
            openings: Openings = {**attempt, "list": listed, "openings": b"".join(
                reply.payload["nonce"] + reply.payload["signature"] for reply in opened)}
            seed = _seed(roster, federation.round, number, members, listed, openings["openings"])
            return {"seed": seed, "members": list(cohort.members), "openings": openings, "learnt": []}
        left = opened.parties
    raise QuorumError(f"the parties made no joint randomness in {ATTEMPTS} attempts of round {federation.round}: too "
                      "many dropped out in each", remedy="ask more parties per round, or find out why they drop out")


def _unsigned(roster: Roster, attempt: Attempt, reply: Reply[Committed]) -> str:
    said, to_sign = reply.payload, _to_sign(roster, attempt, reply.party, reply.payload["commitment"])
    fits = is_signed_by(roster, reply.party, said["signature"], to_sign)
    return "" if fits else "it did not sign its commitment by the key of its certificate"
