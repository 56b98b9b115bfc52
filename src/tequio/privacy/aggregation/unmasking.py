"""The coordinator's arithmetic of a secure sum: add what was sent, and take off the masks that do not cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError, QuorumError
from tequio.privacy.aggregation.graph import needed_of
from tequio.privacy.aggregation.keys import KEY_BYTES, derived, in_common, is_signed, public_of
from tequio.privacy.aggregation.masks import add_masks
from tequio.privacy.aggregation.party_side import COMMITMENT_BYTES, committed, pair_purpose, point_of, signed_part
from tequio.privacy.aggregation.shamir import SHARE_BYTES, recovered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.exchange import Reply
    from tequio.federation.payload import Payload

    Culprits = list[tuple[int, str]]

SEAL_BYTES = 16
"""By so much a sealed box is longer than what is in it."""


@dataclass(frozen=True)
class Dealt:
    """What the coordinator knows after shares were dealt: public keys, sealed shares with commitments, neighbours."""

    session: bytes
    keys: dict[int, bytes]
    said: dict[int, Payload]
    around: dict[int, list[int]]


def unmasked(sent: dict[int, NDArray[Any]], dealt: Dealt, shown: dict[int, Payload],
             threshold: float) -> tuple[NDArray[Any], Culprits]:
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


def _sum_of(sent: dict[int, NDArray[Any]]) -> NDArray[Any]:
    first, *others = sent.values()
    total = first.copy()
    for masked in others:
        if len(masked) != len(total):
            raise PayloadError(f"masked updates of {len(total)} and {len(masked)} numbers cannot be added")
        total += masked
    return total


def _secret(dealer: int, what: str, dealt: Dealt, shown: dict[int, Payload], threshold: float,
            culprits: Culprits) -> bytes:
    """A party's own mask or masking key from its neighbours' shares; forged ones are told by their commitments."""
    points: list[int] = []
    shares: list[NDArray[Any]] = []
    needed = needed_of(len(dealt.around[dealer]), threshold)
    for place, holder in enumerate(dealt.around[dealer]):
        share = _share_of(dealer, holder, what, shown)
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
    expected = dealt.said[dealer]["own mask"] if what == "masks" else dealt.keys[dealer][KEY_BYTES:]
    found = committed(dealt.session, dealer, -1, secret) if what == "masks" else public_of(secret)
    if found != expected:
        raise PayloadError(f"party {dealer} shared another secret than the one it uses, so that its masks cannot be "
                           "taken off", remedy="leave that party out")
    return secret


def _share_of(dealer: int, holder: int, what: str, shown: dict[int, Payload]) -> bytes | None:
    said = shown.get(holder)
    listed = said["alive" if what == "masks" else "gone"] if said else []
    if not said or dealer not in listed or not isinstance(said[what], list) or len(said[what]) != len(listed):
        return None
    share: bytes = said[what][listed.index(dealer)]
    return share


def _is_true(dealer: int, holder: int, place: int, what: str, share: Any, dealt: Dealt) -> bool:
    start = 0 if what == "masks" else COMMITMENT_BYTES
    promised = dealt.said[dealer]["commitments"][place][start:start + COMMITMENT_BYTES]
    return (isinstance(share, bytes) and len(share) == SHARE_BYTES
            and committed(dealt.session, dealer, holder, share) == promised)


def keys_fault(reply: Reply, session: bytes) -> str:
    """What is wrong with the keys that a party offers, if anything."""
    keys, identity, signed = (reply.payload.get(name) for name in ("keys", "identity", "signature"))
    if not (isinstance(keys, bytes) and isinstance(identity, bytes) and isinstance(signed, bytes)):
        return "it sent no keys"
    if len(keys) != 2 * KEY_BYTES or not is_signed(identity, signed, signed_part(session, reply.party, keys)):
        return "it sent keys that it has not signed for this sum"
    return ""


def shares_fault(reply: Reply, neighbours: int) -> str:
    """What is wrong with the form of sealed shares; whether they open is for their receivers to find out."""
    boxes, promises = reply.payload.get("boxes"), reply.payload.get("commitments")
    for pieces, length in ((boxes, 2 * SHARE_BYTES + SEAL_BYTES), (promises, 2 * COMMITMENT_BYTES)):
        if not isinstance(pieces, list) or len(pieces) != neighbours or not all(
                isinstance(piece, bytes) and len(piece) == length for piece in pieces):
            return "it did not send one sealed box and one commitment for each neighbour"
    return "" if isinstance(reply.payload.get("own mask"), bytes) else "it did not commit to its own mask"


def masked_fault(reply: Reply, bits: int, size: int) -> str:
    """What is wrong with the form of a masked update."""
    masked = reply.payload.get("masked")
    if not isinstance(masked, np.ndarray) or masked.dtype.itemsize * 8 != bits or masked.shape != (size,) \
            or masked.dtype.kind != "u":
        return f"it did not send a masked update of {size} numbers of {bits} bits"
    return ""
