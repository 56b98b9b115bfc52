"""Which way rows go at nodes that were split: one bit a row, in the order of the rows at the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload


def packed(ways: Sequence[NDArray[np.bool_]]) -> Payload:
    """The ways of the rows of several nodes as they travel."""
    every = np.concatenate(ways) if ways else np.zeros(0, dtype=bool)
    return {"sizes": np.array([len(way) for way in ways], dtype=np.int64), "bits": np.packbits(every)}


def unpacked(payload: Mapping[str, Any], nodes: int, whose: str) -> list[NDArray[np.bool_]]:
    """The ways back, one array a node; anything else than that many is refused."""
    sizes, bits = payload.get("sizes"), payload.get("bits")
    if not isinstance(sizes, np.ndarray) or not isinstance(bits, np.ndarray) or sizes.shape != (nodes,) or \
            sizes.dtype != np.int64 or bits.dtype != np.uint8 or (sizes < 0).any() or \
            bits.shape != (-(-int(sizes.sum()) // 8),):
        raise PayloadError(f"{whose} sent something that does not say which way the rows of {nodes} nodes go",
                           remedy="all parties need the same version of tequio")
    every = np.unpackbits(bits, count=int(sizes.sum())).astype(bool)
    return np.split(every, np.cumsum(sizes)[:-1]) if nodes else []


def follow(node_of: NDArray[np.int32], splits: Mapping[str, Any], whose: str) -> NDArray[np.int32]:
    """(trees, rows) nodes where rows are after some nodes were split, from those where they were before.

    Node `nodes[i]` of tree `trees[i]` sends its rows to `left[i]` or to the node after that, as `ways` says.
    """
    after = node_of.copy()
    nodes = splits["nodes"]
    for tree, node, left, way in zip(splits["trees"], nodes, splits["left"],
                                     unpacked(splits["ways"], len(nodes), "the coordinator"), strict=True):
        rows = np.flatnonzero(node_of[tree] == node)
        if len(rows) != len(way):
            raise PayloadError(f"{whose} has {len(rows)} rows at node {node} of a tree, others have {len(way)}",
                               remedy="align the parties' rows again: start the run anew")
        after[tree, rows] = np.where(way, left, left + 1)
    return after
