"""Entity alignment that tells no party which of its rows are common (the encrypted mask of Hardy et al., 2017).

Masked ids are compared as in `alignment`, but all rows stay: every party gets an order of its own rows in which common
ones share a place, and the others are paired at random with others. Which places hold common rows only the coordinator
knows, without knowing a single id. It sends that mask along with every batch, encrypted. A party with fewer rows than
the largest one fills up with copies of a row, which count for nothing.

The rows that models are tried on must be common ones: in the validation and test parts, the parties see which are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.alignment import deal_parts, intersect
from tequio.algorithms.vertical.meaning import tells
from tequio.algorithms.vertical.rows import PARTS, fit_scale
from tequio.errors import DataError
from tequio.federation.task import task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload

    Settings = Mapping[str, Any]

_NO_PART = 255


def link(talk: Conversation) -> tuple[dict[str, int], NDArray[np.uint8]]:
    """Agree on an order of all rows; how many are in each part, and which training rows are common (1) or not (0)."""
    common, holder = intersect(talk), talk.roles.label_holder
    if not len(common[holder]):
        raise DataError("the parties have no ids in common", remedy="check that their ids mean the same and are "
                                                                    "written alike")
    places, mask = _laid_out(talk, common)
    talk.ask(talk.roles.holders, take_places, each={party: {"places": given} for party, given in places.items()})
    split = talk.federation.population.split
    shares = {"validation": split.validation, "test": split.test, "stratify": split.stratify}
    codes = np.array(talk.tell(holder, deal_parts, settings=shares)["part"])
    codes[(codes > 0) & (mask == 0)] = _NO_PART
    talk.ask(talk.roles.holders, settle_linked, {"part": codes})
    return {name: int((codes == code).sum()) for code, name in enumerate(PARTS)}, mask[codes == 0]


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
        # Free places are drawn for each party anew, so that parties do not fill up the same ones.
        given[rng.permutation(order[matched:])[:len(rest)]] = rest
        places[party] = given
    return places, mask


@task("vertical.take places")
def take_places(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Keep which own row is at which place; at places without one, any row, since it counts for nothing there."""
    order, places = party.state.pop("alignment")["order"], payload["places"]
    party.state["rows"] = np.where(places >= 0, order[places], order[0])
    party.state["filled"] = places >= 0
    return {}


@task("vertical.settle linked")
def settle_linked(party: Party, payload: Payload, settings: Settings) -> Payload:
    """Keep which place is in which part, and the scale of the own columns over own training rows."""
    if len(payload["part"]) != len(party.state["rows"]):
        raise DataError(f"party '{party.name}' knows of {len(party.state['rows'])} places and was told the parts of "
                        f"{len(payload['part'])}", remedy="align the parties anew")
    party.state["part"] = payload["part"]
    own = party.state.pop("filled") & (payload["part"] == 0)
    party.state["scale"] = fit_scale(party.rows.take(party.state["rows"][own]))
    return {}


tells(take_places, places="an order of the own rows in which common ones share a place, without saying which these are")
tells(settle_linked, part="which places are for training, and which hold common rows for validation and testing")
