"""The grid on which noised numbers are told.

Mironov: On significance of the least significant bits for differential privacy, CCS 2012: sums of floating-point
numbers have last digits that give the summands away. What is released is therefore rounded to a grid that is coarse
beside these digits and fine beside the noise, and on which every value can come from any summand.
"""

from __future__ import annotations

from math import floor, log2

_FINENESS = 10
"""The grid is 2^-10 times the noise wide, or less; rounding to it adds less than one part in ten million to it."""


def grid_of(spread: float) -> float:
    """How far apart noised values are: a power of two."""
    return float(2.0 ** (floor(log2(spread)) - _FINENESS))
