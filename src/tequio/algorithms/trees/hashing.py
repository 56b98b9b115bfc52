"""Locality-sensitive hashing: rows that are near each other fall into the same buckets more often than others.

Datar, Immorlica, Indyk, Mirrokni: Locality-sensitive hashing scheme based on p-stable distributions, SCG 2004.
Charikar: Similarity estimation techniques from rounding algorithms, STOC 2002 (random hyperplanes).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Codes = NDArray[np.int32]
    """(rows, tables) the bucket of each row in each hash table."""

Hashing = Literal["p_stable", "hyperplane"]

_PAIRS_AT_A_TIME = 1 << 22


@dataclass(frozen=True, eq=False)
class HashFunctions:
    """Hash functions that all parties share.

    directions:  (tables, bits, columns) random directions, already divided by the columns' spreads
    offsets:     (tables, bits) added to a row's projections
    width:       of a bucket along a direction; 0 for hyperplanes, of which only the side matters
    """

    directions: NDArray[np.float64] = field(repr=False)
    offsets: NDArray[np.float64] = field(repr=False)
    width: float

    def buckets(self, rows: NDArray[Any]) -> Codes:
        """The bucket of each row in each table."""
        tables, bits, columns = self.directions.shape
        projections = rows @ self.directions.reshape(-1, columns).T + self.offsets.reshape(-1)
        if self.width:
            return np.floor(projections / self.width).clip(-2**31, 2**31 - 1).astype(np.int32)
        sides = (projections > 0).reshape(len(rows), tables, bits)
        return (sides @ (1 << np.arange(bits))).astype(np.int32)


def draw_functions(kind: Hashing, tables: int, bits: int, width: float, mean: NDArray[np.float64],
                   sd: NDArray[np.float64], rng: np.random.Generator) -> HashFunctions:
    """Random functions for columns of these means and spreads; a constant column does not matter."""
    bits = bits if kind == "hyperplane" else 1
    scale = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    directions = rng.standard_normal((tables, bits, len(sd))) * scale
    shift = rng.uniform(0, width, (tables, bits)) if kind == "p_stable" else 0.0
    return HashFunctions(directions, shift - directions @ mean, width if kind == "p_stable" else 0.0)


def relabelled(codes: Sequence[Codes]) -> list[Codes]:
    """The same buckets of several parties' rows under arbitrary numbers, which tell only who shares one."""
    whole = np.concatenate(codes)
    labels = np.stack([np.unique(column, return_inverse=True)[1] for column in whole.T], axis=1).astype(np.int32)
    return np.split(labels, np.cumsum([len(part) for part in codes])[:-1])


def most_similar(own: Codes, others: Codes, rng: np.random.Generator) -> NDArray[np.int32]:
    """For each own row the other row that shares most buckets with it; one at random where several do."""
    mine, my_group = np.unique(own, axis=0, return_inverse=True)
    groups, group, sizes = np.unique(others, axis=0, return_inverse=True, return_counts=True)
    members, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes
    luck, similar = rng.random(len(own)), np.empty(len(own), dtype=np.int32)
    order = np.argsort(my_group, kind="stable")
    for part in np.array_split(order, -(-len(own) * len(groups) // _PAIRS_AT_A_TIME)):
        distinct, place = np.unique(my_group[part], return_inverse=True)
        # Tied rows are told apart by a running count: the luck of a row says which of them it gets.
        tied = np.cumsum(_nearest(mine[distinct], groups) * sizes, axis=1)
        rank = (luck[part] * tied[place, -1]).astype(np.int64)
        chosen = (tied[place] > rank[:, None]).argmax(axis=1)
        within = rank - np.where(chosen > 0, tied[place, np.maximum(chosen, 1) - 1], 0)
        similar[part] = members[starts[chosen] + within]
    return similar


def _nearest(mine: Codes, groups: Codes) -> NDArray[np.bool_]:
    """(mine, groups): which groups share as many buckets as any does."""
    shared = np.zeros((len(mine), len(groups)), dtype=np.int16)
    for table in range(mine.shape[1]):
        shared += mine[:, table, None] == groups[None, :, table]
    nearest: NDArray[np.bool_] = shared == shared.max(axis=1, keepdims=True)
    return nearest
