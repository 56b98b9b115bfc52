"""Entity alignment: the first exchange of a vertical federation, after which all parties share one order of rows.

Private set intersection by commuting masks (Meadows, 1986; Huberman, Franklin, Hogg, 1999). Every party multiplies its
hashed ids with a secret of its own and sends them in a secret order; the lists go round until every party has masked
each of them. Then equal values are equal ids, and the coordinator, which can unmask none, says to every party which
places of its own list are common. No id and no row number leaves a party. The coordinator learns how many ids each
party has and how many are common to which parties; a party learns which of its own ids are common to all, and sizes.

`link` reveals to no party which of its rows are common (the encrypted mask of Hardy et al., 2017). Masked ids are
compared as before, but all rows stay: every party gets an order of its own rows in which common ones share a place, and
the others are paired at random with others. Which places hold common rows only the coordinator knows, without knowing a
single id. It sends that mask along with every batch, encrypted. A party with fewer rows than the largest one fills up
with copies of a row, which count for nothing. The rows that models are tried on must be common ones: in the validation
and test parts, the parties see which are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.algorithms.vertical.conversation import describe
from tequio.algorithms.vertical.openmined import TASKS_OF_OPENMINED, intersect_with_openmined
from tequio.algorithms.vertical.rows import (
    PARTS,
    AlignSettings,
    CommonRows,
    RowCount,
    check_order,
    common_rows,
    fit_scale,
    keep_common,
)
from tequio.data.partition import Split, split_rows, strata
from tequio.errors import DataError, PayloadError
from tequio.federation.task import Done, NoSettings, Reveals, record, task
from tequio.privacy.psi.ids import in_all, masked, multiply, new_order, new_secret, require_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

Alignment = Literal["psi", "openmined", "agreed"]
"""By set intersection, ours or OpenMined's, or not at all: the parties hold the same rows in the same order already."""

_NO_PART = 255


class Places(TypedDict):
    """Places in a party's secret order of its rows."""

    common: NDArray[np.int64]


class Masked(TypedDict):
    """Ids that were hashed and masked."""

    masked: NDArray[np.uint8]


class PartOfRows(TypedDict):
    """For each common row the number of the part that it is in."""

    part: NDArray[np.uint8]


class OwnOrder(TypedDict, total=False):
    """What a party keeps until the rows are agreed: its secret, and its secret order."""

    secret: bytes
    order: NDArray[np.int64]


class FilledPlaces(TypedDict, total=False):
    """Which places have a row of the party's, until the parts are agreed."""

    filled: NDArray[np.bool_]


@record
class DealSettings:
    """How common rows are dealt to the parts."""

    validation: float
    test: float
    stratify: bool


def align(talk: Conversation, alignment: Alignment) -> dict[str, int]:
    """Agree on the common rows and their order, and on which of them are for training, validation and testing."""
    rows = find_common(talk, alignment)
    codes = _dealt_parts(talk, rows)
    talk.ask(talk.roles.holders, settle, {"part": codes})
    return {name: int((codes == code).sum()) for code, name in enumerate(PARTS)}


def find_common(talk: Conversation, alignment: Alignment, *, query: bool = False) -> int:
    """Let every party keep which of its rows are common, in one order; how many these are."""
    if alignment == "openmined":
        return intersect_with_openmined(talk, query=query)
    label_holder, holders = talk.roles.label_holder, talk.roles.holders
    places = intersect(talk) if alignment == "psi" else _as_they_stand(talk)
    _require_common(places[label_holder])
    order = talk.ask_one(label_holder, choose_order, {"common": places[label_holder]},
                         settings=AlignSettings(query=query), check=lambda reply, whose: check_order(
                             reply["order"], len(places[label_holder]), whose))["order"]
    talk.ask(holders, keep, each={party: {"common": places[party][order]} for party in holders},
             settings=AlignSettings(query=query))
    return len(order)


def intersect(talk: Conversation) -> dict[int, NDArray[np.int64]]:
    """The places of the common ids in each party's secret order: all lists visit all parties and are compared then."""
    holders = talk.roles.holders
    lists = {reply.party: reply.payload["masked"] for reply in talk.ask(holders, mask)}
    for hop in range(1, len(holders)):
        at = {holders[(index + hop) % len(holders)]: owner for index, owner in enumerate(holders)}
        replies = talk.ask(holders, mask_again, each={party: {"masked": lists[at[party]]} for party in holders})
        for reply in replies:
            if len(reply.payload["masked"]) != len(lists[at[reply.party]]):
                raise DataError(f"party '{talk.federation.name(reply.party)}' gave back {len(reply.payload['masked'])} "
                                f"masked ids of {len(lists[at[reply.party]])}", remedy="stop working with it")
            lists[at[reply.party]] = reply.payload["masked"]
    return dict(zip(holders, in_all([lists[party] for party in holders]), strict=True))


