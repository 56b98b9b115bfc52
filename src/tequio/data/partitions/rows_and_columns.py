"""Transfer: parties that share few rows and few columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tequio.data.partition import Partition
from tequio.data.partitions.column_lists import Share, named_columns, require_flat
from tequio.data.partitions.dealing import AtLeastOne, NotNegative, require_rows
from tequio.data.partitions.overlap import deal_with_overlap
from tequio.errors import ConfigError, DataError
from tequio.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


@register("partition", "rows_and_columns", paper="Liu et al., 2020")
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
