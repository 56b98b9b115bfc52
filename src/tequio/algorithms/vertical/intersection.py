"""Set intersection whose coordinator carries lists and can have none masked but those that parties committed to.

Masks commute (Meadows, 1986; Huberman, Franklin, Hogg, 1999): each party multiplies its hashed ids by a secret of its
own, the lists go round until every party has masked each of them, and then equal points are equal ids. A coordinator
that lies could have points of its choice masked, and so find out ids; hence the steps here.

    offer    a fresh key, how long the padded list will be, and whether the party brings the secret that hardens ids
    harden   the first party makes that secret, unless the parties bring theirs, and seals it for each other party
    commit   the hash of the own list: ids under the secret, hashed to the curve, masked, padded, shuffled
    agree    a signature under the hashes of all
    show     once all agree: the list, sealed under the secret
    mask     the list that the previous party masked, or its owner showed, times the own factor; each list once
    settle   two parties: each finds the common ids; more: each is told the places of its own; secrets are erased

Every answer is signed by the party's identity, and every party checks the signatures of all. Two parties tell each
other the final lists, sealed. Of more, each would learn which ids any two have in common, so the final lists go to the
coordinator in the open: it can undo no mask and knows no secret, and sees how many ids which parties have in common.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.errors import DataError, PayloadError, PermissionDenied
from tequio.federation.task import Count, Reveals, record, task
from tequio.privacy.aggregation.keys import fresh_key, in_common, opened, public_of, sealed
from tequio.privacy.aggregation.one_way import answer_once, memory_of
from tequio.privacy.psi.curve import as_points, hash_to_curve, multiply, random_points, require_points, rows_of
from tequio.privacy.psi.ids import Comparison, require_ids
from tequio.privacy.psi.limits import BEGINS, SETTLES, limits_of
from tequio.privacy.psi.session import ALTERED, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.privacy.aggregation.encodings import Field



R = TypeVar("R")


@record
class IntersectSettings:
    """Who intersects what. `members` are in the order of the roster, `attempt` is new each time.

    Where rows are `linked` no party learns which of its rows are common, and lists are not padded.
    """

    attempt: str
    members: tuple[int, ...]
    compare: tuple[Comparison, ...]
    linked: bool


@record
class MaskSettings(IntersectSettings):
    """The same, and how many parties masked a list before."""

    hop: int


class Offer(TypedDict):
    """A fresh key, the length of the list that will come, and whether the party brings a secret of its own."""

    key: bytes
    length: Count
    brings_secret: bool
    signature: bytes


class Offers(TypedDict):
    """What all members offered, in their order, and the box with the secret where the first of them made it."""

    offers: list[Offer]
    box: NotRequired[bytes]
    signature: NotRequired[bytes]


class Boxes(TypedDict):
    """The secret, sealed for each other member in their order, and a signature for each box."""

    boxes: list[bytes]
    signatures: list[bytes]


class Commitment(TypedDict):
    """The hash of a list of masked ids."""

    digest: bytes
    signature: bytes


class Commitments(TypedDict):
    """What all members committed to, in their order."""

    commitments: list[Commitment]


class Agreement(TypedDict):
    """A signature under all commitments."""

    signature: bytes


class Agreements(TypedDict):
    """The signatures of all members under all commitments, in their order."""

    signatures: list[bytes]


class Shown(TypedDict):
    """A list of masked ids, sealed for the members."""

    box: bytes


class Step(TypedDict):
    """That a list was masked: its hashes before and after, signed."""

    before: bytes
    after: bytes
    signature: bytes


class Masked(TypedDict):
    """A list masked once more: sealed on its way, in the open at its end where the coordinator compares the lists."""

    step: Step
    box: NotRequired[bytes]
    points: NotRequired[NDArray[np.uint8]]


class ToMask(TypedDict):
    """A sealed list, and the step by which it came; none where its owner showed it."""

    box: bytes
    step: NotRequired[Step]


class Settlement(TypedDict):
    """The steps of every list, by owner and hop; of two parties the final own list, of more the common places in it."""

    steps: list[list[Step]]
    box: NotRequired[bytes]
    places: NotRequired[NDArray[np.int64]]


class Settled(TypedDict):
    """How many ids all have in common (0 where the party does not learn it), and for the party's own log which
    intersection it was, of lists of which lengths, and a hash over all that was done to them."""

    common: Count
    intersection: str
    lengths: list[int]
    steps: str


class Secrets(TypedDict, total=False):
    """What is erased when an intersection is settled: `factor` multiplies points, `secret` hardens ids and seals lists,
    `points` is the own list with its `order`, `other` of two parties the final list of the other."""

    private: bytes
    secret: bytes
    factor: bytes
    points: bytes
    order: NDArray[np.int64]
    other: bytes


class OwnSide(TypedDict, total=False):
    """What a party remembers of an intersection: the last step, and what all members offered and committed to."""

    sid: bytes
    step: str
    offered: bytes
    lengths: list[int]
    digests: list[bytes]
    committed: bytes
    masked: list[int]
    rows: NDArray[np.int64]
    secrets: Secrets


class CommonInOrder(TypedDict, total=False):
    """Which own rows are common, in an order that the parties share; or all own rows in a secret order."""

    rows: NDArray[np.int64]


@task(BEGINS, settings=IntersectSettings, reply=Offer, reveals=Reveals.COUNTS)
def offer(party: Party, payload: Payload, settings: IntersectSettings) -> Offer:
    """Begin: a fresh key, and how long the list will be."""
    session, limits = _session(party, settings), limits_of(party)

    def work(before: OwnSide) -> tuple[OwnSide, Offer]:
        if before.get("sid") == session.sid:
            raise PermissionDenied(f"{session.own} has begun this intersection before", remedy=ALTERED)
        ids, private = require_ids(party.rows.ids, settings.compare, session.own), fresh_key()
        length = limits.length(len(ids), linked=settings.linked, mine=session.own)
        made: Offer = {"key": public_of(private), "length": length, "brings_secret": limits.secret != b"",
                       "signature": b""}
        return ({"sid": session.sid, "step": "offer", "secrets": {"private": private}},
                {**made, "signature": session.sign("offer", *_offered(made))})

    return _once(party, "offer", payload, settings, work)


@task("intersection.harden", settings=IntersectSettings, reply=Boxes, reveals=Reveals.NOTHING)
def harden(party: Party, payload: Offers, settings: IntersectSettings) -> Boxes:
    """At the first party: the secret that hardens ids, for each other party."""
    session = _session(party, settings)

    def work(kept: OwnSide) -> tuple[OwnSide, Boxes]:
        secrets_ = _at(session, kept, "harden", "offer")
        kept = _with_offers(session, kept, payload["offers"])
        secret, others = fresh_key(), range(1, len(session.members))
        shared = in_common(secrets_["private"], [payload["offers"][place]["key"] for place in others])
        boxes = [sealed(session.key(common, "psi secret", place), secret, b"")
                 for place, common in zip(others, shared, strict=True)]
        return {**kept, "step": "harden", "secrets": {**secrets_, "secret": secret}}, {
            "boxes": boxes, "signatures": [session.sign("secret", kept["offered"], place, box)
                                           for place, box in zip(others, boxes, strict=True)]}

    return _once(party, "harden", payload, settings, work)


@task("intersection.commit", settings=IntersectSettings, reply=Commitment, reveals=Reveals.NOTHING)
def commit(party: Party, payload: Offers, settings: IntersectSettings) -> Commitment:
    """The own ids under the secret as points, masked and padded, in a secret order; their hash leaves."""
    session, limits = _session(party, settings), limits_of(party)

    def work(kept: OwnSide) -> tuple[OwnSide, Commitment]:
        secrets_ = _at(session, kept, "commit", "offer", "harden")
        kept = _with_offers(session, kept, payload["offers"])
        secret = session.key(limits.secret, "psi own secret") if limits.secret else secrets_.get("secret") or \
            _opened_secret(session, kept, payload)
        ids = [hmac.digest(secret, b"psi id" + each, "sha256")
               for each in require_ids(party.rows.ids, settings.compare, session.own)]
        length, factor = kept["lengths"][session.place], fresh_key()
        order = _secret_order(length)
        masked = multiply(factor, hash_to_curve(ids), session.own)
        points = np.concatenate([masked, random_points(length - len(ids))])[order].tobytes()
        digest = session.digest("list", points)
        after: OwnSide = {**kept, "step": "commit", "digests": [digest], "secrets": {
            "secret": secret, "factor": factor, "points": points, "order": order}}
        return after, {"digest": digest, "signature": session.sign("commitment", kept["offered"], digest)}

    return _once(party, "commit", payload, settings, work)


@task("intersection.agree", settings=IntersectSettings, reply=Agreement, reveals=Reveals.NOTHING)
def agree(party: Party, payload: Commitments, settings: IntersectSettings) -> Agreement:
    """Agree to all commitments at once; from here on they stand."""
    session = _session(party, settings)

    def work(kept: OwnSide) -> tuple[OwnSide, Agreement]:
        _at(session, kept, "agree", "commit")
        session.one_of_each(payload["commitments"], "commitments")
        for place, each in enumerate(payload["commitments"]):
            session.require(each["signature"], place, "commitment", kept["offered"], each["digest"])
        digests = [each["digest"] for each in payload["commitments"]]
        if digests[session.place] != kept["digests"][0]:
            raise PayloadError(f"{session.own} committed to another list", remedy=ALTERED)
        committed = session.digest("commitments", kept["offered"], *digests)
        return ({**kept, "step": "agree", "committed": committed, "digests": digests},
                {"signature": session.sign("agreement", committed)})

    return _once(party, "agree", payload, settings, work)


@task("intersection.show", settings=IntersectSettings, reply=Shown, reveals=Reveals.NOTHING)
def show(party: Party, payload: Agreements, settings: IntersectSettings) -> Shown:
    """The own list, sealed, once all have agreed to the same commitments."""
    session = _session(party, settings)

    def work(kept: OwnSide) -> tuple[OwnSide, Shown]:
        secrets_ = _at(session, kept, "show", "agree")
        session.one_of_each(payload["signatures"], "agreements")
        for place, signed in enumerate(payload["signatures"]):
            session.require(signed, place, "agreement", kept["committed"])
        box = session.seal(secrets_["secret"], session.place, 0, secrets_["points"])
        left: Secrets = {"secret": secrets_["secret"], "factor": secrets_["factor"], "order": secrets_["order"]}
        return {**kept, "step": "show", "masked": [], "secrets": left}, {"box": box}

    return _once(party, "show", payload, settings, work)


@task("intersection.mask", settings=MaskSettings, reply=Masked, reveals=Reveals.NOTHING)
def mask(party: Party, payload: ToMask, settings: MaskSettings) -> Masked:
    """The list that the previous party masked or showed, times the own factor, in the same order. Each list once."""
    session, hop = _session(party, settings), settings.hop

    def work(kept: OwnSide) -> tuple[OwnSide, Masked]:
        secrets_ = _at(session, kept, "mask", "show")
        if not 1 <= hop < len(session.members):
            raise PayloadError(f"no list is masked for the {hop}th time", remedy=ALTERED)
        owner, sender = session.after(session.place, -hop), session.after(session.place, -1)
        whose = session.called(owner)
        if owner in kept["masked"]:
            raise PermissionDenied(f"{session.own} has masked the list of {whose} already", remedy=ALTERED)
        arrived = kept["digests"][owner] if hop == 1 else _require_step(session, kept, owner, hop - 1, payload["step"])
        points = as_points(session.open(secrets_["secret"], sender, owner, hop - 1, payload["box"]), whose)
        if session.digest("list", points.tobytes()) != arrived:
            raise PayloadError(f"the list of {whose} is not the one that was signed", remedy=ALTERED)
        require_points(points, kept["lengths"][owner], whose)
        product = multiply(secrets_["factor"], points, whose)
        content = product.tobytes()
        after = session.digest("list", content)
        reply: Masked = {"step": {"before": arrived, "after": after, "signature": session.sign(
            "masked list", kept["committed"], owner, hop, arrived, after)}}
        last, in_the_open = hop == len(session.members) - 1, settings.linked or len(session.members) > 2
        if last and in_the_open:
            reply["points"] = product
        else:
            reply["box"] = session.seal(secrets_["secret"], owner, hop, content)
        if not in_the_open:
            secrets_ = {**secrets_, "other": content}
        return {**kept, "masked": [*kept["masked"], owner], "secrets": secrets_}, reply

    return _once(party, "mask", payload, settings, work)


@task(SETTLES, settings=IntersectSettings, reply=Settled, reveals=Reveals.COUNTS)
def settle(party: Party, payload: Settlement, settings: IntersectSettings) -> Settled:
    """Check that each list went through all parties, learn which own rows are common, and forget all secrets."""
    session, limits = _session(party, settings), limits_of(party)

    def work(kept: OwnSide) -> tuple[OwnSide, Settled]:
        secrets_, rows = _at(session, kept, "settle", "show"), len(party.rows)
        session.one_of_each(payload["steps"], "lists")
        last = [_require_chain(session, kept, owner, steps) for owner, steps in enumerate(payload["steps"])]
        order = secrets_["order"]
        if settings.linked:
            found = order
        else:
            found = order[_compared(session, secrets_, payload["box"], last[session.place])
                          if len(session.members) == 2 else _told(session, payload["places"], len(order))]
            if (found >= rows).any():
                raise PayloadError(f"{session.own} was told that an id is common which it does not have",
                                   remedy=ALTERED)
            limits.require_enough(len(found), rows, session.own)
        return {"sid": session.sid, "step": "settle", "rows": found}, {
            "common": 0 if settings.linked else len(found), "intersection": session.sid.hex(),
            "lengths": kept["lengths"], "steps": session.digest("lists", *last).hex()}

    reply = _once(party, "settle", payload, settings, work)
    party.keep(CommonInOrder, {"rows": memory_of(party, OwnSide)["rows"]})
    return reply


def forget_intersection(party: Party) -> None:
    """Once rows are in the agreed order, nothing is left of how they were found, which no seed repeats. What only moves
    forward at a real party is in its journal, and stays."""
    party.forget(CommonInOrder)
    party.forget(OwnSide)


def _compared(session: Session, known: Secrets, box: bytes, digest: bytes) -> NDArray[np.int64]:
    """Of two parties: the places of common ids in the own list, in the order of the points, which both share."""
    content = session.open(known["secret"], 1 - session.place, session.place, 1, box)
    if session.digest("list", content) != digest:
        raise PayloadError(f"the list of {session.own} came back otherwise than it was masked", remedy=ALTERED)
    theirs = set(rows_of(as_points(known["other"], session.own)))
    mine = rows_of(as_points(content, session.own))
    found = sorted((point, place) for place, point in enumerate(mine) if point in theirs)
    return np.array([place for _, place in found], dtype=np.int64)


def _told(session: Session, places: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Of more: the places that the coordinator says hold common ids."""
    if places.ndim != 1 or len(np.unique(places)) != len(places) or not ((places >= 0) & (places < length)).all():
        raise PayloadError(f"{session.own} was told of places that its list does not have", remedy=ALTERED)
    return places


