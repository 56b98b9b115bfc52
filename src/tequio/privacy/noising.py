"""Adding noise to arrays so that what comes out does not tell how it was computed.

Mironov: On significance of the least significant bits for differential privacy, CCS 2012: sums of floating-point
numbers have last digits that give the summands away. What is released is therefore rounded to a grid that is coarse
beside these digits and fine beside the noise, and on which every value can come from any update.
"""

from __future__ import annotations

from math import floor, log2
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.learners.learner import Arrays

_FINENESS = 10
"""The grid is 2^-10 times the noise wide, or less; rounding to it adds less than one part in ten million to it."""


def precision_of(arrays: Arrays) -> Any:
    """The type that noise for these arrays is drawn in: single precision where all of them are."""
    return np.float32 if all(values.dtype == np.float32 for values in arrays.values()) else np.float64


def gaussian(like: Arrays, spread: float, rng: np.random.Generator) -> NDArray[Any]:
    """Noise for all entries of some arrays, in one vector."""
    noise: NDArray[Any] = rng.standard_normal(sum(values.size for values in like.values()), dtype=precision_of(like))
    noise *= noise.dtype.type(spread)
    return noise


def laplace(like: Arrays, spread: float, rng: np.random.Generator) -> NDArray[Any]:
    """The same of another shape, in double precision."""
    return rng.laplace(scale=spread, size=sum(values.size for values in like.values())) if spread else \
        np.zeros(sum(values.size for values in like.values()))


def plus_noise(arrays: Arrays, noise: NDArray[Any], spread: float, factor: float = 1.0) -> Arrays:
    """Every entry times a factor, plus its noise, on a grid. The vector of noise is used up."""
    start = 0
    for values in arrays.values():
        flat, part = values.reshape(-1), noise[start:start + values.size]
        np.add(part, flat if factor == 1 else flat * noise.dtype.type(factor), out=part, casting="same_kind")
        start += values.size
    if spread:
        to_grid(noise, grid_of(spread))
    return _cut(noise, arrays)


def grid_of(spread: float) -> float:
    """How far apart released values are: a power of two."""
    return float(2.0 ** (floor(log2(spread)) - _FINENESS))


def to_grid(values: NDArray[Any], step: float) -> None:
    """Round to multiples of a power of two, in place."""
    values *= values.dtype.type(1 / step)
    np.rint(values, out=values)
    values *= values.dtype.type(step)


def _cut(vector: NDArray[Any], like: Arrays) -> Arrays:
    parts, start = {}, 0
    for name, values in like.items():
        kind = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        parts[name] = vector[start:start + values.size].reshape(values.shape).astype(kind, copy=False)
        start += values.size
    return parts
