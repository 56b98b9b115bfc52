"""Sums that do not depend on who holds which rows.

A sum of floats depends on its order, so parties' sums would not add up to the sum over the pooled rows. Here a column's
sum is kept as two floats (high + low) with some 100 good bits, so that both give the same mean and variance, to the
last bit, and a variance taken from sums of squares does not lose its digits.
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

    Pairs = NDArray[np.float64]
    """(2, columns): high and low part of each column's sum."""

_BLOCK_VALUES = 1 << 20
_PASSES = 4
_SPLITTER = float(2**27 + 1)


def column_sums(values: Any) -> Pairs:
    """The sum of each column of a dense or CSR matrix."""
    return _by_block(values, lambda block: [block])


def column_square_sums(values: Any) -> Pairs:
    """The sum of squares of each column."""
    return _by_block(values, _square_parts)


def add_pairs(parts: NDArray[np.float64]) -> Pairs:
    """The sum of several parties' sums, given as (parties, 2, columns)."""
    return _pairs(list(parts.reshape(-1, parts.shape[-1])))


def moments(count: int, sums: Pairs, squares: Pairs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and (population) standard deviation of each column, worked out in exact fractions."""
    means, deviations = np.zeros(sums.shape[1]), np.zeros(sums.shape[1])
    for column in range(sums.shape[1]) if count else ():
        mean = (Fraction(sums[0, column]) + Fraction(sums[1, column])) / count
        square = (Fraction(squares[0, column]) + Fraction(squares[1, column])) / count
        means[column], deviations[column] = mean, sqrt(max(square - mean * mean, Fraction(0)))
    return means, deviations


def _by_block(values: Any, parts: Callable[[NDArray[np.float64]], list[NDArray[np.float64]]]) -> Pairs:
    if not values.shape[0] or not values.shape[1]:
        return np.zeros((2, values.shape[1]))
    blocks = [_pairs([row for part in parts(block) for row in _extracted(part)]) for block in _blocks(values)]
    return np.concatenate(blocks, axis=1)


def _blocks(values: Any) -> Iterator[NDArray[np.float64]]:
    """Some columns at a time as dense float64, to keep memory small."""
    step = max(_BLOCK_VALUES // values.shape[0], 1)
    by_column = values.tocsc() if sparse.issparse(values) else values
    for start in range(0, values.shape[1], step):
        block = by_column[:, start:start + step]
        yield np.asarray(block.toarray() if sparse.issparse(block) else block, dtype=np.float64)


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


def _extracted(values: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Column sums free of rounding: each pass takes the leading bits that all rows have in common a place for."""
    room = 2.0 ** np.ceil(np.log2(len(values) + 2))
    for _ in range(_PASSES):
        largest = np.abs(values).max(axis=0)
        if not largest.any():
            return
        anchor = room * 2.0 ** np.frexp(largest)[1]
        leading = (values + anchor) - anchor
        yield leading.sum(axis=0)
        values = values - leading


def _pairs(rows: list[NDArray[np.float64]]) -> Pairs:
    columns = np.stack(rows, axis=1).tolist() if rows else []
    if not columns:
        return np.zeros((2, 0))
    high = [fsum(column) for column in columns]
    low = [fsum([*column, -total]) for column, total in zip(columns, high, strict=True)]
    return np.array([high, low])
