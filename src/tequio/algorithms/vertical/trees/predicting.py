"""Predictions with the parties online: rows go down all trees at once, and each split's owner says which way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.rows import asked_rows
from tequio.algorithms.vertical.trees.offering import route
from tequio.federation.task import task
from tequio.learners.trees.walk import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.trees.skeleton import Skeleton
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


def leaves_reached(talk: Conversation, trees: Skeleton, request: Mapping[int, Payload]) -> NDArray[np.int32]:
    """(trees, rows) the leaf where each row of a request ends.

    A party hears which rows reach its own splits and answers for these only; it does not hear where they end.
    """
    label_holder = talk.roles.label_holder
    rows = int(talk.tell(label_holder, count_asked, request[label_holder])["rows"])
    here = np.repeat(trees.roots.astype(np.int32)[:, None], rows, axis=1)
    while True:
        open_nodes = np.unique(here)
        open_nodes = open_nodes[trees.owner[open_nodes] != LEAF]
        if not len(open_nodes):
            return here
        here = _one_level_down(talk, trees, request, here, open_nodes)


@task("vertical trees: count rows")
def count_asked(party: Party, payload: Payload, settings: Mapping[str, Any]) -> Payload:
    """At the label holder: how many rows a request means."""
    return {"rows": len(asked_rows(party, payload))}


def _one_level_down(talk: Conversation, trees: Skeleton, request: Mapping[int, Payload], here: NDArray[np.int32],
                    open_nodes: NDArray[np.int32]) -> NDArray[np.int32]:
    tree_of = np.searchsorted(trees.roots, open_nodes, side="right") - 1
    reach = here[tree_of] == open_nodes[:, None]
    bits, owner = np.packbits(reach, axis=1), trees.owner[open_nodes]
    told = {int(party): {**request[int(party)], "records": trees.record[open_nodes[owner == party]],
                         "reach": bits[owner == party]} for party in np.unique(owner)}
    below = here.copy()
    for reply in talk.ask(told, route, each=told):
        places = np.flatnonzero(owner == reply.party)
        ways = np.unpackbits(reply.payload["ways"], axis=1, count=here.shape[1]).astype(bool)
        for place, way in zip(places, ways, strict=True):
            arrived, (left, right) = reach[place], trees.children[open_nodes[place]]
            below[tree_of[place], arrived] = np.where(way[arrived], left, right)
    return below
