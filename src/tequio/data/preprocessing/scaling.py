"""Numbers to other numbers: standardise, minmax, log1p. Categories are left alone.

A sum of floats depends on its order, so parties' sums would not add up to the sum over the pooled rows. Here a column's
sum is kept as four floats that add up to it with some 200 good bits, so that both give the same mean and variance, to
the last bit, and a variance taken from sums of squares does not lose its digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum, sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import sparse

from tequio.data.dataset import Feature
from tequio.data.preprocessing.preparation import (
    Preparation,
    Statistics,
    check_width,
    flat_features,
    numeric_columns,
    refuse_missing,
    stacked,
    with_features,
)
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset, Matrix

    Sums = NDArray[np.float64]
    """(4, columns): floats that add up to each column's sum, the largest first."""
    Split = Callable[[NDArray[np.float64]], list[NDArray[np.float64]]]


@register("preparation", "standardise", example='[data]\nprepare = ["standardise"]\n')
@dataclass(frozen=True)
class Standardise(Preparation):
    """Numbers to mean 0 and standard deviation 1; sparse data is only scaled, so that it stays sparse."""

    needed: ClassVar[tuple[str, ...]] = ("mean", "scale")

    def fit(self, dataset: Dataset) -> Statistics:
        """Count, sums and sums of squares, and the mean and scale that follow from them."""
        values = _numbers(dataset, "standardise")
        return _standard(len(dataset), column_sums(values), column_square_sums(values))

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """The statistics of the pooled rows, to the last bit."""
        count = int(stacked(parts, "count").sum())
        return _standard(count, add_sums(stacked(parts, "sums")), add_sums(stacked(parts, "squares")))

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """Subtract the mean (unless sparse) and divide by the scale."""
        mean, scale = statistics["mean"], statistics["scale"]
        return _changed(dataset, mean, lambda values: _shift_and_scale(values, mean, scale))


@register("preparation", "minmax", example='[data]\nprepare = ["minmax"]\n')
@dataclass(frozen=True)
class MinMax(Preparation):
    """Numbers to the range 0 to 1; sparse data is divided by its largest absolute value, so that it stays sparse."""

    needed: ClassVar[tuple[str, ...]] = ("low", "high")

    def fit(self, dataset: Dataset) -> Statistics:
        """The smallest and the largest value of each column."""
        values = _numbers(dataset, "minmax")
        if not len(dataset):
            return {"low": np.full(values.shape[1], np.inf), "high": np.full(values.shape[1], -np.inf)}
        ends = [values.min(axis=0), values.max(axis=0)]
        low, high = [end.toarray()[0] if sparse.issparse(end) else np.asarray(end) for end in ends]
        return {"low": low.astype(np.float64), "high": high.astype(np.float64)}

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """The smallest and the largest over all parties."""
        return {"low": stacked(parts, "low").min(axis=0), "high": stacked(parts, "high").max(axis=0)}

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """Values outside the fitted range end up outside 0 to 1."""
        fitted = np.isfinite(statistics["low"])
        low, high = np.where(fitted, statistics["low"], 0), np.where(fitted, statistics["high"], 0)
        scale = np.maximum(np.abs(low), np.abs(high)) if dataset.is_sparse else high - low
        return _changed(dataset, low, lambda values: _shift_and_scale(values, low, np.where(scale > 0, scale, 1)))


@register("preparation", "log1p", example='[data]\nprepare = ["log1p"]\n')
@dataclass(frozen=True)
class Log1p(Preparation):
    """Numbers x to log(1 + x), for counts and amounts with a long tail."""

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """Take the logarithm; a value of -1 or less is refused."""
        columns = numeric_columns(dataset.schema)
        lowest = MinMax().fit(dataset)["low"]
        wrong = np.flatnonzero(lowest <= -1)
        if len(wrong):
            column = dataset.schema.names[columns[wrong[0]]]
            raise DataError(f"log1p needs values above -1, column '{column}' of '{dataset.name}' goes down to "
                            f"{lowest[wrong[0]]:g}", remedy="leave log1p out of data.prepare")
        return _changed(dataset, lowest, lambda values: values.log1p() if sparse.issparse(values) else np.log1p(values))


def _standard(count: int, sums: NDArray[np.float64], squares: NDArray[np.float64]) -> Statistics:
    mean, deviation = moments(count, sums, squares)
    return {"count": np.array([count]), "sums": sums, "squares": squares, "mean": mean,
            "scale": np.where(deviation > 0, deviation, 1.0)}


def _numbers(dataset: Dataset, step: str) -> Matrix:
    values, columns = flat_features(dataset), numeric_columns(dataset.schema)
    numbers = values if len(columns) == values.shape[1] else values[:, columns]
    refuse_missing(dataset, numbers, step)
    return numbers


def _shift_and_scale(values: Matrix, shift: Array, scale: Array) -> Matrix:
    if sparse.issparse(values):
        return values.multiply(1 / scale).tocsr()
    moved = values - shift.astype(values.dtype)
    if moved.dtype.kind != "f":
        return moved / scale.astype(values.dtype)
    return np.divide(moved, scale.astype(values.dtype), out=moved)


def _changed(dataset: Dataset, fitted: Array, change: Callable[[Matrix], Matrix]) -> Dataset:
    """The dataset with its numeric columns changed; numbers keep their type."""
    columns = numeric_columns(dataset.schema)
    check_width(fitted, len(columns))
    values = flat_features(dataset)
    schema = dataset.schema
    if any(feature.kind == "date" for feature in schema.features):  # scaled, they count no days any more
        schema = replace(schema, features=tuple(Feature(feature.name) if feature.kind == "date" else feature
                                                for feature in schema.features))
    if len(columns) == values.shape[1]:
        changed = change(values).astype(values.dtype, copy=False)
    else:
        changed = values.copy()
        changed[:, columns] = change(values[:, columns])
    shape = (len(dataset), *dataset.schema.shape)
    return with_features(dataset, schema, changed if dataset.is_sparse else changed.reshape(shape))


_BLOCK_VALUES = 1 << 20
_PASSES = 6
_PARTS = 4
_SPLITTER = float(2**27 + 1)


def column_sums(values: Matrix) -> Sums:
    """The sum of each column of a dense or CSR matrix."""
    return _sums(values, lambda block: [block])


def column_square_sums(values: Matrix) -> Sums:
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


def _sums(values: Matrix, split: Split) -> Sums:
    if not (values.nnz if sparse.issparse(values) else values.size):
        return np.zeros((_PARTS, values.shape[1]))
    if sparse.issparse(values):
        terms = (term for part in split(values.data.astype(np.float64)) for term in _leading_bits(part))
        return _parts_of([_sums_by_place(values.indices, term, values.shape[1]) for term in terms])
    blocks = [[term.sum(axis=0) for part in split(block) for term in _leading_bits(part)] for block in _blocks(values)]
    return np.concatenate([_parts_of(rows) for rows in blocks], axis=1)


def _sums_by_place(places: Array, terms: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    return np.asarray(np.bincount(places, weights=terms, minlength=columns), dtype=np.float64)


def _blocks(values: Array) -> Iterator[NDArray[np.float64]]:
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
