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


KEY_HOLDER = "key holder"
"""What the party is called that holds nothing but a private key."""


@register("partition", "columns", paper="Yang et al., 2019")
@dataclass(frozen=True)
class Columns:
    """Vertical: every party holds some columns of the same rows, and one party holds the target.

    No column is with two parties. With `overlap = 1` all parties hold all rows in the same order; below that, only
    that share of the rows is with all parties and each other row is with one, so the parties have to match ids first.
    Say which columns with one of `names`, `counts` and `shares` (an empty list says nothing); without any, they are
    shared equally.

    With `key_holder` one more party comes last, which holds neither rows nor columns: it makes the keys of encrypted
    algorithms and keeps the private one, which neither the coordinator nor a holder of data may have.

    Parameters:
        parties: how many parties with columns there are; follows from the lists when left out, or 2
        names: the columns of each party by name, which may be none for that of the target; others are with nobody
        counts: how many columns each party holds; others are with nobody
        shares: what share of the columns each party holds
        shuffle: deal counted and shared columns in random order, not in that of the table
        target_party: the number of the party that holds the target
        overlap: what share of the rows all parties hold
        minimum_rows: fewest rows a party may have
        called: what the parties with columns are called; their numbers when left out
        key_holder: add a party without rows that keeps the private key of encrypted algorithms
    """

    parties: AtLeastOne | None = None
    names: tuple[tuple[str, ...], ...] | None = None
    counts: tuple[AtLeastOne, ...] | None = None
    shares: tuple[Share, ...] | None = None
    shuffle: bool = False
    target_party: NotNegative = 0
    overlap: Share = 1.0
    minimum_rows: AtLeastOne = 1
    called: tuple[str, ...] | None = None
    key_holder: bool = False

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each column to a party, and rows to all or to one."""
        require_flat(dataset)
        require_rows(dataset, 1, self.minimum_rows)
        parties = self._parties()
        lists = self._columns(dataset, parties, rng)
        rows = deal_with_overlap(len(dataset), parties, self.overlap, rng)
        if self.key_holder:
            lists, rows = [*lists, np.empty(0, np.int64)], [*rows, np.empty(0, np.int64)]
        has_target = dataset.schema.target.kind != "none"
        partition = Partition.of(rows, columns=tuple(lists), names=self._names(parties),
                                 holds_target=tuple(has_target and party == self.target_party
                                                    for party in range(len(rows))),
                                 key_holder=parties if self.key_holder else None)
        partition.check(self.minimum_rows)
        return partition

    def _names(self, parties: int) -> tuple[str, ...] | None:
        if self.called is not None and len(set(self.called)) != parties:
            raise ConfigError(f"data.partition.called has {len(set(self.called))} different names for {parties} "
                              "parties", remedy="give each party with columns one name of its own")
        if self.called is None and not self.key_holder:
            return None
        names = self.called or tuple(str(party) for party in range(parties))
        return (*names, KEY_HOLDER) if self.key_holder else names

    def _parties(self) -> int:
        given = {name: len(values) for name, values in
                 (("names", self.names), ("counts", self.counts), ("shares", self.shares)) if values}
        if len(given) > 1:
            raise ConfigError(f"data.partition has {' and '.join(given)}", remedy="keep one of them")
        parties = next(iter(given.values()), self.parties or 2)
        if self.parties not in (None, parties):
            raise ConfigError(f"data.partition.{next(iter(given))} is for {parties} parties, but "
                              f"data.partition.parties is {self.parties}", remedy="leave out data.partition.parties")
        if self.target_party >= parties:
            raise DataError(f"party {self.target_party} cannot hold the target: there are parties 0 to {parties - 1}",
                            remedy="set data.partition.target_party to one of them")
        return parties

    def _columns(self, dataset: Dataset, parties: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        if self.names:
            lists = named_columns(dataset, self.names, self.target_party)
            require_disjoint(dataset, lists)
            return lists
        columns = len(dataset.schema.features)
        order = rng.permutation(columns) if self.shuffle else np.arange(columns)
        if self.counts:
            return counted_columns(order, self.counts)
        counts = equal_counts(columns, parties) if not self.shares else shares_to_counts(columns, self.shares)
        return counted_columns(order, counts)