def _require_chain(session: Session, kept: OwnSide, owner: int, steps: Sequence[Step]) -> bytes:
    """The hash of a list that went through all parties; refused unless each masked what the one before it made."""
    if len(steps) != len(session.members) - 1:
        raise PayloadError(f"the list of {session.called(owner)} did not go through all parties", remedy=ALTERED)
    arrived = kept["digests"][owner]
    for hop, step in enumerate(steps, 1):
        if step["before"] != arrived:
            raise PayloadError(f"the list of {session.called(owner)} was changed on its way", remedy=ALTERED)
        arrived = _require_step(session, kept, owner, hop, step)
    return arrived


def _require_step(session: Session, kept: OwnSide, owner: int, hop: int, step: Step) -> bytes:
    session.require(step["signature"], session.after(owner, hop), "masked list", kept["committed"], owner, hop,
                    step["before"], step["after"])
    return step["after"]


def _with_offers(session: Session, kept: OwnSide, offers: Sequence[Offer]) -> OwnSide:
    """The memory with the offers of all. Refused are those that are not signed, of two kinds, or of too long lists."""
    session.one_of_each(offers, "offers")
    lengths = [each["length"] for each in offers]
    for place, each in enumerate(offers):
        session.require(each["signature"], place, "offer", *_offered(each))
        limits_of(session.party).require_length(each["length"], lengths[session.place], session.called(place),
                                                session.own)
    if len({each["brings_secret"] for each in offers}) > 1:
        without = next(place for place, each in enumerate(offers) if not each["brings_secret"])
        raise DataError(f"{session.called(without)} brings no secret that hardens ids, and others do",
                        remedy="set psi.secret_file in the policies of all parties or of none")
    if offers[session.place]["key"] != public_of(kept["secrets"]["private"]):
        raise PayloadError(f"{session.own} made another offer", remedy=ALTERED)
    offered = session.digest("offers", *(field for each in offers for field in _offered(each)))
    if kept.get("offered", offered) != offered:
        raise PayloadError(f"{session.own} was shown other offers before", remedy=ALTERED)
    return {**kept, "offered": offered, "lengths": lengths}


