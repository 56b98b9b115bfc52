"""Entity alignment: the first exchange of a vertical federation, after which all parties share one order of rows.

The parties find their common ids by set intersection (`intersecting.py`), and the label holder chooses an order of the
common rows. No id and no row number leaves a party.

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
from tequio.algorithms.vertical.intersecting import intersect
from tequio.algorithms.vertical.intersection import TASKS_OF_INTERSECTION, CommonInOrder, forget_intersection
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.intersecting import Found
    from tequio.federation.payload import Payload
    from tequio.federation.population import Party
    from tequio.privacy.psi.ids import Comparison

Alignment = Literal["psi", "agreed"]
"""By set intersection, or not at all: the parties hold the same rows in the same order already."""

_NO_PART = 255


class PartOfRows(TypedDict):
    """For each common row the number of the part that it is in."""

    part: NDArray[np.uint8]


class FilledPlaces(TypedDict, total=False):
    """Which places have a row of the party's, until the parts are agreed."""

    filled: NDArray[np.bool_]


@record
class DealSettings:
    """How common rows are dealt to the parts."""

    validation: float
    test: float
    stratify: bool


def align(talk: Conversation, alignment: Alignment, compare: Sequence[Comparison]) -> dict[str, int]:
    """Agree on the common rows and their order, and on which of them are for training, validation and testing."""
    rows = find_common(talk, alignment, compare)
    codes = _dealt_parts(talk, rows)
    talk.ask(talk.roles.holders, settle_parts, {"part": codes})
    return {name: int((codes == code).sum()) for code, name in enumerate(PARTS)}


def find_common(talk: Conversation, alignment: Alignment, compare: Sequence[Comparison], *, query: bool = False) -> int:
    """Let every party keep which of its rows are common, in one order; how many these are."""
    holders, settings = talk.roles.holders, AlignSettings(query=query)
    common = intersect(talk, compare).common if alignment == "psi" and len(holders) > 1 else _as_they_stand(talk)
    order = talk.ask_one(talk.roles.label_holder, choose_order, settings=settings,
                         check=lambda reply, whose: check_order(reply["order"], common, whose))["order"]
    talk.ask(holders, keep, {"order": order}, settings=settings)
    return common


def link(talk: Conversation, compare: Sequence[Comparison]) -> tuple[dict[str, int], NDArray[np.uint8]]:
    """Agree on an order of all rows; how many are in each part, and which training rows are common (1) or not (0)."""
    found = intersect(talk, compare, linked=True)
    places, mask = _laid_out(talk, found)
    talk.ask(talk.roles.holders, take_places, each={party: {"places": given} for party, given in places.items()})
    codes = np.array(_dealt_parts(talk, len(mask)))
    codes[(codes > 0) & (mask == 0)] = _NO_PART
    talk.ask(talk.roles.holders, settle_linked, {"part": codes})
    return {name: int((codes == code).sum()) for code, name in enumerate(PARTS)}, mask[codes == 0]


def _as_they_stand(talk: Conversation) -> int:
    sizes = {reply.party: reply.payload["rows"] for reply in talk.ask(talk.roles.holders, count)}
    if len(set(sizes.values())) > 1:
        named = ", ".join(f"'{talk.federation.name(party)}' has {rows}" for party, rows in sizes.items())
        raise DataError(f"the parties do not hold the same rows: {named}", remedy="set algorithm.alignment = 'psi'")
    return sizes[talk.roles.label_holder]


def _dealt_parts(talk: Conversation, rows: int) -> NDArray[np.uint8]:
    def check(reply: PartOfRows, whose: str) -> None:
        if reply["part"].shape != (rows,) or (reply["part"] >= len(PARTS)).any():
            raise PayloadError(f"{whose} did not say of each of {rows} rows which part it is in")

    split = talk.federation.population.split
    settings = DealSettings(validation=split.validation, test=split.test, stratify=split.stratify)
    return talk.ask_one(talk.roles.label_holder, deal_parts, settings=settings, check=check)["part"]


