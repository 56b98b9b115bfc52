"""Trees as one party sees them: its own splits, and where the others' are hidden.

Made from the shape of the trees, which all may know, and from the private state of that one party; nothing of another
party's can show, because nothing of it is here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.learners.trees.walk import LEAF, node_depths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tequio.algorithms.vertical.trees.skeleton import Skeleton


@dataclass(frozen=True, eq=False)
class Viewer:
    """Who looks: a party with its private state and the names of its columns, or the coordinator (-1), who has none."""

    party: int
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    columns: Sequence[str] = ()

    def sees_split(self, owner: int) -> bool:
        """Whether a split is the viewer's own."""
        return owner == self.party and "records" in self.state

    @property
    def sees_leaves(self) -> bool:
        """Whether the viewer knows what leaves say: the label holder does."""
        return "trees" in self.state


def trees_seen(trees: Skeleton, viewer: Viewer, names: Sequence[str], label_holder: str,
               classes: Sequence[str]) -> list[list[dict[str, Any]]]:
    """What a viewer of trees needs to know of each node, tree by tree; `names` are those of the parties."""
    seen = []
    for root, size in zip(trees.roots.tolist(), trees.sizes.tolist(), strict=True):
        depths = node_depths(np.where(trees.children[root:root + size] == LEAF, LEAF,
                                      trees.children[root:root + size] - root))
        nodes = [_node(trees, viewer, names, label_holder, classes, node) for node in range(root, root + size)]
        for place, node in enumerate(nodes):
            node["id"], node["depth"] = place, int(depths[place])
            node["children"] = [int(child) - root for child in trees.children[root + place] if child != LEAF]
        for place in range(size - 1, -1, -1):  # children come after their parents
            nodes[place]["below"] = sum(nodes[child]["below"] + 1 for child in nodes[place]["children"])
        seen.append(nodes)
    return seen


def _node(trees: Skeleton, viewer: Viewer, names: Sequence[str], label_holder: str, classes: Sequence[str],
          node: int) -> dict[str, Any]:
    owner, record = int(trees.owner[node]), int(trees.record[node])
    shown = {"support": _support(viewer, node), "shares": _shares(viewer, node), "branches": [], "hidden": False}
    if owner == LEAF:
        if not viewer.sees_leaves:
            return shown | {"title": "leaf", "label": f"hidden at party {label_holder}", "hidden": True}
        return shown | {"title": _says(viewer, classes, node), "label": "leaf"}
    if not viewer.sees_split(owner):
        return shown | {"title": f"hidden at party {names[owner]}", "label": "split", "branches": ["left", "right"],
                        "hidden": True}
    column = viewer.columns[int(viewer.state["records"]["column"][record])]
    threshold = f"{float(viewer.state['records']['threshold'][record]):.6g}"
    return shown | {"title": column, "label": "own split", "branches": [f"<= {threshold}", f"> {threshold}"]}


def _says(viewer: Viewer, classes: Sequence[str], node: int) -> str:
    kept = viewer.state["trees"]
    if "value" in kept:
        return f"{float(kept['value'][node]):+.4g}"
    return classes[int(kept["counts"][node].argmax())]


def _support(viewer: Viewer, node: int) -> str:
    """How many training rows reached the node, where that is kept."""
    return f"{int(viewer.state['trees']['rows'][node])} rows" if viewer.sees_leaves else "rows not kept"


def _shares(viewer: Viewer, node: int) -> list[float]:
    if not viewer.sees_leaves or "counts" not in viewer.state["trees"]:
        return []
    counts = viewer.state["trees"]["counts"][node]
    return [round(float(share), 4) for share in counts / max(float(counts.sum()), 1.0)]
