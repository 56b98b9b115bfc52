"""Label skew: each class is cut in Dirichlet shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Gt

from tequio.data.partitions.dealing import (
    AtLeastOne,
    by_party_numbers,
    cut_by_weights,
    deal_counts,
    require_rows,
    top_up,
)
from tequio.data.partitions.strata import strata
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition

REDRAWS = 50


@register("partition", "dirichlet", paper="Yurochkin et al., 2019")
@dataclass(frozen=True)
class Dirichlet:
    """Label skew: cut each class among the parties in shares drawn from a Dirichlet distribution.

    All rows are dealt, each to one party. Shares are drawn again while a party has too few rows; after 50 draws the
    last one is mended by moving random rows from the largest parties. A numeric target is cut at its deciles.

    Parameters:
        parties: how many parties there are
        alpha: concentration; 0.1 leaves most parties with a class or two, 100 is nearly IID
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    alpha: Annotated[float, Gt(0)] = 0.5
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give every row to a party."""
        require_rows(dataset, self.parties, self.minimum_rows)
        codes = strata(dataset).codes
        counts = self._draw(np.bincount(codes), rng)
        party_of_row = top_up(deal_counts(codes, counts, rng), self.parties, self.minimum_rows, rng)
        return by_party_numbers(party_of_row, self.parties)

    def _draw(self, class_sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        for _ in range(REDRAWS):
            shares = rng.dirichlet(np.full(self.parties, self.alpha), size=len(class_sizes))
            counts = cut_by_weights(class_sizes, shares)
            if counts.sum(axis=0).min() >= self.minimum_rows:
                break
        return counts
