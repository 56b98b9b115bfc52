"""Quantiles of columns that several parties hold, from counts that add up.

A value is counted under the first 16 bits of its single-precision form: sign, exponent and eight significant bits.
Whole numbers up to 256 keep their value, others lose less than 1 % of it. Counts of parties are added, so that the
quantiles of their sum are those of the pooled rows, whichever party holds them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array
    from tequio.data.preprocessing.preparation import Statistics


_CODES = 1 << 16
_TOP = np.uint32(0x80000000)


def codes_of(values: Array) -> NDArray[np.int64]:
    """The code of each number, in the order of the numbers."""
    largest = np.finfo(np.float32).max
    bits = np.clip(np.asarray(values, dtype=np.float64) + 0.0, -largest, largest).astype(np.float32).view(np.uint32)
    return (np.where(bits & _TOP, ~bits, bits | _TOP) >> np.uint32(16)).astype(np.int64)


def value_of(codes: Array) -> NDArray[np.float64]:
    """The number nearest to zero among those of each code."""
    whole = np.asarray(codes).astype(np.uint32) << np.uint32(16)
    bits = np.where(whole & _TOP, whole ^ _TOP, ~(whole | np.uint32(0xFFFF)))
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def sketch(table: Array, classes: Array | None = None) -> Statistics:
    """How many numbers of each column (and, where classes are given, of each class) have each code."""
    rows, columns = np.nonzero(~np.isnan(table))
    places = columns.astype(np.int64) * _CODES + codes_of(table[rows, columns])
    group = np.zeros(len(rows), dtype=np.int64) if classes is None else np.asarray(classes, dtype=np.int64)[rows]
    return _counted(places, group, np.ones(len(rows), dtype=np.int64))


def add_sketches(parts: Sequence[Statistics]) -> Statistics:
    """The sketch of the pooled rows."""
    return _counted(*(np.concatenate([np.asarray(part[key]).astype(np.int64) for part in parts])
                      for key in ("places", "group", "count")))


def quantiles(counts: Statistics, columns: int, shares: Sequence[float]) -> NDArray[np.float64]:
    """(shares, columns): the smallest value up to which that share of a column's rows lies; 0 where there are none."""
    found = np.zeros((len(shares), columns))
    for column, (codes, rows) in enumerate(by_column(counts, columns)):
        if len(codes):
            total = np.cumsum(rows)
            wanted = np.maximum(np.ceil(np.asarray(shares) * total[-1] - 1e-9), 1)
            found[:, column] = value_of(codes[np.searchsorted(total, wanted)])
    return found


def by_column(counts: Statistics, columns: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The codes of each column in order, classes put together, and how many rows have them."""
    place, row = np.unique(counts["places"], return_inverse=True)
    totals = np.bincount(row, weights=counts["count"], minlength=len(place)).astype(np.int64)
    ends = np.searchsorted(place, np.arange(columns + 1) * _CODES)
    return [(place[start:end] % _CODES, totals[start:end]) for start, end in pairwise(ends)]


def of_column(counts: Statistics, column: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Code, class and count of each entry of one column."""
    own = counts["places"] // _CODES == column
    return counts["places"][own] % _CODES, counts["group"][own], counts["count"][own]


def _counted(places: NDArray[np.int64], group: NDArray[np.int64], count: NDArray[np.int64]) -> Statistics:
    order = np.lexsort((group, places))
    places, group, count = places[order], group[order], count[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(places) != 0) | (np.diff(group) != 0)][:len(places)])
    return {"places": places[starts], "group": group[starts],
            "count": np.add.reduceat(count, starts) if len(starts) else count}
