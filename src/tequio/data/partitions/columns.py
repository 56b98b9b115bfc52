"""Vertical federation and transfer: parties that hold different columns, of the same rows or of rows of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.data.partition import AtLeastOne, NotNegative, Partition, require_rows
from tequio.errors import ConfigError, DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@register("partition", "rows-and-columns", paper="Liu et al., 2020")
@dataclass(frozen=True)
class RowsAndColumns:
    """Transfer: every party holds its own rows and its own columns, with little or nothing in common.

    A share of the rows and of the columns is common to all parties (none by default); each other row and column is
    with one party, and all of them are dealt.

    Parameters:
        parties: how many parties there are
        row_overlap: what share of the rows all parties hold
        column_overlap: what share of the columns all parties hold
        names: the columns of each party by name, which may have some in common; dealt at random when left out
        target_parties: the numbers of the parties that hold the target
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 2
    row_overlap: Share = 0.0
    column_overlap: Share = 0.0
    names: tuple[tuple[str, ...], ...] | None = None
    target_parties: tuple[NotNegative, ...] = (0,)
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row and each column to one party or to all."""
        require_flat(dataset)
        self._check_target()
        if self.row_overlap == 0:
            require_rows(dataset, self.parties, self.minimum_rows)
        columns = self._columns(dataset, rng)
        has_target = dataset.schema.target.kind != "none"
        partition = Partition.of(deal_with_overlap(len(dataset), self.parties, self.row_overlap, rng),
                                 columns=tuple(columns),
                                 holds_target=tuple(has_target and party in self.target_parties
                                                    for party in range(self.parties)))
        partition.check(self.minimum_rows)
        return partition

    def _check_target(self) -> None:
        strangers = [party for party in self.target_parties if party >= self.parties]
        if strangers:
            raise DataError(f"party {strangers[0]} cannot hold the target: there are parties 0 to {self.parties - 1}",
                            remedy="set data.partition.target_parties to some of them")

    def _columns(self, dataset: Dataset, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        if self.names is None:
            total = len(dataset.schema.features)
            lists = deal_with_overlap(total, self.parties, self.column_overlap, rng)
            if not all(len(mine) for mine in lists):
                raise DataError(f"{self.parties} parties cannot share {total} columns",
                                remedy="use fewer parties, or a larger data.partition.column_overlap")
            return lists
        if len(self.names) != self.parties:
            raise ConfigError(f"data.partition.names is for {len(self.names)} parties, but data.partition.parties is "
                              f"{self.parties}", remedy="make them agree")
        return named_columns(dataset, self.names)


Share = Annotated[float, Interval(ge=0, le=1)]


def require_flat(dataset: Dataset) -> None:
    """Refuse images and the like, whose rows have no separate columns."""
    if len(dataset.schema.shape) > 1:
        raise DataError(f"'{dataset.name}' has rows of shape {dataset.schema.shape}; only flat tables split by column",
                        remedy="set data.flatten = true")


def named_columns(dataset: Dataset, names: Sequence[Sequence[str]],
                  may_be_empty: int | None = None) -> list[NDArray[np.int64]]:
    """Column numbers of the named columns, one list a party; one party may do without."""
    lists = [np.array([dataset.schema.column(name) for name in mine], np.int64) for mine in names]
    for party, mine in enumerate(lists):
        if not len(mine) and party != may_be_empty:
            raise DataError(f"party {party} has no columns", remedy="name at least one in data.partition.names")
    return lists


def require_disjoint(dataset: Dataset, lists: Sequence[NDArray[np.int64]]) -> None:
    """Refuse a column that two parties hold, or one party twice."""
    columns, times = np.unique(np.concatenate(lists), return_counts=True)
    if times.max() > 1:
        twice = dataset.schema.names[columns[times > 1][0]]
        raise DataError(f"column '{twice}' is listed more than once", remedy="give each column to one party")


def counted_columns(order: NDArray[np.int64], counts: Sequence[int]) -> list[NDArray[np.int64]]:
    """Deal columns in an order, so many to each party; the rest to nobody."""
    if sum(counts) > len(order):
        raise DataError(f"the parties want {sum(counts)} columns, there are {len(order)}",
                        remedy="lower data.partition.counts")
    return [np.sort(mine) for mine in np.split(order, np.cumsum(counts))[:-1]]


def shares_to_counts(columns: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers of columns in proportion to shares that sum to at most 1, by largest remainder."""
    if sum(shares) > 1 + 1e-9:
        raise DataError(f"the shares of the columns sum to {sum(shares):.4g}", remedy="make them sum to at most 1")
    exact = np.asarray(shares) * columns
    counts = np.floor(exact + 1e-9).astype(np.int64)
    rest = int(np.rint(exact.sum())) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    if counts.min() < 1:
        raise DataError(f"party {int(counts.argmin())} has no columns", remedy="give it a larger share")
    return [int(count) for count in counts]


def equal_counts(columns: int, parties: int) -> list[int]:
    """The columns shared out equally, give or take one."""
    if columns < parties:
        raise DataError(f"{parties} parties cannot share {columns} columns", remedy=f"use at most {columns} parties")
    return [columns // parties + (party < columns % parties) for party in range(parties)]


def deal_with_overlap(total: int, parties: int, overlap: float, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Sorted numbers below `total` for each party: a random share `overlap` for all, the rest dealt equally."""
    common = round(total * overlap)
    if common == total:
        return [np.arange(total)] * parties
    order = rng.permutation(total)
    own = [order[common + party::parties] for party in range(parties)]
    return [np.sort(np.concatenate([order[:common], mine])) for mine in own]
