"""How much each party's update weighs in a hidden sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.stages import Room


@dataclass(frozen=True)
class Portions:
    """The share of each party in a whole of that `weight`, for how many parties there is room, and how few are too few.
    """

    shares: NDArray[np.float64]
    weight: float
    count: int
    fewest: int = 0


def portions(weights: NDArray[np.float64], room: Room | None) -> Portions:
    """Shares of all that are asked, or of a room that does not depend on them."""
    if room is None:
        total = float(weights.sum())
        return Portions(weights / total, total, len(weights))
    return Portions(room.shares(weights), room.weight * room.parties, room.parties, room.fewest)
