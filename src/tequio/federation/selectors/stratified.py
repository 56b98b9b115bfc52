"""Random parties with a fixed share for every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tequio.federation.selection import Choice
from tequio.federation.selectors.drawing import Count, Fraction, cohort_size
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.selection import Turn


@register("selector", "stratified")
@dataclass(frozen=True)
class StratifiedParties:
    """A random sample in which every group of parties has its share. Groups are the categories of the partition.

    Places that cannot be shared out evenly go to the groups with the largest remainders, ties at random; a group with
    fewer parties than places gives the rest to the others. Where the partition has no categories, there is one group.

    Parameters:
        count: parties a round (0: use the fraction)
        fraction: share of the eligible parties, rounded, at least one
        shares: groups get places in proportion to their parties, or all the same number
    """

    count: Count = 0
    fraction: Fraction = 0.1
    shares: Literal["proportional", "equal"] = "proportional"

    sampling: ClassVar[str] = "none"

    def choose(self, turn: Turn) -> Choice:
        """Share out the places, then draw inside every group."""
        wanted, rng = cohort_size(turn, self.count, self.fraction), turn.rng
        groups = turn.federation.groups[turn.eligible]
        sizes = np.bincount(groups)
        places = shared_out(wanted, sizes, sizes if self.shares == "proportional" else (sizes > 0).astype(int), rng)
        members = np.argsort(groups.astype(np.min_scalar_type(len(sizes))), kind="stable")
        first = np.cumsum(sizes) - sizes
        chosen = [members[first[group] + rng.choice(sizes[group], places[group], replace=False, shuffle=False)]
                  for group in np.flatnonzero(places)]
        return Choice(turn.eligible[np.sort(np.concatenate(chosen))] if chosen else turn.eligible[:0])


def shared_out(places: int, room: NDArray[np.int64], weights: NDArray[np.int64],
               rng: np.random.Generator) -> NDArray[np.int64]:
    """Places for each group by weight, none more than it has room for; largest remainders get what is left over."""
    given, still = np.zeros(len(room), dtype=np.int64), np.where(room > 0, weights, 0)
    while still.any():
        exact = (places - given.sum()) * still / still.sum()
        full = (still > 0) & (exact >= room)
        if not full.any():
            given += np.floor(exact).astype(np.int64)
            order = np.lexsort((rng.random(len(room)), np.floor(exact) - exact))
            given[order[:places - given.sum()]] += 1
            break
        given[full], still = room[full], np.where(full, 0, still)
    return given
