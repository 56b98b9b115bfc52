"""Partitions that do not look at labels: rows at random, in equal or unequal numbers, pooled, or by a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Gt

from tequio.data.partition import (
    NOBODY,
    AtLeastOne,
    Partition,
    by_party_numbers,
    deal_counts,
    draw_counts,
    require_rows,
    strata,
)
from tequio.errors import DataError
from tequio.registry import named_function, register

if TYPE_CHECKING:
    from tequio.data.dataset import Array, Dataset


@register("partition", "iid")
@dataclass(frozen=True)
class Iid:
    """Deal rows at random; sizes differ by at most one and, when stratified, so do the counts of each class.

    All rows are dealt, each to one party, unless `replacement` is set.

    Parameters:
        parties: how many parties there are
        stratified: deal each class separately, so that every party has the same mix of classes
        replacement: parties draw independently of each other, so that one row may be with several parties (never twice
            with one)
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    stratified: bool = False
    replacement: bool = False
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give every row to a party."""
        require_rows(dataset, self.parties, self.minimum_rows)
        codes = strata(dataset).codes if self.stratified else np.zeros(len(dataset), np.int64)
        classes = int(codes.max()) + 1
        # One round of the table after another across the class borders keeps both kinds of counts within one.
        turns = np.sort(codes) * self.parties + np.arange(len(codes)) % self.parties
        counts = np.bincount(turns, minlength=classes * self.parties).reshape(classes, self.parties)
        if self.replacement:
            return draw_counts(codes, counts, rng)
        return by_party_numbers(deal_counts(codes, counts, rng), self.parties)


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


@register("partition", "sampled")
@dataclass(frozen=True)
class Sampled:
    """Every party draws its rows at random with replacement: a population of any size from any dataset.

    A row may be with many parties, and twice with one. A million parties cost 4 bytes a row.

    Parameters:
        parties: how many parties there are
        rows: how many rows each party draws
    """

    parties: AtLeastOne = 1000
    rows: AtLeastOne = 50

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Draw rows for every party."""
        require_rows(dataset, 1, 1)
        small = len(dataset) <= np.iinfo(np.int32).max
        drawn = rng.integers(0, len(dataset), self.parties * self.rows, dtype=np.int32 if small else np.int64)
        return Partition(drawn, np.arange(self.parties + 1, dtype=np.int64) * self.rows)


@register("partition", "pooled")
@dataclass(frozen=True)
class Pooled:
    """One party holds everything, in the order of the dataset: the centralised baseline."""

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give all rows to one party."""
        require_rows(dataset, 1, 1)
        return Partition.of([np.arange(len(dataset))], names=("all",))


@register("partition", "custom", example='[data.partition]\nname = "custom"\nfunction = "my_rules:by_district"\n')
@dataclass(frozen=True)
class Custom:
    """Ask your own function `(dataset, rng) -> a party number for each row`; -1 leaves a row out.

    Each row is with one party at most.

    Parameters:
        function: the function, or where it is: 'package.module:function'
        minimum_rows: fewest rows a party may have
    """

    function: str | Callable[..., Any]
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row to the party that the function says."""
        party_of_row = np.asarray(named_function(self.function, "partition function")(dataset, rng))
        _check_numbers(party_of_row, len(dataset))
        partition = by_party_numbers(party_of_row.astype(np.int64), int(party_of_row.max(initial=NOBODY)) + 1)
        partition.check(self.minimum_rows)
        return partition


def _check_numbers(party_of_row: Array, rows: int) -> None:
    remedy = "return one whole number a row: 0 for the first party, -1 for nobody"
    if party_of_row.shape != (rows,):
        raise DataError(f"the partition function returned shape {party_of_row.shape} for {rows} rows", remedy=remedy)
    if party_of_row.dtype.kind not in "iu":
        raise DataError(f"the partition function returned values of type {party_of_row.dtype}", remedy=remedy)
    if not rows or party_of_row.max() < 0 or party_of_row.min() < NOBODY:
        raise DataError("the partition function gave no row to a party" if not rows or party_of_row.max() < 0
                        else f"the partition function returned the party number {party_of_row.min()}", remedy=remedy)
