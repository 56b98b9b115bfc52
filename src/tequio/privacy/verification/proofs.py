"""Proofs about sums: commitments that add up, what can be wrong with a line about a sum, and what a party checks.

Pedersen: Non-interactive and information-theoretic secure verifiable secret sharing, CRYPTO 1991; in the 2048-bit group
of RFC 3526. Two different vectors of whole numbers have the same products with three random directions of 31 bits with
a chance below 2^-90, so that it is enough to commit to those products.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from hashlib import sha256, shake_256
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from tequio.errors import PayloadError, PermissionDenied
from tequio.federation.task import NoSettings, Reveals, task
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.aggregation.keys import add_mask, identity_of, is_signed, signature
from tequio.privacy.updates import Numbers, OfRound, OwnShares
from tequio.privacy.verification.transcript import Chain, Line, canonical, follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.federation.population import Party

    _Input = Literal["round", "name", "parties", "identities", "commitments", "shares", "ring", "digest"]


class Facts(TypedDict):
    """What a line of the transcript says about a sum, party by party where there is one of each.

    What stands before `challenge` is fixed before the challenge is known, which follows from it.
    """

    round: int
    name: str
    parties: list[int]
    identities: list[str]
    commitments: list[str]
    commitment_signatures: list[str]
    shares: list[float]
    ring: list[float]
    digest: str
    challenge: NotRequired[str]
    parts: NotRequired[list[str]]
    part_signatures: NotRequired[list[str]]
    blinding: NotRequired[str]
    projection: NotRequired[str]


class Committed(OfRound, total=False):
    """By name the updates that a party has committed to, and what it committed with."""

    vectors: dict[str, Numbers]
    salts: dict[str, bytes]
    blindings: dict[str, NDArray[np.int64]]


MODULUS = int(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd"
    "ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed"
    "ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f"
    "83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b"
    "e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510"
    "15728e5a8aacaa68ffffffffffffffff", 16)
_BASE = 4
DIRECTIONS = 3
_APART = 160
LIMBS, _LIMB_BITS = 20, 13
_LOW = (1 << 31) - 1
_STRETCH = 1 << 14


@lru_cache(maxsize=1)
def other_base() -> int:
    """A square whose logarithm nobody knows, because it comes out of a hash."""
    return pow(int.from_bytes(shake_256(b"tequio pedersen").digest(256), "big"), 2, MODULUS)


def commitment(number: int, blinding: int) -> int:
    """Hides a number of either sign; the product of commitments is the commitment to the sums."""
    return pow(_BASE, number, MODULUS) * pow(other_base(), blinding, MODULUS) % MODULUS


def product(commitments: Sequence[int]) -> int:
    """Of commitments."""
    total = 1
    for one in commitments:
        total = total * one % MODULUS
    return total


def projection(challenge: bytes, whole: NDArray[np.int64]) -> int:
    """The exact products of a vector with the directions that follow from a challenge, side by side in one number."""
    total = 0
    for place in range(DIRECTIONS):
        direction = np.zeros(len(whole), dtype=np.uint32)
        add_mask(direction, shake_256(challenge + bytes([place])).digest(32))
        total += _dot(direction & np.uint32(_LOW), whole) << (_APART * place)
    return total


def new_blinding() -> NDArray[np.int64]:
    """A random number of 260 bits in limbs so small that the limbs of many parties can be added."""
    return np.array([secrets.randbelow(1 << _LIMB_BITS) for _ in range(LIMBS)], dtype=np.int64)


def blinding_of(limbs: NDArray[np.int64] | Sequence[int]) -> int:
    """The number that limbs, or sums of them, stand for."""
    return sum(int(limb) << (_LIMB_BITS * place) for place, limb in enumerate(limbs))


def _dot(direction: NDArray[np.uint32], whole: NDArray[np.int64]) -> int:
    """Without overflow: halves of the one times parts of the other, in stretches whose sums fit into 64 bits."""
    total = 0
    for shift, part in ((0, whole & _LOW), (31, whole >> 31)):
        for half_shift, half in ((0, direction & np.uint32(0xFFFF)), (16, direction >> np.uint32(16))):
            total += _exact_sum(half.astype(np.int64) * part) << (shift + half_shift)
    return total


def _exact_sum(products: NDArray[np.int64]) -> int:
    starts = np.arange(0, len(products), _STRETCH)
    return sum(int(stretch) for stretch in np.add.reduceat(products, starts)) if len(products) else 0


INPUTS: tuple[_Input, ...] = ("round", "name", "parties", "identities", "commitments", "shares", "ring", "digest")
"""Facts that are fixed before the challenge is known; the challenge follows from them."""


def challenge_of(facts: Facts) -> str:
    """Random directions that nobody could choose: they follow from what was sent and from the claimed sum."""
    return sha256(b"tequio challenge|" + canonical([facts[name] for name in INPUTS])).hexdigest()


def digest_of_sum(whole: NDArray[np.int64]) -> str:
    """Of a sum of whole numbers."""
    return sha256(np.ascontiguousarray(whole, dtype="<i8").tobytes()).hexdigest()


def digest_of_update(salt: bytes, vector: Numbers) -> str:
    """A hash commitment to an update."""
    return sha256(salt + np.ascontiguousarray(vector).tobytes()).hexdigest()


def commitment_words(round: int, name: str, digest: str) -> bytes:
    """What a party signs when it sends an update."""
    return canonical(["update", round, name, digest])


def product_words(challenge: str, committed: str) -> bytes:
    """What a party signs when it proves its part of a sum."""
    return canonical(["part", challenge, committed])


def receipt_words(hash_: str) -> bytes:
    """What a party signs when it has found a line to be right."""
    return canonical(["checked", hash_])


def complete(facts: Facts) -> bool:
    """Whether every party that was summed also proved its part."""
    return all(facts["parts"])


def wrong_with_sum(facts: Facts, whole: NDArray[np.int64] | None = None) -> str:
    """Why a line about a sum cannot be true; with the sum itself, also why the sum is not what it says. Empty: it can.

    Where a party has not proved its part, only who was counted can be checked.
    """
    count = len(facts["parties"])
    columns: list[Sequence[object]] = [facts["identities"], facts["commitments"], facts["commitment_signatures"],
                                       facts["shares"], facts["parts"], facts["part_signatures"]]
    if any(len(column) != count for column in columns) or len(set(facts["parties"])) != count:
        return "its columns do not fit together"
    if facts["challenge"] != challenge_of(facts):
        return "its challenge does not follow from what was sent"
    if not 0 < sum(facts["shares"]) < 1 + 1e-6:
        return f"the shares of its parties sum to {sum(facts['shares']):g}"
    return _wrong_signature(facts) or _wrong_arithmetic(facts, whole)


def _wrong_signature(facts: Facts) -> str:
    rows = zip(facts["parties"], facts["identities"], facts["commitments"], facts["commitment_signatures"],
               facts["parts"], facts["part_signatures"], strict=True)
    for party, identity, digest, signed, part, part_signed in rows:
        key = bytes.fromhex(identity)
        if not is_signed(key, bytes.fromhex(signed), commitment_words(facts["round"], facts["name"], digest)):
            return f"party {party} did not sign its commitment"
        if part and not is_signed(key, bytes.fromhex(part_signed), product_words(facts["challenge"], part)):
            return f"party {party} did not sign its part of the proof"
    return ""


def _wrong_arithmetic(facts: Facts, whole: NDArray[np.int64] | None) -> str:
    claimed = int(facts["projection"])
    if whole is not None:
        if digest_of_sum(whole) != facts["digest"]:
            return "the sum is another one than the line says"
        if projection(bytes.fromhex(facts["challenge"]), whole) != claimed:
            return "the sum does not have the projection that the line says"
    if complete(facts) and product([int(part, 16) for part in facts["parts"]]) != commitment(
            claimed, int(facts["blinding"])):
        return "the parts that the parties committed to do not add up to the sum"
    return ""


class ToProve(TypedDict):
    """What is claimed about a sum, and whether updates crossed in the open, so that nothing summed the blindings."""

    facts: Facts
    open: bool


class Part(TypedDict):
    """A commitment to the product of a party's own numbers with the challenge, signed."""

    part: str
    signature: str
    blinding: NotRequired[list[int]]