def _laid_out(talk: Conversation, found: Found) -> tuple[dict[int, NDArray[np.int64]], NDArray[np.uint8]]:
    """For each party what is at every place: a place in its secret order, or -1; and the mask of common rows."""
    rng = talk.federation.rng("linking")
    order = rng.permutation(max(found.lengths.values()))
    mask = np.zeros(len(order), np.uint8)
    mask[order[:found.common]] = 1
    places = {}
    for party, common in found.places.items():
        rest = rng.permutation(np.setdiff1d(np.arange(found.lengths[party]), common))
        given = np.full(len(order), -1, dtype=np.int64)
        given[order[:found.common]] = common
        # Free places are drawn for each party separately, so that parties do not fill up the same ones.
        given[rng.permutation(order[found.common:])[:len(rest)]] = rest
        places[party] = given
    return places, mask


@task("vertical.count", settings=NoSettings, reply=RowCount, reveals=Reveals.COUNTS)
def count(party: Party, payload: Payload, settings: NoSettings) -> RowCount:
    """How many rows the party holds; all are common."""
    party.keep(CommonInOrder, {"rows": np.arange(len(party.rows))})
    return {"rows": len(party.rows)}


class Ordered(TypedDict):
    """An order of the common rows."""

    order: NDArray[np.int64]


@task("vertical.choose order", settings=AlignSettings, reply=Ordered, reveals=Reveals.NOTHING)
def choose_order(party: Party, payload: Payload, settings: AlignSettings) -> Ordered:
    """At the label holder: an order of the common rows, drawn from its own stream.

    It goes by the label holder's rows and not by the masked values, which differ from run to run.
    """
    mine = party.recall(CommonInOrder)["rows"]
    if settings.query:
        return {"order": np.argsort(mine)}
    return {"order": np.argsort(mine)[party.rng("order of common rows").permutation(len(mine))]}


@task("vertical.keep", settings=AlignSettings, reply=Done, reveals=Reveals.NOTHING)
def keep(party: Party, payload: Ordered, settings: AlignSettings) -> Done:
    """Keep which rows are common, in the agreed order."""
    mine = party.recall(CommonInOrder)["rows"]
    check_order(payload["order"], len(mine), "the label holder")
    keep_common(party, mine[payload["order"]], query=settings.query)
    forget_intersection(party)
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
def settle_parts(party: Party, payload: PartOfRows, settings: NoSettings) -> Done:
    """Keep which common row is in which part, and the scale of the own columns in the training part."""
    _keep_parts(party, payload["part"], "common rows")
    party.keep(CommonRows, {"scale": fit_scale(common_rows(party, "train"))})
    return {}


class _Laid(TypedDict):
    places: NDArray[np.int64]


@task("vertical.take places", settings=NoSettings, reply=Done, reveals=Reveals.NOTHING)
def take_places(party: Party, payload: _Laid, settings: NoSettings) -> Done:
    """Keep which own row is at which place; at places without one, any row, since it counts for nothing there."""
    order, places = party.recall(CommonInOrder)["rows"], payload["places"]
    keep_common(party, np.where(places >= 0, order[places], order[0]), query=False)
    forget_intersection(party)
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


TASKS_OF_REQUESTS = (*TASKS_OF_INTERSECTION, count, choose_order, keep)
"""All that parties are asked to do to align the rows of a request for predictions."""

_PARTS = "which common rows are for training, validation and testing"
describe(count, rows="how many rows the party holds")
describe(choose_order, order="in which order common rows are taken")
describe(keep, order="in which order common rows are taken")
describe(deal_parts, part=_PARTS)
describe(settle_parts, part=_PARTS)
describe(take_places,
         places="an order of the own rows in which common ones share a place, without saying which these are")
describe(settle_linked, part="which places are for training, and which hold common rows for validation and testing")
