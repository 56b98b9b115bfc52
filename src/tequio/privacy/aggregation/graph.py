"""Who shares masks with whom: everybody with everybody, or each with a few neighbours.

Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020.
With neighbours drawn at random, few are enough that almost surely no party's neighbours are all corrupt, and enough of
them stay.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def ring_of_neighbours(parties: NDArray[np.int64], degree: int, rng: np.random.Generator) -> dict[int, list[int]]:
    """Each party's neighbours, in order: in a random circle, the nearest on both sides. An odd degree is made even."""
    count = len(parties)
    if degree >= count - 1:
        return {int(party): [int(other) for other in parties if other != party] for party in parties}
    circle = rng.permutation(parties)
    reach = -(-degree // 2)
    steps = np.concatenate([np.arange(-reach, 0), np.arange(1, reach + 1)])
    around = circle[(np.arange(count)[:, None] + steps) % count]
    return {int(party): sorted({int(other) for other in row} - {int(party)})
            for party, row in zip(circle, around, strict=True)}


def needed_of(degree: int, threshold: float) -> int:
    """How many neighbours must help: more than half, so that nobody can be told two stories by two halves."""
    return min(int(np.floor(threshold * degree)) + 1, degree)


@lru_cache(maxsize=64)
def safe_degree(parties: int, threshold: float, corrupt: float, dropping: float) -> int:
    """The fewest neighbours with which, but for a chance of 2^-40, the sum is secret, and 2^-20, it can be unmasked.

    Secret: no party has as many corrupt neighbours as are needed to unmask it, if that share of all is corrupt.
    Unmasked: every party keeps the neighbours that it needs, if that share of all drops out. Both by the union bound.
    """
    from scipy.stats import hypergeom

    others = parties - 1
    bad, gone = round(corrupt * others), round(dropping * others)
    for degree in range(2, others, 2):
        needed = needed_of(degree, threshold)
        told = parties * hypergeom.sf(needed - 1, others, bad, degree)
        stuck = parties * hypergeom.sf(degree - needed, others, gone, degree)
        if told < 2.0 ** -40 and stuck < 2.0 ** -20:
            return degree
    return others