def link(talk: Conversation) -> tuple[dict[str, int], NDArray[np.uint8]]:
    """Agree on an order of all rows; how many are in each part, and which training rows are common (1) or not (0)."""
    common = intersect(talk)
    _require_common(common[talk.roles.label_holder])
    places, mask = _laid_out(talk, common)
    talk.ask(talk.roles.holders, take_places, each={party: {"places": given} for party, given in places.items()})
    codes = np.array(_dealt_parts(talk, len(mask)))
    codes[(codes > 0) & (mask == 0)] = _NO_PART
    talk.ask(talk.roles.holders, settle_linked, {"part": codes})
    return {name: int((codes == code).sum()) for code, name in enumerate(PARTS)}, mask[codes == 0]


def _as_they_stand(talk: Conversation) -> dict[int, NDArray[np.int64]]:
    sizes = {reply.party: reply.payload["rows"] for reply in talk.ask(talk.roles.holders, count)}
    if len(set(sizes.values())) > 1:
        named = ", ".join(f"'{talk.federation.name(party)}' has {rows}" for party, rows in sizes.items())
        raise DataError(f"the parties do not hold the same rows: {named}", remedy="set algorithm.alignment = 'psi'")
    return {party: np.arange(rows) for party, rows in sizes.items()}


def _require_common(places: NDArray[np.int64]) -> None:
    if not len(places):
        raise DataError("the parties have no ids in common",
                        remedy="check that their ids mean the same and are written alike")


def _dealt_parts(talk: Conversation, rows: int) -> NDArray[np.uint8]:
    def check(reply: PartOfRows, whose: str) -> None:
        if reply["part"].shape != (rows,) or (reply["part"] >= len(PARTS)).any():
            raise PayloadError(f"{whose} did not say of each of {rows} rows which part it is in")

    split = talk.federation.population.split
    settings = DealSettings(validation=split.validation, test=split.test, stratify=split.stratify)
    return talk.ask_one(talk.roles.label_holder, deal_parts, settings=settings, check=check)["part"]


def _laid_out(talk: Conversation, common: Mapping[int, NDArray[np.int64]],
              ) -> tuple[dict[int, NDArray[np.int64]], NDArray[np.uint8]]:
    """For each party what is at every place: a place in its secret order, or -1; and the mask of common rows."""
    rng = talk.federation.rng("linking")
    sizes = {party: int(talk.federation.sizes[party]) for party in common}
    order = rng.permutation(max(sizes.values()))
    matched = len(common[talk.roles.label_holder])
    mask = np.zeros(len(order), np.uint8)
    mask[order[:matched]] = 1
    places = {}
    for party, found in common.items():
        rest = rng.permutation(np.setdiff1d(np.arange(sizes[party]), found))
        given = np.full(len(order), -1, dtype=np.int64)
        given[order[:matched]] = found
        # Free places are drawn for each party separately, so that parties do not fill up the same ones.
        given[rng.permutation(order[matched:])[:len(rest)]] = rest
        places[party] = given
    return places, mask


@task("vertical.mask", settings=NoSettings, reply=Masked, reveals=Reveals.COUNTS)
def mask(party: Party, payload: Payload, settings: NoSettings) -> Masked:
    """The party's ids, hashed, times a fresh secret, in a secret order. Both are kept until the rows are agreed."""
    ids = party.rows.ids
    require_ids(ids, f"party '{party.name}'")
    secret, order = new_secret(), new_order(len(ids))
    party.keep(OwnOrder, {"secret": secret, "order": order})
    return {"masked": masked(ids[order], secret)}


@task("vertical.mask again", settings=NoSettings, reply=Masked, reveals=Reveals.NOTHING)
def mask_again(party: Party, payload: Masked, settings: NoSettings) -> Masked:
    """Another party's masked ids, times this party's secret, in the order they came in."""
    return {"masked": multiply(party.recall(OwnOrder)["secret"], payload["masked"])}


@task("vertical.count", settings=NoSettings, reply=RowCount, reveals=Reveals.COUNTS)
def count(party: Party, payload: Payload, settings: NoSettings) -> RowCount:
    """How many rows the party holds."""
    party.keep(OwnOrder, {"order": np.arange(len(party.rows))})
    return {"rows": len(party.rows)}


