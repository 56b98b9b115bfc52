"""Sums in whole numbers: what parties add up where nobody may see a single summand, exactly and in any order.

A number is cut into a few small whole numbers, its digits in a large base, of which those of all parties together stay
below 2^30 and so fit into every ring that sums are taken in. Whole numbers are exact, and unsigned ones add up modulo
2^64. Numbers in double precision stand for multiples of 2^-62, so that a sum is wrong by 2^-63 per party at most.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Digits = NDArray[np.int64]

LARGEST_DIGITS = 1 << 30
"""Sums of digits stay below this."""

_REAL_BITS, _FRACTION, _WHOLE_BITS, _RING_BITS = 124, 62, 53, 64
_RING = 1 << _RING_BITS

ERROR = 2.0 ** -63
"""By so much a hidden sum of numbers in double precision is wrong for each party in it, at most."""


def digits_of(values: NDArray[np.generic], parties: int) -> Digits:
    """The digits of all entries, the lowest of each first: (digits, entries) in one row."""
    base, count = _digits(values.dtype, parties)
    if values.dtype.kind == "u":
        ring, mask = values.astype(np.uint64).reshape(-1), np.uint64((1 << base) - 1)
        return np.concatenate([(ring >> np.uint64(base * place) & mask).astype(np.int64) for place in range(count)])
    whole = values.dtype.kind == "i"
    largest = 2.0 ** (_WHOLE_BITS if whole else _REAL_BITS - _FRACTION)
    # Scaling by powers of two and taking off whole parts is exact in double precision.
    rest = values.astype(np.float64).reshape(-1)
    if not (np.abs(rest) < largest).all():
        raise DataError(f"a sum over rows is {np.abs(rest).max():.3g}, and hidden sums have room for {largest:.3g}",
                        remedy="scale the columns: data.prepare = ['standardise']")
    rest = rest * 2.0 ** ((0 if whole else _FRACTION) - base * (count - 1))
    digits = np.empty((count, len(rest)), dtype=np.int64)
    for place in range(count - 1, 0, -1):
        digit = np.trunc(rest)
        digits[place], rest = digit, (rest - digit) * 2.0 ** base
    digits[0] = np.rint(rest)
    return digits.reshape(-1)


def number_of_digits(kind: np.dtype[np.generic], size: int, parties: int) -> int:
    """How many digits so many entries of a type have."""
    return size * _digits(kind, parties)[1]


def numbers_of_digits(total: Digits, kind: np.dtype[np.generic], parties: int) -> NDArray[np.generic]:
    """The entries whose digits were added up: whole numbers, or numbers in double precision, correctly rounded."""
    base, count = _digits(kind, parties)
    powers = np.array([1 << base * place for place in range(count)], dtype=object)
    whole = (total.reshape(count, -1).astype(object) * powers[:, None]).sum(axis=0)
    if kind.kind == "u":
        return np.array(whole % _RING, dtype=np.uint64)
    if kind.kind == "i":
        return np.array(whole, dtype=np.int64)
    return np.array([float(Fraction(one, 1 << _FRACTION)) for one in whole], dtype=np.float64)


def _digits(kind: np.dtype[np.generic], parties: int) -> tuple[int, int]:
    """The bits of a digit, and how many digits a number has. A digit may be rounded up to the base itself."""
    base = ((LARGEST_DIGITS - 1) // parties).bit_length() - 1
    if base < 1:
        raise DataError(f"a sum of {parties} parties has no room for their digits")
    return base, -(-{"u": _RING_BITS, "i": _WHOLE_BITS}.get(kind.kind, _REAL_BITS) // base)
