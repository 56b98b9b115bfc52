"""Dealing things of which some are common to all parties and each of the rest belongs to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def deal_with_overlap(total: int, parties: int, overlap: float, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Sorted numbers below `total` for each party: a random share `overlap` for all, the rest dealt equally."""
    common = round(total * overlap)
    if common == total:
        return [np.arange(total)] * parties
    order = rng.permutation(total)
    own = [order[common + party::parties] for party in range(parties)]
    return [np.sort(np.concatenate([order[:common], mine])) for mine in own]
