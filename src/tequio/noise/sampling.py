"""Exact noise in whole numbers: Gaussian, Laplace and Skellam, drawn by many at a time.

    noise = rounded_gaussian(Coins.from_system(), deviation, shape)    # deviation in steps of a grid; int64

Floating-point noise has gaps, and its last digits give away what it was added to (Mironov, CCS 2012). Whole numbers
have none. Their laws are here exactly those of the papers: a number is proposed from a table and accepted with a chance
that makes up for the table; the chance is compared with a uniform number of unlimited length, in double precision where
that decides, and with ever more digits where it does not. So no rounding of a processor changes a chance, or a draw.

The table (`_Table`) cuts the numbers from 0 on into cells of a power of two, some forty to a deviation, and gives each
as many of 2^16 slots as its most likely number asks for, rounded up. A word of 64 bits then chooses a slot, a place in
its cell, a sign, and most often decides the acceptance as well. What lies beyond the cells is proposed by a geometric
law that falls no faster than the tail does, which is enough where the logarithm of the law is concave.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import ceil, expm1, floor, isfinite, log2, prod
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError
from tequio.noise.laws import (
    Exponential,
    Gaussian,
    Geometric,
    Law,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
    exponential,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.noise.coins import Coins, Words
    from tequio.noise.laws import Floats

    Whole = NDArray[np.int64]
    Shape = int | tuple[int, ...]

LARGEST_DEVIATION = 2.0 ** 40
"""In steps. Wider noise would leave too few bits of a word for the acceptance."""

_SLOTS = 1 << 16
_WORD = 47
"""Bits of a word that its slot and its sign leave: for the place in a cell, and for a fraction."""
_SLOT, _UP, _ONE = np.uint64(48), np.uint64(16), np.uint64(1)
_FINENESS = 5
"""A cell is 2^-5 to 2^-6 deviations wide."""
_DEVIATIONS = 4
"""The cells reach so far; one number in 16,000 of a Gaussian lies beyond."""
_SAFETY = 1 + 2.0 ** -30
_BAND = 2.0 ** -36
"""Chances in double precision are closer than this to the true ones, relative to them and to the size of exponents."""
_AT_ONCE = 1 << 14
"""Numbers that are proposed at a time, so that they stay in the processor's cache."""


def discrete_gaussian(coins: Coins, deviation: float, shape: Shape) -> Whole:
    """Whole numbers k with a chance proportional to exp(-k^2 / (2 deviation^2))."""
    return _drawn(coins, deviation, shape, Gaussian)


def rounded_gaussian(coins: Coins, deviation: float, shape: Shape) -> Whole:
    """Normal numbers of that standard deviation, rounded."""
    return _drawn(coins, deviation, shape, RoundedGaussian)


def discrete_laplace(coins: Coins, scale: float, shape: Shape) -> Whole:
    """Whole numbers k with a chance proportional to exp(-|k| / scale)."""
    return _drawn(coins, scale, shape, lambda exact: Exponential(1 / exact))


def rounded_laplace(coins: Coins, scale: float, shape: Shape) -> Whole:
    """Laplace numbers of that scale, rounded."""
    return _drawn(coins, scale, shape, lambda exact: RoundedLaplace(1 / exact))


def skellam(coins: Coins, variance: float, shape: Shape) -> Whole:
    """Differences of two Poisson numbers of half that variance each. Sums of them are Skellam numbers again."""
    return _drawn(coins, variance, shape, Skellam)


def _drawn(coins: Coins, size: float, shape: Shape, law: Callable[[Fraction], Law]) -> Whole:
    count = shape if isinstance(shape, int) else prod(shape)
    if not (isfinite(size) and size >= 0):
        raise ConfigError(f"noise of size {size} cannot be drawn", remedy="set a noise that is a number from 0 on")
    if not size or not count:
        return np.zeros(shape, np.int64)
    return _signed(coins, _table(law(Fraction(size))), count).reshape(shape)


@dataclass(frozen=True, eq=False)
class _Table:
    """Cells, their slots, and the geometric law that proposes what lies beyond them.

    A number k of a cell with n of all slots is accepted with the chance `level` * weight(k) / n, so that in the end
    all numbers are as likely as they should be, whatever the slots are.
    """

    law: Law
    shift: int
    cells: int
    counts: NDArray[np.int64]
    """Of slots: one a cell, and last that of the tail."""
    level: float
    rate: float
    """Of the geometric law of the tail."""
    cell: NDArray[np.intp]
    """By slot."""
    surely: Words
    """By cell: fractions below this are accepted whatever number of the cell it is."""

    @property
    def end(self) -> int:
        """The first number beyond the cells."""
        return self.cells << self.shift

    def chances(self, cells: Whole, numbers: Whole) -> tuple[Floats, Floats]:
        """Of acceptance, and how far they may be wrong."""
        exponents = self.law.log_weights(numbers.astype(np.float64)) + np.where(
            cells == self.cells, self.rate * (numbers - self.end), 0.0)
        factors = self.level / self.counts.take(cells)
        factors = np.where(cells == self.cells, factors * _tail_factor(self.shift, self.rate), factors)
        found = np.where(numbers == 0, float(self.law.nought()), np.exp(exponents)) * factors
        return found, found * (1 - exponents) * _BAND + 2.0 ** -63

    def exact_chance(self, cell: int, number: int) -> Decimal:
        """The same with the digits of the context."""
        chance = self.law.nought() if number == 0 else self.law.exact(number)
        chance *= Decimal(self.level) / int(self.counts[cell])
        if cell < self.cells:
            return chance
        rate = Fraction(self.rate)
        return chance * exponential(rate * (number - self.end)) / ((1 << self.shift) * (1 - exponential(-rate)))


