"""Laws of noise in whole numbers: their weights in double precision, and to as many digits as one asks for.

Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, NeurIPS 2020. Ghosh, Roughgarden,
Sundararajan: Universally utility-maximizing privacy mechanisms, SIAM J. Comput. 2012 (discrete Laplace). Agarwal,
Kairouz, Liu: The Skellam mechanism for differentially private federated learning, NeurIPS 2021.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import asinh, hypot, nextafter, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Law(ABC):
    """A law over whole numbers, symmetric around 0 and with a concave logarithm, up to a factor."""

    @property
    @abstractmethod
    def width(self) -> float:
        """About its standard deviation."""

    @abstractmethod
    def log_weights(self, numbers: Floats) -> Floats:
        """ln P[k] / P[0]."""

    @abstractmethod
    def slope(self, number: int) -> float:
        """No more than ln P[k] / P[k + 1], and about as much."""

    @abstractmethod
    def exact(self, number: int) -> Decimal:
        """P[k] / P[0], with all digits of the context but the last ten."""

    nought = 0.5
    """The weight of 0 beside its P[0] = 1: both signs of it are the same number."""


@dataclass(frozen=True)
class Gaussian(Law):
    """P[k] is proportional to exp(-k^2 / (2 deviation^2))."""

    deviation: Fraction

    @property
    def width(self) -> float:
        """About its standard deviation."""
        return float(self.deviation)

    def log_weights(self, numbers: Floats) -> Floats:
        """ln P[k] / P[0]."""
        return np.square(numbers / self.width) * -0.5

    def slope(self, number: int) -> float:
        """No more than ln P[k] / P[k + 1]."""
        return _rounded_down(Fraction(2 * number + 1) / (2 * self.deviation**2))

    def exact(self, number: int) -> Decimal:
        """P[k] / P[0] with the digits of the context."""
        return exponential(-Fraction(number)**2 / (2 * self.deviation**2))


@dataclass(frozen=True)
class Exponential(Law):
    """The discrete Laplace law; with `nought` = 1 the geometric law of its magnitudes alone."""

    rate: Fraction
    nought: float = 0.5

    @property
    def width(self) -> float:
        """About its standard deviation."""
        return float(1 / self.rate)

    def log_weights(self, numbers: Floats) -> Floats:
        """ln P[k] / P[0]."""
        return -numbers * float(self.rate)

    def slope(self, number: int) -> float:
        """No more than ln P[k] / P[k + 1]."""
        return _rounded_down(self.rate)

    def exact(self, number: int) -> Decimal:
        """P[k] / P[0] with the digits of the context."""
        return exponential(-number * self.rate)


@dataclass(frozen=True)
class Skellam(Law):
    """P[k] is proportional to I_k(variance), a modified Bessel function."""

    variance: Fraction

    @property
    def width(self) -> float:
        """About its standard deviation."""
        return sqrt(self.variance)

    def log_weights(self, numbers: Floats) -> Floats:
        """Up to a variance of 10^4 by SciPy, above by Debye's expansion (DLMF 10.41.3), wrong by 10^-17 then."""
        size = float(self.variance)
        if size <= 1e4:
            from scipy.special import ive

            return np.asarray(np.log(ive(numbers, size) / float(ive(0, size))))
        long = np.hypot(numbers, size)
        main = np.square(numbers) / (long + size) - numbers * np.arcsinh(numbers / size)
        return main - np.log(long / size) / 2 + _debye(numbers, long) - _debye(np.zeros(1), np.full(1, size))

    def slope(self, number: int) -> float:
        """Amos, Math. Comp. 1974: I_(k+1)(x) / I_k(x) <= x / (k + 1/2 + sqrt(x^2 + (k + 1/2)^2))."""
        return asinh((number + 0.5) / float(self.variance)) / (1 + 2.0 ** -30)

    def exact(self, number: int) -> Decimal:
        """By ratios I_n / I_(n-1) = 1 / (2n / x + I_(n+1) / I_n), from so far out that the start does not matter."""
        with localcontext() as context:
            digits, beyond = context.prec, max(number, 1) * 2 + 8
            while self._log_ratio(beyond) > self._log_ratio(number) - 1.2 * digits - 9:
                beyond *= 2
            context.prec += len(str(beyond))
            double = 2 / _decimal(self.variance)
            ratio, found = Decimal(0), Decimal(1)
            for order in range(beyond, 0, -1):
                ratio = 1 / (order * double + ratio)
                if order <= number:
                    found *= ratio
            return found

    def _log_ratio(self, number: int) -> float:
        """About ln P[k] / P[0], for a bound."""
        size = float(self.variance)
        return number**2 / (hypot(number, size) + size) - number * asinh(number / size)


def _debye(numbers: Floats, long: Floats) -> Floats:
    """The logarithm of Debye's series in 1 / long, up to its third term, with p the order over `long`."""
    square = np.square(numbers / long)
    first = (3 - 5 * square) / 24
    second = (81 + square * (-462 + 385 * square)) / 1152
    third = (30375 + square * (-369603 + square * (765765 - 425425 * square))) / 414720
    return np.asarray(np.log1p((first + (second + third / long) / long) / long))


def exponential(exponent: Fraction) -> Decimal:
    """e to a power, with the digits of the context, however large the power is."""
    with localcontext() as context:
        context.prec += max(len(str(int(exponent))), 1)
        return _decimal(exponent).exp()


def _rounded_down(value: Fraction) -> float:
    found = float(value)
    return found if Fraction(found) <= value else nextafter(found, 0)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
