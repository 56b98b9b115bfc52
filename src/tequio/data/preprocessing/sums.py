"""Sums that do not depend on who holds which rows.

A sum of floats depends on its order, so parties' sums would not add up to the sum over the pooled rows. Here a column's
sum is kept as four floats that add up to it with some 200 good bits, so that both give the same mean and variance, to
the last bit, and a variance taken from sums of squares does not lose its digits.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Sums = NDArray[np.float64]
    """(4, columns): floats that add up to each column's sum, the largest first."""
    Split = Callable[[NDArray[np.float64]], list[NDArray[np.float64]]]

_BLOCK_VALUES = 1 << 20
_PASSES = 6
_PARTS = 4
_SPLITTER = float(2**27 + 1)


def column_sums(values: Any) -> Sums:
    """The sum of each column of a dense or CSR matrix."""
    return _sums(values, lambda block: [block])


def column_square_sums(values: Any) -> Sums:
    """The sum of squares of each column."""
    return _sums(values, _square_parts)


def add_sums(parts: NDArray[np.float64]) -> Sums:
    """The sum of several parties' sums, given as (parties, 4, columns)."""
    return _parts_of([row for party in parts for row in party])


def moments(count: int, sums: Sums, squares: Sums) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and (population) standard deviation of each column, worked out in exact fractions."""
    means, deviations = np.zeros(sums.shape[1]), np.zeros(sums.shape[1])
    for column in range(sums.shape[1]) if count else ():
        mean, square = (sum(map(Fraction, parts[:, column])) / count for parts in (sums, squares))
        means[column], deviations[column] = mean, sqrt(max(square - mean * mean, Fraction(0)))
    return means, deviations


def _sums(values: Any, split: Split) -> Sums:
    if not (values.nnz if sparse.issparse(values) else values.size):
        return np.zeros((_PARTS, values.shape[1]))
    if sparse.issparse(values):
        terms = (term for part in split(values.data.astype(np.float64)) for term in _leading_bits(part))
        return _parts_of([_sums_by_place(values.indices, term, values.shape[1]) for term in terms])
    blocks = [[term.sum(axis=0) for part in split(block) for term in _leading_bits(part)] for block in _blocks(values)]
    return np.concatenate([_parts_of(rows) for rows in blocks], axis=1)


def _sums_by_place(places: NDArray[Any], terms: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    return np.asarray(np.bincount(places, weights=terms, minlength=columns), dtype=np.float64)


def _blocks(values: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Some columns at a time as float64, to keep memory small."""
    step = max(_BLOCK_VALUES // len(values), 1)
    for start in range(0, values.shape[1], step):
        yield values[:, start:start + step].astype(np.float64)


def _square_parts(block: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Three arrays without rounding error that add up to the squares: (high + low)^2."""
    with np.errstate(over="ignore"):
        high = block.astype(np.float32).astype(np.float64)
    if np.array_equal(high, block):
        return [block * block]
    scaled = block * _SPLITTER
    high = scaled - (scaled - block)
    low = block - high
    return [high * high, 2 * high * low, low * low]


def _leading_bits(values: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Arrays that add up to the values, each of so few bits that a sum down its columns is not rounded."""
    room = 2.0 ** np.ceil(np.log2(len(values) + 2))
    for _ in range(_PASSES):
        anchor = room * 2.0 ** np.frexp(np.abs(values).max(axis=0))[1]
        leading = (values + anchor) - anchor
        yield leading
        values = values - leading
        if not values.any():
            return


def _parts_of(rows: list[NDArray[np.float64]]) -> Sums:
    """The sum of the rows in each column, as floats of which each is what the ones before it leave over, rounded."""
    columns: list[list[float]] = np.stack(rows, axis=1).tolist()
    parts = np.zeros((_PARTS, len(columns)))
    for column, terms in enumerate(columns):
        for part in range(_PARTS):
            total = fsum(terms)
            if total == 0:
                break
            parts[part, column] = total
            terms.append(-total)
    return parts