def _tail_factor(shift: int, rate: float) -> float:
    """What the density of the geometric law's start is worth beside that of a cell's numbers."""
    return -1 / (expm1(-rate) * (1 << shift))


@lru_cache(maxsize=64)
def _table(law: Law) -> _Table:
    if not law.narrowest <= law.width <= LARGEST_DEVIATION:
        raise ConfigError(f"noise of {law.width:.3g} steps cannot be drawn: it may have from {law.narrowest:.3g} "
                          f"to {LARGEST_DEVIATION:.3g}", remedy="use another noise, or another grid")
    shift = max(floor(log2(law.width)) - _FINENESS, 0)
    cells = max(ceil(_DEVIATIONS * law.width / (1 << shift)), 4)
    starts = np.arange(cells + 1, dtype=np.float64) * (1 << shift)
    rate = law.slope(cells << shift)
    highest = np.exp(law.log_weights(starts))
    highest[0] = 1.0 if shift else float(law.nought())
    highest[-1] *= _tail_factor(shift, rate)
    level, counts = _slots(highest)
    lowest = np.exp(law.log_weights(starts[:-1] + ((1 << shift) - 1)))
    lowest[0] = min(lowest[0], float(law.nought()))
    bits = _WORD - shift
    surely = np.minimum(np.floor(level * lowest / counts[:-1] / _SAFETY * 2.0 ** bits), 2.0 ** bits - 1)
    thresholds = np.append(surely, 0).astype(np.uint64) << np.uint64(64 - bits)
    return _Table(law, shift, cells, counts, level, rate, np.repeat(np.arange(cells + 1), counts), thresholds)


def _slots(highest: Floats) -> tuple[float, NDArray[np.int64]]:
    """The slots of each cell, all of them together, and the level at which each has enough."""

    def counts_at(level: float) -> NDArray[np.int64]:
        return np.maximum(np.ceil(level * highest * _SAFETY), 1).astype(np.int64)

    low, high = (_SLOTS - 2 * len(highest)) / highest.sum(), _SLOTS / highest.sum()
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if counts_at(middle).sum() <= _SLOTS else (low, middle)
    counts = counts_at(low)
    counts[0] += _SLOTS - counts.sum()
    return low, counts


def _magnitudes(coins: Coins, table: _Table, count: int) -> Whole:
    """So many numbers from 0 on."""
    return np.abs(_signed(coins, table, count))


def _signed(coins: Coins, table: _Table, count: int) -> Whole:
    """So many numbers with their signs: those that a word settles, the others, and then refused ones anew."""
    found, undecided = np.empty(count, np.int64), []
    shift, mask = np.int64(table.shift), np.uint64((1 << table.shift) - 1)
    for start in range(0, count, _AT_ONCE):
        words = coins.words(min(_AT_ONCE, count - start))
        cells = table.cell.take((words >> _SLOT).view(np.int64))
        numbers = ((words >> _ONE) & mask).view(np.int64)
        numbers |= cells << shift
        open_ = np.flatnonzero((words << _UP) >= table.surely.take(cells))
        signs = -(words & _ONE).view(np.int64)
        numbers ^= signs
        np.subtract(numbers, signs, out=found[start:start + len(words)])
        undecided.append((open_ + start, words[open_], cells[open_]))
    places, words, cells = (np.concatenate(parts) for parts in zip(*undecided, strict=True))
    if places.size:
        numbers, kept = _settled(coins, table, words, cells, np.abs(found[places]))
        found[places] = np.where(words & _ONE, -numbers, numbers)
        refused = places[~kept]
        if refused.size:
            found[refused] = _signed(coins, table, refused.size)
    return found


def _settled(coins: Coins, table: _Table, words: Words, cells: Whole,
             numbers: Whole) -> tuple[Whole, NDArray[np.bool_]]:
    """Numbers that their words have not settled, those of the tail among them, and whether they are accepted."""
    beyond = np.flatnonzero(cells == table.cells)
    if beyond.size:
        geometric = _table(Geometric(Fraction(table.rate)))
        numbers[beyond] = table.end + _magnitudes(coins, geometric, beyond.size)
    bits = _WORD - table.shift
    fractions, further = (words << _UP) >> np.uint64(64 - bits), coins.words(words.size)
    uniform = (fractions + further * 2.0 ** -64) * 2.0 ** -bits
    chances, errors = table.chances(cells, numbers)
    kept = uniform < chances
    for place in np.flatnonzero(np.abs(uniform - chances) <= errors).tolist():
        fraction = int(fractions[place]) << 64 | int(further[place])
        kept[place] = _is_below(coins, table, int(cells[place]), int(numbers[place]), fraction, bits + 64)
    return numbers, kept


def _is_below(coins: Coins, table: _Table, cell: int, number: int, fraction: int, bits: int) -> bool:
    """Whether a uniform number that begins with these bits is below the chance of a number, to as many as it takes."""
    with localcontext() as context:
        context.Emin, context.Emax = MIN_EMIN, MAX_EMAX
        while True:
            context.prec = bits // 3 + 30
            chance = table.exact_chance(cell, number)
            margin = chance * Decimal(10) ** (20 - context.prec)
            if Decimal(fraction + 1) / (1 << bits) <= chance - margin:
                return True
            if Decimal(fraction) / (1 << bits) >= chance + margin:
                return False
            fraction, bits = fraction << 64 | int(coins.words(1)[0]), bits + 64
