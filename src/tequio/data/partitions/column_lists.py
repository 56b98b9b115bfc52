"""Which columns each party holds: named, counted, or in shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset

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