class ToCheck(TypedDict):
    """A line about a sum, the sum, and how the chain of the transcript leads there from what the party has seen."""

    line: Line
    sum: NDArray[np.int64]
    coordinator: str
    links: list[str]
    since: int


class Receipt(TypedDict):
    """A signature under a line that was found right."""

    signature: str


# Commitments and signatures are random to those who do not know the blinding, and what the open sum tells is revealed
# by the task that sent the updates.


@task("verified.prove", settings=NoSettings, reply=Part, reveals=Reveals.NOTHING)
def prove_part(party: Party, payload: ToProve, settings: NoSettings) -> Part:
    """Commit to the product of one's own numbers with the challenge; once only, or differences would tell them."""
    facts = payload["facts"]
    place = _own_place(party, facts)
    name, mine = facts["name"], party.recall(Committed)
    if facts["challenge"] != challenge_of(facts):
        raise PayloadError("the challenge does not follow from what was sent: the coordinator chose it")
    if name not in mine["blindings"]:
        raise PermissionDenied(f"party '{party.name}' has proved its part of this sum already")
    bits, largest, parties = facts["ring"]
    ring = Ring.of(int(bits), largest, int(parties))
    own = None if payload["open"] else party.recall(OwnShares).get("shares", {}).get(name)
    whole = ring.signed(ring.encoded(mine["vectors"][name], facts["shares"][place] if own is None else own))
    limbs = mine["blindings"][name]
    part = f"{commitment(projection(bytes.fromhex(facts['challenge']), whole), blinding_of(limbs)):x}"
    party.keep(Committed, {"blindings": {other: kept for other, kept in mine["blindings"].items() if other != name}})
    signed = signature(identity_of(party), product_words(facts["challenge"], part)).hex()
    if payload["open"]:
        return {"part": part, "signature": signed, "blinding": limbs.tolist()}
    return {"part": part, "signature": signed}


