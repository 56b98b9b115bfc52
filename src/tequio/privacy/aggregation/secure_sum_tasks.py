"""What a party does in a secure sum: keys, shares, masked update, unmasking. Secrets are kept for the round only.

Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning, CCS 2017.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import PayloadError, PermissionDenied
from tequio.federation.task import Reveals, TimedSettings, record, task
from tequio.privacy.aggregation.hidden_sums import Ring
from tequio.privacy.aggregation.keys import (
    KEY_BYTES,
    SHARE_BYTES,
    add_masks,
    derived,
    fresh_key,
    identity_of,
    in_common,
    is_signed,
    meet,
    needed_of,
    opened,
    public_of,
    sealed,
    shared,
    signature,
    signing_public,
)
from tequio.privacy.updates import OfRound, extra_counts, held, let_go

if TYPE_CHECKING:
    from tequio.federation.population import Party

COMMITMENT_BYTES = 16


@record
class SecureSumSettings(TimedSettings):
    """What parties agree on: how many neighbours must help, and how updates become whole numbers."""

    threshold: float
    bits: int
    largest: float


class Secrets(OfRound, total=False):
    """What a party knows of a sum under way; by neighbour where there is one of each."""

    session: bytes
    name: str
    sealing: bytes
    masking: bytes
    own_mask: bytes
    neighbours: list[int]
    common: list[bytes]
    keys: list[bytes]
    received: dict[str, bytes]


class InSum(TypedDict):
    """Which sum a message belongs to, and the name of the update."""

    session: bytes
    name: str


class Offered(TypedDict):
    """Two public keys in a row, signed."""

    keys: bytes
    identity: bytes
    signature: bytes


class Neighbours(InSum):
    """What the neighbours offered."""

    neighbours: list[int]
    keys: list[bytes]
    identities: list[bytes]
    signatures: list[bytes]


class Shared(TypedDict):
    """One sealed box and one commitment for each neighbour, and a commitment to the party's own mask."""

    boxes: list[bytes]
    commitments: list[bytes]
    own_mask: bytes


class Boxes(InSum):
    """The boxes that neighbours sealed, the party's share of the weights, and for how many parties the sum is sized."""

    senders: list[int]
    boxes: list[bytes]
    share: float
    count: int


class Masked(TypedDict):
    """An update under masks."""

    masked: NDArray[np.unsignedinteger]


class Answered(InSum):
    """Which neighbours sent a masked update, and which did not."""

    alive: list[int]
    gone: list[int]


class Shown(TypedDict):
    """Shares of the masks of neighbours that answered, and of the keys of those that did not."""

    masks: list[bytes]
    keys: list[bytes]


# No message of the protocol tells about rows: keys, sealed shares and masked numbers are random to all who see them,
# and what their sum tells is revealed by the task whose reply the stage held back.


@task("secure-sum.keys", settings=SecureSumSettings, reply=Offered, reveals=Reveals.NOTHING)
def offer_keys(party: Party, payload: InSum, settings: SecureSumSettings) -> Offered:
    """Two fresh public keys for this sum, one to seal shares and one to agree on masks, signed by the party."""
    held(party, payload["name"])
    sealing, masking = fresh_key(), fresh_key()
    party.forget(Secrets)
    party.keep(Secrets, {"round": party.round, "session": payload["session"], "name": payload["name"],
                         "sealing": sealing, "masking": masking})
    keys = public_of(sealing) + public_of(masking)
    seed = identity_of(party)
    return {"keys": keys, "identity": signing_public(seed),
            "signature": signature(seed, signed_part(payload["session"], party.index, keys))}


@task("secure-sum.shares", settings=SecureSumSettings, reply=Shared, reveals=Reveals.NOTHING)
def share_secrets(party: Party, payload: Neighbours, settings: SecureSumSettings) -> Shared:
    """Shares of a mask of its own and of its masking key, each sealed for one neighbour, and commitments to them."""
    mine, neighbours = _secrets(party, payload), [int(other) for other in payload["neighbours"]]
    keys = _checked_keys(party, payload, neighbours)
    common = in_common(mine["sealing"], [key[:KEY_BYTES] for key in keys])
    own_mask, needed = fresh_key(), needed_of(len(neighbours), settings.threshold)
    shares = [shared(secret, needed, [point_of(other) for other in neighbours])
              for secret in (own_mask, mine["masking"])]
    session, boxes, commitments = mine["session"], [], []
    for place, other in enumerate(neighbours):
        pair = [share[place].astype("<u4").tobytes() for share in shares]
        key = derived(common[place], about(session, b"seal", party.index, other))
        boxes.append(sealed(key, b"".join(pair), about(session, b"box", party.index, other)))
        commitments.append(b"".join(committed(session, party.index, other, share) for share in pair))
    party.keep(Secrets, {"own_mask": own_mask, "neighbours": neighbours, "common": common,
                         "keys": [key[KEY_BYTES:] for key in keys]})
    return {"boxes": boxes, "commitments": commitments, "own_mask": committed(session, party.index, -1, own_mask)}


