"""The grid that noised numbers lie on: how fine it is, and how much farther rounding to it moves a vector.

Numbers become whole multiples of a step, a power of two, before noise in whole steps is added; what comes of it is
multiplied back exactly. Kairouz, Liu, Steinke: The distributed discrete Gaussian mechanism for federated learning with
secure aggregation, ICML 2021 (rounding at random, again until the vector is short enough).
"""

from __future__ import annotations

from math import floor, inf, log2, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.noise.coins import Coins

    Floats = NDArray[np.floating]
    Whole = NDArray[np.int64]

_FINENESS, _COARSEST, _FINEST = 20, 10, 40
_STRETCH = 16_384
"""Numbers that are made whole at a time, so that they stay in the processor's cache."""

SLACK = 1 + 2.0 ** -32
"""What is clipped by a length in double precision may be longer than the bound by less."""


def step_for(spread: float, clip: float = inf) -> float:
    """The step for noise of that deviation: 2^-20 of it or less, 2^-10 of the clip at most, and no less than 2^-40."""
    power = floor(log2(spread)) - _FINENESS
    if clip < inf:
        power = max(min(power, floor(log2(clip)) - _COARSEST), floor(log2(clip)) - _FINEST)
    return 2.0 ** power


def add_in_steps(values: Floats, factor: float, noise: Whole, step: float, into: Floats) -> None:
    """A factor times a vector, in whole steps rounded towards 0, which makes none longer, plus noise in steps.

    A sum of two whole numbers that is too large for double precision is rounded, and reveals no more than the sum.
    """
    room = np.empty(min(values.size, _STRETCH))
    for start in range(0, values.size, _STRETCH):
        stretch = slice(start, start + _STRETCH)
        part = room[:values.size - start]
        np.multiply(values[stretch], factor / step, out=part, dtype=np.float64)
        np.trunc(part, out=part)
        part += noise[stretch]
        np.multiply(part, step, out=into[stretch], casting="same_kind")


def conditional_length(length: float, size: int) -> float:
    """The bound that `rounded_conditionally` keeps, with its beta = exp(-1/2)."""
    return sqrt(length**2 + size / 4 + length + sqrt(size) / 2)


def rounded_conditionally(coins: Coins, values: Floats, length: float) -> Whole:
    """Rounded up or down by chance, so that they are right on average, until the whole vector is short enough.

    `values` are in steps and together no longer than `length`; one attempt in three is enough, or more.
    """
    lower = np.floor(values)
    luck, bound = values - lower, conditional_length(length, values.size) ** 2
    while True:
        found = (lower + (coins.uniform(values.size) < luck)).astype(np.int64)
        if float(np.square(found, dtype=np.float64).sum()) <= bound:
            return found