@task("verified.check", settings=NoSettings, reply=Receipt, reveals=Reveals.NOTHING)
def check_line(party: Party, payload: ToCheck, settings: NoSettings) -> Receipt:
    """Check a line of the transcript and the sum that it is about, and sign that both are right."""
    line, known = payload["line"], _known(party, payload)
    follow(known, line, payload["links"])
    facts = cast("Facts", line["body"])
    _own_place(party, facts)
    wrong = wrong_with_sum(facts, payload["sum"])
    if wrong:
        raise PayloadError(f"the aggregate of round {facts['round']} is not the sum of what was sent: {wrong}",
                           remedy="the coordinator has changed it; trust it no more")
    _let_go_of(party, facts["name"])
    party.keep(Chain, {"coordinator": known["coordinator"], "index": line["index"], "hash": line["hash"]})
    return {"signature": signature(identity_of(party), receipt_words(line["hash"])).hex()}


def _let_go_of(party: Party, name: str) -> None:
    """A sum that was found right needs no second check: forget the update."""
    mine = party.recall(Committed)
    vectors = {other: kept for other, kept in mine["vectors"].items() if other != name}
    if not vectors:
        party.forget(Committed)
        return
    party.keep(Committed, {
        "vectors": vectors, "salts": {other: kept for other, kept in mine["salts"].items() if other != name},
        "blindings": {other: kept for other, kept in mine["blindings"].items() if other != name}})


def _known(party: Party, payload: ToCheck) -> Chain:
    """What the party has seen of the transcript; the coordinator's key is the one that it first met."""
    known = party.recall(Chain) or {"coordinator": payload["coordinator"]}
    if payload["coordinator"] != known["coordinator"]:
        raise PayloadError("the transcript is signed by another key than before")
    if payload["since"] != known.get("index", -1):
        raise PayloadError(f"party '{party.name}' has seen the transcript up to line {known.get('index', -1)}, and was "
                           f"told what follows line {payload['since']}")
    return known


def _own_place(party: Party, facts: Facts) -> int:
    """Where the party stands in a sum; refuses one that does not count what the party sent."""
    name, mine = facts["name"], party.recall(Committed)
    if mine.get("round") != facts["round"] or facts["round"] != party.round or name not in mine["vectors"]:
        raise PayloadError(f"party '{party.name}' sent no update '{name}' in round {facts['round']}")
    if party.index not in facts["parties"]:
        raise PayloadError(f"the update of party '{party.name}' was not counted")
    place = facts["parties"].index(party.index)
    if facts["commitments"][place] != digest_of_update(mine["salts"][name], mine["vectors"][name]):
        raise PayloadError(f"another update than that of party '{party.name}' was counted in its name")
    return place