def _opened_secret(session: Session, kept: OwnSide, payload: Offers) -> bytes:
    session.require(payload["signature"], 0, "secret", kept["offered"], session.place, payload["box"])
    common = in_common(kept["secrets"]["private"], [payload["offers"][0]["key"]])[0]
    return opened(session.key(common, "psi secret", session.place), payload["box"], b"", session.called(0))


def _offered(made: Offer) -> tuple[Field, ...]:
    return made["key"], made["length"], int(made["brings_secret"])


def _secret_order(length: int) -> NDArray[np.int64]:
    """An order that no random stream of a run tells, so that a place in the list says nothing."""
    return np.random.Generator(np.random.PCG64(secrets.randbits(128))).permutation(length)


def _at(session: Session, kept: OwnSide, step: str, *after: str) -> Secrets:
    """The secrets of this very intersection, if it has come to where this step is due."""
    if kept.get("sid") != session.sid or kept["step"] not in after:
        done = f"has done the step '{kept['step']}'" if kept.get("sid") == session.sid else "has not begun it"
        raise PermissionDenied(f"{session.own} does not do the step '{step}' of this intersection: it {done}",
                               remedy=ALTERED)
    return kept["secrets"]


def _session(party: Party, settings: IntersectSettings) -> Session:
    return Session.of(party, settings.members, settings.attempt, ",".join(settings.compare), int(settings.linked))


