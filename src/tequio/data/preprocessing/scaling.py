"""Numbers to other numbers: standardise, minmax, log1p. Categories are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.data.preprocessing.preparation import (
    Statistics,
    check_width,
    flat_features,
    numeric_columns,
    stacked,
    with_features,
)
from tequio.data.preprocessing.sums import add_sums, column_square_sums, column_sums, moments
from tequio.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset


@dataclass(frozen=True)
class Standardise:
    """Numbers to mean 0 and standard deviation 1; sparse data is only scaled, so that it stays sparse."""

    def fit(self, dataset: Dataset) -> Statistics:
        """Count, sums and sums of squares, and the mean and scale that follow from them."""
        values = _numbers(dataset)
        return _standard(len(dataset), column_sums(values), column_square_sums(values))

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """The statistics of the pooled rows, to the last bit."""
        count = int(stacked(parts, "count").sum())
        return _standard(count, add_sums(stacked(parts, "sums")), add_sums(stacked(parts, "squares")))

    def apply(self, dataset: Dataset, statistics: Statistics) -> Dataset:
        """Subtract the mean (unless sparse) and divide by the scale."""
        mean, scale = statistics["mean"], statistics["scale"]
        return _changed(dataset, mean, lambda values: _shift_and_scale(values, mean, scale))


@dataclass(frozen=True)
class MinMax:
    """Numbers to the range 0 to 1; sparse data is divided by its largest absolute value, so that it stays sparse."""

    def fit(self, dataset: Dataset) -> Statistics:
        """The smallest and the largest value of each column."""
        values = _numbers(dataset)
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


@dataclass(frozen=True)
class Log1p:
    """Numbers x to log(1 + x), for counts and amounts with a long tail."""

    def fit(self, dataset: Dataset) -> Statistics:
        """Nothing is fitted."""
        return {}

    def merge(self, parts: Sequence[Statistics]) -> Statistics:
        """Nothing is fitted."""
        return {}

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


def _numbers(dataset: Dataset) -> Any:
    values, columns = flat_features(dataset), numeric_columns(dataset.schema)
    return values if len(columns) == values.shape[1] else values[:, columns]


def _shift_and_scale(values: Any, shift: NDArray[Any], scale: NDArray[Any]) -> Any:
    if sparse.issparse(values):
        return values.multiply(1 / scale).tocsr()
    return (values - shift.astype(values.dtype)) / scale.astype(values.dtype)


def _changed(dataset: Dataset, fitted: NDArray[Any], change: Callable[[Any], Any]) -> Dataset:
    """The dataset with its numeric columns changed; numbers keep their type."""
    columns = numeric_columns(dataset.schema)
    check_width(fitted, len(columns))
    values = flat_features(dataset)
    if len(columns) == values.shape[1]:
        changed = change(values).astype(values.dtype, copy=False)
    else:
        changed = values.copy()
        changed[:, columns] = change(values[:, columns])
    shape = (len(dataset), *dataset.schema.shape)
    return with_features(dataset, dataset.schema, changed if dataset.is_sparse else changed.reshape(shape))
