"""Who holds which rows (and columns): an index array, so that a million parties cost a few bytes each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


@dataclass(frozen=True, eq=False)
class Partition:
    """Party i holds rows[offsets[i]:offsets[i+1]]; optionally only some columns, and the target or not.

    `names` may be left out for simulated parties, which are then called by their number. `categories` says of
    which group (domain, band, school kind) a party is, where a partition knows it. `labels` are the labels of a
    multi-label target that each party knows, where they do not all know all. `key_holder` is the number of a party
    without rows or columns, which is there to keep a private key that no holder of data may have.
    """

    rows: NDArray[np.integer[Any]]
    offsets: NDArray[np.int64]
    names: tuple[str, ...] | None = None
    columns: tuple[NDArray[np.int64], ...] | None = None
    holds_target: tuple[bool, ...] | None = None
    categories: tuple[str, ...] | None = None
    labels: tuple[NDArray[np.int64], ...] | None = None
    key_holder: int | None = None

    @classmethod
    def of(cls, rows: Sequence[NDArray[Any]], **extra: Any) -> Partition:
        """From one index array a party."""
        sizes = [len(indices) for indices in rows]
        joined = np.concatenate(rows) if rows else np.empty(0)
        return cls(joined.astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), **extra)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each party."""
        return np.diff(self.offsets)

    def name(self, party: int) -> str:
        """What the party is called."""
        return self.names[party] if self.names else str(party)

    def party_rows(self, party: int) -> NDArray[np.integer[Any]]:
        """Row numbers of one party."""
        return self.rows[self.offsets[party]:self.offsets[party + 1]]

    def view(self, dataset: Dataset, party: int) -> Dataset:
        """One party's part of the dataset."""
        mine = dataset.take(self.party_rows(party))
        if self.labels is not None:
            mine = mine.select_labels(list(self.labels[party]))
        holds_target = self.holds_target is None or self.holds_target[party]
        if self.columns is not None:
            return mine.select(list(self.columns[party]), with_target=holds_target)
        return mine if holds_target else mine.without_target()

    def check(self, minimum_rows: int = 1) -> None:
        """Refuse parties with too few rows, naming them."""
        small = np.setdiff1d(np.flatnonzero(self.sizes < minimum_rows), [] if self.key_holder is None else
                             [self.key_holder])
        if len(small):
            listed = ", ".join(f"'{self.name(int(party))}' ({self.sizes[party]})" for party in small[:5])
            more = f" and {len(small) - 5} more" if len(small) > 5 else ""
            raise DataError(f"{len(small)} of {len(self)} parties have fewer than {minimum_rows} rows: {listed}{more}",
                            remedy="use fewer parties, less skew, or a smaller data.partition.minimum_rows")


class Partitioner(Protocol):
    """How a dataset is dealt to parties."""

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row (and column) to a party, or to none."""
        ...
