"""Data that already says whose row is whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tequio.data.partitions.dealing import NOBODY, AtLeastOne, by_party_numbers
from tequio.data.partitions.groups import row_groups
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


@register("partition", "natural", paper="Caldas et al., 2018")
@dataclass(frozen=True)
class Natural:
    """One party for each group id in the data (writer, course, hospital), called by that id.

    All rows are dealt, each to one party, unless small parties are dropped.

    Parameters:
        column: the feature that holds the group id; the dataset's own groups when left out
        minimum_rows: fewest rows a party may have
        small: what to do with a party below the minimum: 'error', or 'drop' it with its rows
    """

    column: str | None = None
    minimum_rows: AtLeastOne = 1
    small: Literal["error", "drop"] = "error"

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row to the party it belongs to."""
        names, codes = row_groups(dataset, self.column)
        sizes = np.bincount(codes, minlength=len(names))
        kept = sizes >= self.minimum_rows if self.small == "drop" else np.ones(len(names), bool)
        if not kept.any():
            raise DataError(f"none of the {len(names)} groups of '{dataset.name}' has {self.minimum_rows} rows",
                            remedy=f"set data.partition.minimum_rows to at most {sizes.max(initial=0)}")
        numbers = np.where(kept, np.cumsum(kept) - 1, NOBODY)
        partition = by_party_numbers(numbers[codes], int(kept.sum()),
                                     names=tuple(name for name, keep in zip(names, kept, strict=True) if keep))
        _check(partition, self.minimum_rows)
        return partition


def _check(partition: Partition, minimum_rows: int) -> None:
    try:
        partition.check(minimum_rows)
    except DataError as cause:
        raise DataError(cause.message, remedy="set data.partition.small = 'drop' to leave them out, or a smaller "
                        "data.partition.minimum_rows") from None
