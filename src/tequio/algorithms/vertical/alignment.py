"""Entity alignment: the first exchange of a vertical federation, after which all parties share one order of rows.

Private set intersection by commuting masks (Meadows, 1986; Huberman, Franklin, Hogg, 1999). Every party multiplies its
hashed ids with a secret of its own and sends them in a secret order; the lists go round until every party has masked
each of them. Then equal values are equal ids, and the coordinator, which can unmask none, tells every party which
places of its own list are common. No id and no row number leaves a party. The coordinator learns how many ids each
party has and how many are common to which parties; a party learns which of its own ids are common to all, and sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tequio.algorithms.vertical.meaning import tells
from tequio.algorithms.vertical.openmined import intersect_with_openmined
from tequio.algorithms.vertical.rows import PARTS, QUERY, common_rows, fit_scale
from tequio.data.partitions.strata import strata
from tequio.data.splits import Split, split_rows
from tequio.errors import DataError
from tequio.federation.task import task
from tequio.privacy.psi.curve import multiply
from tequio.privacy.psi.sets import in_all, masked, new_order, new_secret, require_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]

Alignment = Literal["psi", "openmined", "agreed"]
"""By set intersection, ours or OpenMined's, or not at all: the parties hold the same rows in the same order already."""


def align(talk: Conversation, how: Alignment) -> dict[str, int]:
    """Agree on the common rows and their order, and on which of them are for training, validation and testing."""
    label_holder, holders = talk.roles.label_holder, talk.roles.holders
    find_common(talk, how)
    split = talk.federation.population.split
    shares = {"validation": split.validation, "test": split.test, "stratify": split.stratify}
    codes: NDArray[np.uint8] = talk.tell(label_holder, deal_parts, settings=shares)["part"]
    talk.ask(holders, settle, {"part": codes})
    return {name: int((codes == code).sum()) for code, name in enumerate(PARTS)}


def find_common(talk: Conversation, how: Alignment, into: str = "rows") -> int:
    """Let every party keep which of its rows are common, in one order, in its state by a name; how many these are."""
    if how == "openmined":
        return intersect_with_openmined(talk, into)
    label_holder, holders = talk.roles.label_holder, talk.roles.holders
    places = intersect(talk) if how == "psi" else _as_they_stand(talk)
    if not len(places[label_holder]):
        raise DataError("the parties have no ids in common", remedy="check that their ids mean the same and are "
                                                                    "written alike")
    order = talk.tell(label_holder, choose_order, {"common": places[label_holder]}, settings={"into": into})["order"]
    talk.ask(holders, keep, each={party: {"common": places[party][order]} for party in holders},
             settings={"into": into})
    return len(order)


def intersect(talk: Conversation) -> dict[int, NDArray[np.int64]]:
    """The places of the common ids in each party's secret order: all lists visit all parties and are compared then."""
    holders = talk.roles.holders
    replies = talk.ask(holders, mask)
    lists = {reply.party: reply.payload["masked"] for reply in replies}
    for hop in range(1, len(holders)):
        at = {holders[(place + hop) % len(holders)]: owner for place, owner in enumerate(holders)}
        replies = talk.ask(holders, mask_again, each={party: {"masked": lists[at[party]]} for party in holders})
        for reply in replies:
            if len(reply.payload["masked"]) != len(lists[at[reply.party]]):
                raise DataError(f"party '{talk.federation.name(reply.party)}' gave back {len(reply.payload['masked'])} "
                                f"masked ids of {len(lists[at[reply.party]])}", remedy="stop working with it")
            lists[at[reply.party]] = reply.payload["masked"]
    return dict(zip(holders, in_all([lists[party] for party in holders]), strict=True))


def _as_they_stand(talk: Conversation) -> dict[int, NDArray[np.int64]]:
    sizes = {reply.party: reply.payload["rows"] for reply in talk.ask(talk.roles.holders, count)}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"'{talk.federation.name(party)}' has {rows}" for party, rows in sizes.items())
        raise DataError(f"the parties do not hold the same rows: {told}", remedy="set algorithm.alignment = 'psi'")
    return {party: np.arange(rows) for party, rows in sizes.items()}


@task("vertical.mask")
def mask(party: Party, payload: Payload, settings: Settings) -> Payload:
    """The party's ids, hashed, times a fresh secret, in a secret order. Both are kept until the rows are agreed."""
    ids = party.rows.ids
    require_ids(ids, f"party '{party.name}'")
    secret, order = new_secret(), new_order(len(ids))
    party.state["alignment"] = {"secret": secret, "order": order}
    return {"masked": masked(ids[order], secret)}


@task("vertical.mask again")
def mask_again(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Another party's masked ids, times this party's secret, in the order they came in."""
    return {"masked": multiply(party.state["alignment"]["secret"], payload["masked"])}


@task("vertical.count")
def count(party: Party, payload: Payload, settings: Settings) -> Payload:
    """How many rows the party holds."""
    party.state["alignment"] = {"order": np.arange(len(party.rows))}
    return {"rows": len(party.rows)}


@task("vertical.choose order")
def choose_order(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: an order of the common rows, drawn from its own stream.

    It goes by the label holder's rows and not by the masked values, which differ from run to run.
    """
    mine = party.state["alignment"]["order"][payload["common"]]
    if settings["into"] == QUERY:
        return {"order": np.argsort(mine)}
    return {"order": np.argsort(mine)[party.rng("order of common rows").permutation(len(mine))]}


@task("vertical.keep")
def keep(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Keep which rows are common, in the agreed order, and forget the secret."""
    alignment = party.state.pop("alignment")
    party.state[settings["into"]] = alignment["order"][payload["common"]]
    return {}


@task("vertical.deal parts")
def deal_parts(party: Party, payload: Payload, settings: Settings) -> Payload:
    """At the label holder: which common rows are for training, validation and testing, by strata of its labels."""
    rows = party.rows.take(party.state["rows"])
    labels = strata(rows).codes if settings["stratify"] else None
    parts = split_rows(len(rows), Split(**settings), party.rng("split"), labels)
    codes = np.zeros(len(rows), dtype=np.uint8)
    for code, places in enumerate(parts):
        codes[places] = code
    return {"part": codes}


@task("vertical.settle")
def settle(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Keep which common row is in which part, and the scale of the own columns in the training part."""
    if len(payload["part"]) != len(party.state["rows"]):
        raise DataError(f"party '{party.name}' knows of {len(party.state['rows'])} common rows and was told the parts "
                        f"of {len(payload['part'])}", remedy="align the parties anew")
    party.state["part"] = payload["part"]
    party.state["scale"] = fit_scale(common_rows(party, "train"))
    return {}


_MASKED = "ids hashed and masked, in a secret order: how many there are"
_PLACES = "which places of a shuffled list are common: how many ids are"
_PARTS = "which common rows are for training, validation and testing"
tells(mask, masked=_MASKED)
tells(mask_again, masked=_MASKED)
tells(count, rows="how many rows the party holds")
tells(choose_order, common=_PLACES, order="in which order common rows are taken")
tells(keep, common="which of the own rows are common, and in which order they are taken")
tells(deal_parts, part=_PARTS)
tells(settle, part=_PARTS)