class _Order(TypedDict):
    order: NDArray[np.int64]


@task("vertical.choose order", settings=AlignSettings, reply=_Order, reveals=Reveals.NOTHING)
def choose_order(party: Party, payload: Places, settings: AlignSettings) -> _Order:
    """At the label holder: an order of the common rows, drawn from its own stream.

    It goes by the label holder's rows and not by the masked values, which differ from run to run.
    """
    mine = party.recall(OwnOrder)["order"][payload["common"]]
    if settings.query:
        return {"order": np.argsort(mine)}
    return {"order": np.argsort(mine)[party.rng("order of common rows").permutation(len(mine))]}


@task("vertical.keep", settings=AlignSettings, reply=Done, reveals=Reveals.NOTHING)
def keep(party: Party, payload: Places, settings: AlignSettings) -> Done:
    """Keep which rows are common, in the agreed order, and forget the secret."""
    keep_common(party, party.recall(OwnOrder)["order"][payload["common"]], query=settings.query)
    party.forget(OwnOrder)
    return {}


@task("vertical.deal parts", settings=DealSettings, reply=PartOfRows, reveals=Reveals.COUNTS)
def deal_parts(party: Party, payload: Payload, settings: DealSettings) -> PartOfRows:
    """At the label holder: which common rows are for training, validation and testing, by strata of its labels."""
    rows = party.rows.take(party.recall(CommonRows)["rows"])
    labels = strata(rows).codes if settings.stratify else None
    split = Split(settings.validation, settings.test, settings.stratify)
    codes = np.zeros(len(rows), dtype=np.uint8)
    for code, places in enumerate(split_rows(len(rows), split, party.rng("split"), labels)):
        codes[places] = code
    return {"part": codes}


@task("vertical.settle", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def settle(party: Party, payload: PartOfRows, settings: NoSettings) -> Done:
    """Keep which common row is in which part, and the scale of the own columns in the training part."""
    _keep_parts(party, payload["part"], "common rows")
    party.keep(CommonRows, {"scale": fit_scale(common_rows(party, "train"))})
    return {}


class _Laid(TypedDict):
    places: NDArray[np.int64]


@task("vertical.take places", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def take_places(party: Party, payload: _Laid, settings: NoSettings) -> Done:
    """Keep which own row is at which place; at places without one, any row, since it counts for nothing there."""
    order, places = party.recall(OwnOrder)["order"], payload["places"]
    keep_common(party, np.where(places >= 0, order[places], order[0]), query=False)
    party.forget(OwnOrder)
    party.keep(FilledPlaces, {"filled": places >= 0})
    return {}


@task("vertical.settle linked", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def settle_linked(party: Party, payload: PartOfRows, settings: NoSettings) -> Done:
    """Keep which place is in which part, and the scale of the own columns over own training rows."""
    _keep_parts(party, payload["part"], "places")
    own = party.recall(FilledPlaces)["filled"] & (payload["part"] == 0)
    party.forget(FilledPlaces)
    party.keep(CommonRows, {"scale": fit_scale(party.rows.take(party.recall(CommonRows)["rows"][own]))})
    return {}


def _keep_parts(party: Party, part: NDArray[np.uint8], what: str) -> None:
    known = len(party.recall(CommonRows)["rows"])
    if len(part) != known:
        raise DataError(f"party '{party.name}' knows {known} {what}, but received the parts of {len(part)}",
                        remedy="align the parties again")
    party.keep(CommonRows, {"part": part})


TASKS_OF_REQUESTS = (mask, mask_again, count, choose_order, keep, *TASKS_OF_OPENMINED)
"""All that parties are asked to do to align the rows of a request for predictions."""

_MASKED = "ids hashed and masked, in a secret order: how many there are"
_PARTS = "which common rows are for training, validation and testing"
describe(mask, masked=_MASKED)
describe(mask_again, masked=_MASKED)
describe(count, rows="how many rows the party holds")
describe(choose_order, common="which places of a shuffled list are common: how many ids are",
         order="in which order common rows are taken")
describe(keep, common="which of the own rows are common, and in which order they are taken")
describe(deal_parts, part=_PARTS)
describe(settle, part=_PARTS)
describe(take_places,
         places="an order of the own rows in which common ones share a place, without saying which these are")
describe(settle_linked, part="which places are for training, and which hold common rows for validation and testing")