@task("secure-sum.masked", settings=SecureSumSettings, reply=Masked, reveals=Reveals.NOTHING)
def send_masked(party: Party, payload: Boxes, settings: SecureSumSettings) -> Masked:
    """The update as whole numbers, under the party's own mask and one with each neighbour whose shares arrived."""
    mine, senders = _secrets(party, payload), [int(other) for other in payload["senders"]]
    if not set(senders) <= set(mine["neighbours"]) or len(set(senders)) != len(senders):
        raise PayloadError("shares came from parties that are no neighbours, or twice from one")
    if len(senders) < needed_of(len(mine["neighbours"]), settings.threshold):
        raise PermissionDenied(f"only {len(senders)} of {len(mine['neighbours'])} neighbours have sent shares, too few "
                               "to be sure that the update stays hidden", remedy="ask more parties per round")
    received = {str(other): _opened_share(party, mine, other, box)
                for other, box in zip(senders, payload["boxes"], strict=True)}
    ring = Ring.of(settings.bits, settings.largest, payload["count"])
    masked = np.concatenate([ring.encoded(held(party, mine["name"]), payload["share"]),
                             extra_counts(party, mine["name"], payload["count"]).astype(ring.kind)])
    common = in_common(mine["masking"], [_of(mine, mine["keys"], other) for other in senders])
    keys = {other: derived(secret, pair_purpose(mine["session"], party.index, other))
            for other, secret in zip(senders, common, strict=True)}
    add_masks(masked, [mine["own_mask"], *(keys[other] for other in senders if other > party.index)],
              [keys[other] for other in senders if other < party.index])
    let_go(party, mine["name"])
    party.keep(Secrets, {"received": received})
    return {"masked": masked}


@task("secure-sum.unmask", settings=SecureSumSettings, reply=Shown, reveals=Reveals.NOTHING)
def help_unmask(party: Party, payload: Answered, settings: SecureSumSettings) -> Shown:
    """For each neighbour one share: of its own mask if it answered, of its masking key if it did not. Never both."""
    mine = _secrets(party, payload)
    alive, gone = ([int(other) for other in others] for others in (payload["alive"], payload["gone"]))
    received = mine.get("received", {})
    if set(alive) & set(gone) or not {str(other) for other in alive + gone} <= received.keys():
        raise PermissionDenied(f"party '{party.name}' was asked for both secrets of a neighbour, or for some that it "
                               "does not have", remedy="the coordinator is at fault; trust it no more")
    if len(alive) < needed_of(len(mine["neighbours"]), settings.threshold):
        raise PermissionDenied(f"party '{party.name}' was told that only {len(alive)} of {len(mine['neighbours'])} "
                               "neighbours answered, too few to unmask", remedy="ask more parties per round")
    party.forget(Secrets)
    return {"masks": [received[str(other)][:SHARE_BYTES] for other in alive],
            "keys": [received[str(other)][SHARE_BYTES:] for other in gone]}


def point_of(party: int) -> int:
    """Where a party's share lies on the polynomials; 0 is where the secret is."""
    return party + 1


def about(session: bytes, what: bytes, sender: int, receiver: int) -> bytes:
    """Binds a key or a box to one sum, one purpose, one sender and one receiver."""
    return b"tequio secure-sum|" + what + b"|" + session + f"|{sender}|{receiver}".encode()


def pair_purpose(session: bytes, one: int, other: int) -> bytes:
    """What the mask of a pair is for: the same for both."""
    return about(session, b"mask", min(one, other), max(one, other))


def committed(session: bytes, dealer: int, holder: int, secret: bytes) -> bytes:
    """A commitment to a random secret, by which a forged one is told from the true one."""
    return blake2b(about(session, b"commit", dealer, holder) + secret, digest_size=COMMITMENT_BYTES).digest()


def signed_part(session: bytes, party: int, keys: bytes) -> bytes:
    """What a party signs when it offers keys."""
    return about(session, b"keys", party, party) + keys


def _secrets(party: Party, payload: InSum) -> Secrets:
    mine = party.recall(Secrets)
    if mine.get("session") != payload["session"] or mine.get("round") != party.round:
        raise PermissionDenied(f"party '{party.name}' takes no part in this sum, or has ended it",
                               remedy="messages of an earlier sum are not answered again")
    return mine


def _checked_keys(party: Party, payload: Neighbours, neighbours: list[int]) -> list[bytes]:
    """The neighbours' keys, if each signed its own, with the identity that it had when it was first met."""
    if party.index in neighbours or len(set(neighbours)) != len(neighbours) or not neighbours:
        raise PayloadError("a list of neighbours that names this party, one of them twice, or nobody")
    meet(party, dict(zip(neighbours, payload["identities"], strict=True)))
    for other, keys, identity, signed in zip(neighbours, payload["keys"], payload["identities"],
                                             payload["signatures"], strict=True):
        if len(keys) != 2 * KEY_BYTES or not is_signed(identity, signed, signed_part(payload["session"], other, keys)):
            raise PayloadError(f"the keys of party {other} are not signed by it: forged, replayed or altered")
    if len(set(payload["keys"])) != len(neighbours):
        raise PayloadError("two neighbours came with the same keys")
    return list(payload["keys"])


def _opened_share(party: Party, mine: Secrets, other: int, box: bytes) -> bytes:
    session = mine["session"]
    key = derived(_of(mine, mine["common"], other), about(session, b"seal", other, party.index))
    content = opened(key, box, about(session, b"box", other, party.index), f"party {other}")
    if len(content) != 2 * SHARE_BYTES:
        raise PayloadError(f"the shares of party {other} have {len(content)} bytes instead of {2 * SHARE_BYTES}")
    return content


def _of(mine: Secrets, kept: list[bytes], other: int) -> bytes:
    """What is kept of a neighbour."""
    return kept[mine["neighbours"].index(other)]
