"""Trees whose splits are spread over parties: everybody may know the shape and whose each split is, nobody all splits.

At a split stands the number of its owner and of the owner's record; what the record says, only the owner knows. What a
leaf says, only the label holder knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError
from tequio.learners.trees.tree import fault_of_splits, whole_numbers
from tequio.learners.trees.walk import LEAF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload


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

    def to_payload(self) -> Payload:
        """As it is kept and travels."""
        return {"sizes": self.sizes, "owner": self.owner, "record": self.record, "children": self.children}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any], parties: int) -> Skeleton:
        """The trees back; anything but sound ones among that many parties is refused."""
        try:
            trees = cls(*(whole_numbers(payload[name]) for name in ("sizes", "owner", "record", "children")))
        except (KeyError, TypeError, ValueError) as cause:
            raise PayloadError(f"something is not an ensemble of vertical trees: {cause!r}") from None
        fault = _fault_of(trees, parties)
        if fault:
            raise PayloadError(f"an ensemble of vertical trees is not sound: {fault}")
        return trees


def order_by_tree(tree_of_node: Iterable[int]) -> NDArray[np.int64]:
    """Nodes of trees that grew side by side, tree after tree; parents stay before their children."""
    return np.argsort(np.asarray(list(tree_of_node), dtype=np.int64), kind="stable")


def put_in_order(tree_of_node: NDArray[Any], owner: NDArray[Any], record: NDArray[Any],
                 left: NDArray[Any]) -> Skeleton:
    """The skeleton of trees that grew side by side; a split's right child comes right after its left one."""
    order = order_by_tree(tree_of_node)
    new_number = np.empty(len(order), dtype=np.int64)
    new_number[order] = np.arange(len(order))
    first = np.where(left == LEAF, LEAF, new_number[left])
    second = np.where(left == LEAF, LEAF, new_number[np.minimum(left + 1, len(order) - 1)])
    sizes = np.bincount(tree_of_node).astype(np.int32)
    return Skeleton(sizes, owner[order].astype(np.int32), record[order].astype(np.int32),
                    np.stack([first, second], axis=1)[order].astype(np.int32))


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
