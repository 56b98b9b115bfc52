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

    @property
    def rows(self) -> NDArray[np.int64]:
        """How many rows reach each node, in the order of the shape."""
        counts = np.bincount(self.grove.node_of.ravel(), minlength=len(self.order))
        for node in np.flatnonzero(self.grove.left >= 0)[::-1]:  # children come after their parents
            counts[node] = counts[self.grove.left[node]] + counts[self.grove.left[node] + 1]
        return counts[self.order]


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


def keep_trees(party: Party, grown: GrownLeaves, said: Mapping[str, NDArray[Any]], *, undo: str = "") -> None:
    """Add trees to those that the label holder keeps, with what their nodes say; `undo` names what they will change."""
    said = {**{name: values[grown.order] for name, values in said.items()}, "rows": grown.rows,
            "gain": grown.grove.gain[grown.order]}
    before = party.state.get("trees") or {**Skeleton.empty().to_payload(), **{name: values[:0] for name, values in
                                                                              said.items()}}
    shape = Skeleton(*(before[name] for name in ("sizes", "owner", "record", "children"))).plus(grown.trees)
    party.state["undo"] = {"trees": before, **({undo: party.state[undo]} if undo else {})}
    party.state["trees"] = {**shape.to_payload(), **{name: np.concatenate([before[name], values])
                                                     for name, values in said.items()}}


def require_trees(party: Party, count: int) -> None:
    """Go on from that many trees: if the last ones never reached the coordinator, take them back."""
    kept = _count(party.state)
    if kept == count:
        return
    undo = party.state.get("undo", {})
    if not undo or _count(undo) != count:
        raise PayloadError(f"party '{party.name}' keeps {kept} trees, and the run has {count}",
                           remedy="restore the party's state of this run, or train anew")
    party.state.update(undo)


def _count(state: Mapping[str, Any]) -> int:
    return len(state["trees"]["sizes"]) if "trees" in state else 0
