"""The label holder's own part of the model: the shape of the trees and what their leaves say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tequio.algorithms.vertical.trees.grove import Grove
from tequio.algorithms.vertical.trees.skeleton import Skeleton, order_by_tree
from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


class GrownLeaves(NamedTuple):
    """Trees that have come to their end: what they grew from, their shape, and the order of their nodes in it."""

    grove: Grove
    trees: Skeleton
    order: NDArray[np.int64]


def grown_leaves(party: Party, payload: Payload) -> GrownLeaves:
    """Take the rows to the last leaves, and keep the own splits that were taken."""
    growing = party.state["growing"]
    grove = Grove.from_payload(growing["grove"])
    if "splits" in payload:
        grove.descend(payload["splits"], f"party '{party.name}'")
    trees, order = Skeleton(**payload["grown"]), order_by_tree(grove.tree)
    if len(trees.owner) != len(order):
        raise PayloadError(f"party '{party.name}' has grown {len(order)} nodes and is told of {len(trees.owner)}",
                           remedy="go on from the last checkpoint: tequio run --resume RUN")
    party.state["records"] = growing["records"]
    del party.state["growing"]
    return GrownLeaves(grove, trees, order)


def keep_trees(party: Party, more: Skeleton, said: Mapping[str, NDArray[Any]], *, undo: str = "") -> None:
    """Add trees to those that the label holder keeps, with what their nodes say; `undo` names what they will change."""
    before = party.state.get("trees") or {**Skeleton.empty().to_payload(), **{name: values[:0] for name, values in
                                                                              said.items()}}
    shape = Skeleton(*(before[name] for name in ("sizes", "owner", "record", "children"))).plus(more)
    party.state["trees"] = {**shape.to_payload(), **{name: np.concatenate([before[name], values])
                                                     for name, values in said.items()}}
    party.state["undo"] = {"trees": before, **({undo: party.state[undo]} if undo else {})}


def require_trees(party: Party, count: int) -> None:
    """Go on from that many trees: if the last ones never reached the coordinator, take them back."""
    if len(party.state["trees"]["sizes"]) == count:
        return
    undo = party.state["undo"]
    if len(undo["trees"]["sizes"]) != count:
        raise PayloadError(f"party '{party.name}' keeps {len(party.state['trees']['sizes'])} trees, and the run has "
                           f"{count}", remedy="restore the party's state of this run, or train anew")
    party.state.update(undo)
