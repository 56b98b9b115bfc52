"""Quantity skew: parties differ in how much they have, not in what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Gt

from tequio.data.partitions.dealing import AtLeastOne, by_party_numbers, deal_counts, require_rows
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


@register("partition", "quantity")
@dataclass(frozen=True)
class Quantity:
    """Quantity skew: random rows, sizes drawn from a Dirichlet distribution on top of the minimum.

    All rows are dealt, each to one party: everyone gets `minimum_rows`, the rest is shared out by s ~ Dirichlet(alpha)
    rounded down, and what the rounding leaves goes to the largest party. With `alpha = 1` and `minimum_rows = 5` this
    is the non-IID split of the federated decision-tree experiments.

    Parameters:
        parties: how many parties there are
        alpha: concentration; 1 draws all ways to share equally likely, larger is more equal
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    alpha: Annotated[float, Gt(0)] = 1.0
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give every row to a party."""
        require_rows(dataset, self.parties, self.minimum_rows)
        shares = rng.dirichlet(np.full(self.parties, self.alpha))
        spare = len(dataset) - self.minimum_rows * self.parties
        sizes = self.minimum_rows + np.floor(shares * spare).astype(np.int64)
        sizes[sizes.argmax()] += len(dataset) - sizes.sum()
        codes = np.zeros(len(dataset), np.int64)
        return by_party_numbers(deal_counts(codes, sizes[None, :], rng), self.parties)
