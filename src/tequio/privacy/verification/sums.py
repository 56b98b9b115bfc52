"""What a line about a sum says, and what can be wrong with it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.privacy.aggregation.keys import is_signed
from tequio.privacy.verification.pedersen import commitment, product, projection
from tequio.privacy.verification.transcript import canonical

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload

INPUTS = ("round", "name", "parties", "identities", "commitments", "shares", "ring", "digest")
"""Facts that are fixed before the challenge is known; the challenge follows from them."""


def challenge_of(facts: Payload) -> str:
    """Random directions that nobody could choose: they follow from what was sent and from the claimed sum."""
    return sha256(b"tequio challenge|" + canonical([facts[name] for name in INPUTS])).hexdigest()


def digest_of_sum(whole: NDArray[np.int64]) -> str:
    """Of a sum of whole numbers."""
    return sha256(np.ascontiguousarray(whole, dtype="<i8").tobytes()).hexdigest()


def digest_of_update(salt: bytes, vector: NDArray[Any]) -> str:
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


def complete(facts: Payload) -> bool:
    """Whether every party that was summed also proved its part."""
    return all(facts["parts"])


def wrong_with_sum(facts: Payload, whole: NDArray[np.int64] | None = None) -> str:
    """Why a line about a sum cannot be true; with the sum itself, also why the sum is not what it says. Empty: it can.

    Where a party has not proved its part, only who was counted can be checked.
    """
    count = len(facts["parties"])
    columns = ("identities", "commitments", "commitment_signatures", "shares", "parts", "part_signatures")
    if any(len(facts[name]) != count for name in columns) or len(set(facts["parties"])) != count:
        return "its columns do not fit together"
    if facts["challenge"] != challenge_of(facts):
        return "its challenge does not follow from what was sent"
    if not 0 < sum(facts["shares"]) < 1 + 1e-6:
        return f"the shares of its parties sum to {sum(facts['shares']):g}"
    return _wrong_signature(facts) or _wrong_arithmetic(facts, whole)


def _wrong_signature(facts: Payload) -> str:
    rows = zip(facts["parties"], facts["identities"], facts["commitments"], facts["commitment_signatures"],
               facts["parts"], facts["part_signatures"], strict=True)
    for party, identity, digest, signed, part, part_signed in rows:
        key = bytes.fromhex(identity)
        if not is_signed(key, bytes.fromhex(signed), commitment_words(facts["round"], facts["name"], digest)):
            return f"party {party} did not sign its commitment"
        if part and not is_signed(key, bytes.fromhex(part_signed), product_words(facts["challenge"], part)):
            return f"party {party} did not sign its part of the proof"
    return ""


def _wrong_arithmetic(facts: Payload, whole: NDArray[np.int64] | None) -> str:
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
