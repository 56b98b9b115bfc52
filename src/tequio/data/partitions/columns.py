"""Vertical federation: the same rows, different columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partition import Partition
from tequio.data.partitions.column_lists import (
    Share,
    counted_columns,
    equal_counts,
    named_columns,
    require_disjoint,
    require_flat,
    shares_to_counts,
)
from tequio.data.partitions.dealing import AtLeastOne, NotNegative, require_rows
from tequio.data.partitions.overlap import deal_with_overlap
from tequio.errors import ConfigError, DataError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


@register("partition", "columns", paper="Yang et al., 2019")
@dataclass(frozen=True)
class Columns:
    """Vertical: every party holds some columns of the same rows, and one party holds the target.

    No column is with two parties. With `overlap = 1` all parties hold all rows in the same order; below that, only
    that share of the rows is with all parties and each other row is with one, so the parties have to match ids first.
    Say which columns with one of `names`, `counts` and `shares`; without any, they are shared equally.

    Parameters:
        parties: how many parties there are; follows from the lists when left out, or 2
        names: the columns of each party by name; others are with nobody
        counts: how many columns each party holds; others are with nobody
        shares: what share of the columns each party holds
        shuffle: deal counted and shared columns in random order, not in that of the table
        target_party: the number of the party that holds the target
        overlap: what share of the rows all parties hold
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne | None = None
    names: tuple[tuple[str, ...], ...] | None = None
    counts: tuple[AtLeastOne, ...] | None = None
    shares: tuple[Share, ...] | None = None
    shuffle: bool = False
    target_party: NotNegative = 0
    overlap: Share = 1.0
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each column to a party, and rows to all or to one."""
        require_flat(dataset)
        require_rows(dataset, 1, self.minimum_rows)
        parties = self._parties()
        lists = self._columns(dataset, parties, rng)
        has_target = dataset.schema.target.kind != "none"
        partition = Partition.of(deal_with_overlap(len(dataset), parties, self.overlap, rng), columns=tuple(lists),
                                 holds_target=tuple(has_target and party == self.target_party
                                                    for party in range(parties)))
        partition.check(self.minimum_rows)
        return partition

    def _parties(self) -> int:
        given = {name: len(values) for name, values in
                 (("names", self.names), ("counts", self.counts), ("shares", self.shares)) if values is not None}
        if len(given) > 1:
            raise ConfigError(f"data.partition has {' and '.join(given)}", remedy="keep one of them")
        parties = next(iter(given.values()), self.parties or 2)
        if parties == 0 or self.parties not in (None, parties):
            raise ConfigError(f"data.partition.{next(iter(given))} is for {parties} parties, but "
                              f"data.partition.parties is {self.parties}", remedy="leave out data.partition.parties")
        if self.target_party >= parties:
            raise DataError(f"party {self.target_party} cannot hold the target: there are parties 0 to {parties - 1}",
                            remedy="set data.partition.target_party to one of them")
        return parties

    def _columns(self, dataset: Dataset, parties: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        if self.names is not None:
            lists = named_columns(dataset, self.names)
            require_disjoint(dataset, lists)
            return lists
        columns = len(dataset.schema.features)
        order = rng.permutation(columns) if self.shuffle else np.arange(columns)
        if self.counts is not None:
            return counted_columns(order, self.counts)
        counts = equal_counts(columns, parties) if self.shares is None else shares_to_counts(columns, self.shares)
        return counted_columns(order, counts)
