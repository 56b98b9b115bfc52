"""Trees whose splits are spread over parties: everybody may know the shape and whose each split is, nobody all splits.

At a split stands the number of its owner and of the owner's record; what the record says, only the owner knows. What a
leaf says, only the label holder knows. A party sees the trees with its own splits, and where the others' are hidden:
that view is made from the shape and from the private state of that one party, so nothing of another party's can show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from tequio.errors import PayloadError
from tequio.learners.learner import Arrays
from tequio.learners.trees.tree import LEAF, fault_of_splits, node_depths, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tequio.federation.payload import Payload
    from tequio.federation.population import Party

    Numbers = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Skeleton:
    """All trees of an ensemble one after the other; nodes are numbered through, and children come after parents.

    sizes:      (trees,) nodes of each tree
    owner:      (nodes,) whose split it is, LEAF at leaves
    record:     (nodes,) the number of the split among its owner's, LEAF at leaves
    children:   (nodes, 2) where rows go on, LEAF at leaves
    """

    sizes: NDArray[np.int32]
    owner: NDArray[np.int32] = field(repr=False)
    record: NDArray[np.int32] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def roots(self) -> NDArray[np.int64]:
        """The number of each tree's root."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def parties(self) -> NDArray[np.int64]:
        """Who owns a split."""
        return np.unique(self.owner[self.owner != LEAF]).astype(np.int64)

    @classmethod
    def empty(cls) -> Skeleton:
        """No tree yet."""
        nothing = np.zeros(0, np.int32)
        return cls(nothing, nothing, nothing, np.zeros((0, 2), np.int32))

    def plus(self, more: Skeleton) -> Skeleton:
        """These trees and then those."""
        shifted = np.where(more.children == LEAF, LEAF, more.children + len(self.owner)).astype(np.int32)
        return Skeleton(np.concatenate([self.sizes, more.sizes]), np.concatenate([self.owner, more.owner]),
                        np.concatenate([self.record, more.record]), np.concatenate([self.children, shifted]))

    def to_payload(self) -> Arrays:
        """As it is kept and travels."""
        return {"sizes": self.sizes, "owner": self.owner, "record": self.record, "children": self.children}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.int32]]) -> Skeleton:
        """The trees in what is known to be sound, such as a party's own state."""
        return cls(arrays["sizes"], arrays["owner"], arrays["record"], arrays["children"])

    @classmethod
    def from_payload(cls, payload: Mapping[str, object], parties: int) -> Skeleton:
        """The trees back; anything but sound ones among that many parties is refused."""
        try:
            trees = cls(*(whole_numbers(payload[name]) for name in ("sizes", "owner", "record", "children")))
        except (KeyError, TypeError, ValueError) as cause:
            raise PayloadError(f"something is not an ensemble of vertical trees: {cause!r}") from None
        fault = _fault_of(trees, parties)
        if fault:
            raise PayloadError(f"an ensemble of vertical trees is not sound: {fault}")
        return trees


def _fault_of(trees: Skeleton, parties: int) -> str:
    nodes = len(trees.owner)
    if trees.sizes.ndim != 1 or (trees.sizes < 1).any() or trees.sizes.sum() != nodes or \
            trees.record.shape != (nodes,) or trees.children.shape != (nodes, 2):
        return "its arrays do not fit each other"
    for root, size in zip(trees.roots, trees.sizes, strict=True):
        part = slice(root, root + size)
        own = np.where(trees.children[part] == LEAF, LEAF, trees.children[part] - root)
        fault = fault_of_splits("binary", trees.owner[part], np.zeros(size), own, parties)
        if fault:
            return fault
    return ""


def order_by_tree(tree_of_node: Iterable[int]) -> NDArray[np.int64]:
    """Nodes of trees that grew side by side, tree after tree; parents stay before their children."""
    return np.argsort(np.asarray(list(tree_of_node), dtype=np.int64), kind="stable")


def put_in_order(tree_of_node: Numbers, owner: Numbers, record: Numbers, left: Numbers) -> Skeleton:
    """The skeleton of trees that grew side by side; a split's right child comes right after its left one."""
    order = order_by_tree(tree_of_node)
    new_number = np.empty(len(order), dtype=np.int64)
    new_number[order] = np.arange(len(order))
    first = np.where(left == LEAF, LEAF, new_number[left])
    second = np.where(left == LEAF, LEAF, new_number[np.minimum(left + 1, len(order) - 1)])
    sizes = np.bincount(tree_of_node).astype(np.int32)
    return Skeleton(sizes, owner[order].astype(np.int32), record[order].astype(np.int32),
                    np.stack([first, second], axis=1)[order].astype(np.int32))


