"""What the label holder knows while trees grow: nodes, what their rows add up to, and the offers for open nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.algorithms.vertical.trees.routes import follow
from tequio.errors import PayloadError
from tequio.learners.trees.offers import best_offer
from tequio.learners.trees.walk import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.learners.trees.offers import Best, Earning

    Offers = list[NDArray[np.int64]]
    """The offers for one node, by holder: the label holder's own first."""


@dataclass
class Grove:
    """Trees that grow side by side. Nodes are numbered through; node i is the root of tree i.

    values:     (rows, channels) what is added up of each row, in units of 2^-fraction
    weights:    (trees, rows) how often a row counts in a tree
    channels:   (trees, 2) the first channel of a tree, and the one after its last
    node_of:    (trees, rows) where each row is
    tree, left, sums, gain:  of each node: its tree, its left child, its rows' sums and what its split earned
    open:       nodes that are to be split, with what was offered for each in `offers`
    """

    values: NDArray[np.int64]
    weights: NDArray[np.uint8]
    channels: NDArray[np.int64]
    fraction: int
    node_of: NDArray[np.int32]
    tree: NDArray[np.int64]
    left: NDArray[np.int64]
    sums: NDArray[np.int64]
    gain: NDArray[np.float64]
    open: NDArray[np.int64]
    offers: list[Offers]

    @classmethod
    def planted(cls, values: NDArray[np.int64], channels: NDArray[np.int64], fraction: int,
                weights: NDArray[np.uint8]) -> Grove:
        """Roots only, of which each holds all rows."""
        trees = len(channels)
        sums = [(values[:, first:end] * weights[tree, :, None]).sum(axis=0)
                for tree, (first, end) in enumerate(channels)]
        return cls(values, weights, channels, fraction, roots_of(trees, len(values)), np.arange(trees),
                   np.full(trees, LEAF), np.stack(sums), np.zeros(trees), np.arange(trees), [])

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Grove:
        """Back from the label holder's private state."""
        return cls(**payload)

    def to_payload(self) -> Payload:
        """For the label holder's private state."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def descend(self, splits: Mapping[str, Any], whose: str) -> None:
        """Take the rows down to the children of the nodes that were split."""
        self.node_of = follow(self.node_of, splits, whose)

    def open_roots(self, offered: Mapping[int, Offers]) -> None:
        """The first offers: one for each root."""
        self.offers = [offered[node] for node in self.open.tolist()]

    def open_children(self, splits: Mapping[str, Any], offered: Mapping[int, Offers], names: Sequence[str]) -> None:
        """Offers for both children of each split from those for one: the other's are what is left of the parent's.

        `names` are those of the holders, for an error about one that does not offer the same splits at every node.
        """
        before = dict(zip(self.open.tolist(), self.offers, strict=True))
        self.open, self.offers = np.zeros(2 * len(splits["nodes"]), np.int64), []
        for place, (parent, left) in enumerate(zip(splits["nodes"].tolist(), splits["left"].tolist(), strict=True)):
            self.open[2 * place:2 * place + 2] = left, left + 1
            for child, sibling in ((left, left + 1), (left + 1, left)):
                self.offers.append(offered[child] if child in offered else
                                   _what_is_left(before[parent], offered[sibling], names))

    def split(self, earning: Earning) -> list[tuple[int, Best]]:
        """Split the open nodes where an offer earns enough; says which, and by which offer."""
        unit, taken = np.float64(2.0 ** -self.fraction), []
        self.left, self.gain = self.left.copy(), self.gain.copy()
        for node, offers in zip(self.open.tolist(), self.offers, strict=True):
            best = best_offer(earning, [left * unit for left in offers], self.sums[node] * unit)
            if best is not None:
                self._grow(node, offers[best.holder][best.offer], best.gain)
                taken.append((node, best))
        return taken

    def _grow(self, node: int, left_sums: NDArray[np.int64], gain: float) -> None:
        self.left[node], self.gain[node] = len(self.left), gain
        self.tree = np.append(self.tree, [self.tree[node]] * 2)
        self.left = np.append(self.left, [LEAF] * 2)
        self.gain = np.append(self.gain, [0.0] * 2)
        self.sums = np.concatenate([self.sums, left_sums[None], (self.sums[node] - left_sums)[None]])


def _what_is_left(whole: Offers, part: Offers, names: Sequence[str]) -> Offers:
    for name, first, second in zip(names, whole, part, strict=True):
        if first.shape != second.shape:
            raise PayloadError(f"party '{name}' offers {len(second)} splits for a node, and {len(first)} for its "
                               "parent", remedy="begin the round again; if it recurs, do not trust that party")
    return [first - second for first, second in zip(whole, part, strict=True)]


def roots_of(trees: int, rows: int) -> NDArray[np.int32]:
    """(trees, rows) where rows are before anything is split."""
    return np.repeat(np.arange(trees, dtype=np.int32)[:, None], rows, axis=1)


def counted_rows(node_of: NDArray[np.int32], weights: NDArray[np.uint8], tree: int, node: int) -> NDArray[np.intp]:
    """The rows at a node of a tree, each as often as it counts."""
    rows = np.flatnonzero(node_of[tree] == node)
    return np.repeat(rows, weights[tree, rows])