def _once(party: Party, step: str, payload: Mapping[str, Any], settings: IntersectSettings,
          work: Callable[[OwnSide], tuple[OwnSide, R]]) -> R:
    """One step, which goes forward only."""
    asked = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(settings).items()}
    return answer_once(party, OwnSide, f"intersection.{step}", {**payload, "settings": asked}, work)


TASKS_OF_INTERSECTION = (offer, harden, commit, agree, show, mask, settle)

_SIGNED, _SEALED = "a signature", "masked ids, sealed for the other parties"
describe(offer, key="a public key", length="how many ids the party has, and some more",
         brings_secret="whether it brings a secret", signature=_SIGNED)
describe(harden, offers="how many ids the parties have, and some more", boxes="the secret, sealed for the others",
         signatures=_SIGNED)
describe(commit, offers="how many ids the parties have, and some more", box="the secret, sealed for the party",
         digest="a hash of masked ids", signature=_SIGNED)
describe(agree, commitments="hashes of masked ids", signature=_SIGNED)
describe(show, signatures=_SIGNED, box=_SEALED)
describe(mask, box=_SEALED, step="hashes of masked ids",
         points="ids masked by all parties: to the coordinator, how many are common to which parties")
describe(settle, steps="hashes of masked ids", box=_SEALED, places="which of the own ids are common to all",
         common="how many ids are common to all", intersection="a hash",
         lengths="how many ids the parties have, and some more")