class Records(TypedDict):
    """What a party's own splits look at: a column each, and the threshold up to which rows go left."""

    column: NDArray[np.int32]
    threshold: NDArray[np.float64]


class OwnSplits(TypedDict, total=False):
    """What every party with columns keeps of the model."""

    records: Records


class OwnTrees(TypedDict, total=False):
    """What the label holder keeps of the model, and what it takes back if a round does not come to its end.

    trees:    the shape of all trees, with what each node says (`value` or `counts`), its `rows` and its `gain`
    margins:  (rows, outputs) of the training rows, where trees are boosted
    before:   both, without the trees that were added last
    """

    trees: Arrays
    margins: NDArray[np.float64]
    before: OwnTrees


@dataclass(frozen=True, eq=False)
class Viewer:
    """Who looks: a party with what it keeps and the names of its columns, or the coordinator (-1), who has nothing."""

    party: int
    records: Records | None = field(default=None, repr=False)
    trees: Arrays | None = field(default=None, repr=False)
    columns: Sequence[str] = ()

    @classmethod
    def of(cls, party: Party, columns: Sequence[str]) -> Viewer:
        """One party, with its own state and nothing of the others."""
        return cls(party.index, party.recall(OwnSplits).get("records"), party.recall(OwnTrees).get("trees"), columns)

    def sees_split(self, owner: int) -> bool:
        """Whether a split is the viewer's own."""
        return owner == self.party and self.records is not None


def trees_seen(trees: Skeleton, viewer: Viewer, names: Sequence[str], label_holder: str,
               classes: Sequence[str]) -> list[list[Payload]]:
    """What a viewer of trees needs to know of each node, tree by tree; `names` are those of the parties."""
    seen = []
    for root, size in zip(trees.roots.tolist(), trees.sizes.tolist(), strict=True):
        depths = node_depths(np.where(trees.children[root:root + size] == LEAF, LEAF,
                                      trees.children[root:root + size] - root))
        nodes = [_node(trees, viewer, names, label_holder, classes, node) for node in range(root, root + size)]
        for index, node in enumerate(nodes):
            node["id"], node["depth"] = index, int(depths[index])
            node["children"] = [int(child) - root for child in trees.children[root + index] if child != LEAF]
        for node in reversed(nodes):  # children come after their parents
            node["below"] = sum(nodes[child]["below"] + 1 for child in node["children"])
        seen.append(nodes)
    return seen


def _node(trees: Skeleton, viewer: Viewer, names: Sequence[str], label_holder: str, classes: Sequence[str],
          node: int) -> Payload:
    owner, record, known = int(trees.owner[node]), int(trees.record[node]), viewer.trees
    seen: Payload = {"support": "rows not kept" if known is None else f"{int(known['rows'][node])} rows",
                      "shares": _shares(known, node), "branches": [], "hidden": False}
    if owner == LEAF and known is None:
        seen |= {"title": "leaf", "label": f"hidden at party {label_holder}", "hidden": True}
    elif owner == LEAF and known is not None:
        says = (f"{float(known['value'][node]):+.4g}" if "value" in known else
                classes[int(known["counts"][node].argmax())])
        seen |= {"title": says, "label": "leaf"}
    elif viewer.records is None or not viewer.sees_split(owner):
        seen |= {"title": f"hidden at party {names[owner]}", "label": "split", "branches": ["left", "right"],
                 "hidden": True}
    else:
        threshold = f"{float(viewer.records['threshold'][record]):.6g}"
        seen |= {"title": viewer.columns[int(viewer.records["column"][record])], "label": "own split",
                 "branches": [f"<= {threshold}", f"> {threshold}"]}
    return seen


def _shares(known: Arrays | None, node: int) -> list[float]:
    """The share of each class at a node, where the viewer knows it."""
    if known is None or "counts" not in known:
        return []
    counts = known["counts"][node]
    return [round(float(share), 4) for share in counts / max(float(counts.sum()), 1.0)]
