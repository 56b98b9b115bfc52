"""Laws of noise in whole numbers: their weights in double precision, and to as many digits as one asks for.

A rounded law is that of a continuous number rounded to the nearest whole one. Whole numbers plus it are what rounding
makes of whole numbers plus the continuous noise, so that all that is known of the privacy of the continuous mechanism
holds for it, vectors and samples included.

Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, NeurIPS 2020. Ghosh, Roughgarden,
Sundararajan: Universally utility-maximizing privacy mechanisms, SIAM J. Comput. 2012 (discrete Laplace). Agarwal,
Kairouz, Liu: The Skellam mechanism for differentially private federated learning, NeurIPS 2021.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import asinh, ceil, erf, hypot, log, log1p, nextafter, sqrt
from typing import ClassVar

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

    def nought(self) -> Decimal:
        """The weight of 0 with a sign: there are two of them, and both are the same number."""
        return Decimal("0.5")

    narrowest: ClassVar[float] = 2.0 ** -20
    """The smallest width whose weights are computed."""


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
class RoundedGaussian(Law):
    """P[k] is the chance that a normal number lies within 1/2 of k."""

    deviation: Fraction

    narrowest = 2.0 ** -4

    @property
    def width(self) -> float:
        """About its standard deviation."""
        return float(self.deviation)

    def log_weights(self, numbers: Floats) -> Floats:
        """ln P[k] / P[0]: of wide noise by the density and its even derivatives, which are Hermite's polynomials."""
        width = self.width
        if width < 64:
            from scipy.special import log_ndtr

            near, far = log_ndtr((0.5 - numbers) / width), log_ndtr((-0.5 - numbers) / width)
            found: Floats = near + np.log1p(-np.exp(far - near))
            return found - log(erf(0.5 / (sqrt(2) * width)))
        square = np.square(numbers / width)
        found = square * -0.5 + np.log1p(_hermite(square, width))
        return found - log1p(_hermite(np.zeros(1), width)[0])

    def slope(self, number: int) -> float:
        """No more than ln P[k] / P[k + 1]: what the density falls by where it falls least."""
        return _rounded_down(Fraction(number) / self.deviation**2)

    def exact(self, number: int) -> Decimal:
        """P[k] / P[0] with the digits of the context."""
        found = exponential(-Fraction(number)**2 / (2 * self.deviation**2))
        return found * self._around(number) / self._around(0)

    def _around(self, number: int) -> Decimal:
        """The integral of exp(-(k t + t^2 / 2) / deviation^2) over t from -1/2 to 1/2, by its power series."""
        with localcontext() as context:
            precision, size = context.prec, float((abs(number) / Fraction(2) + Fraction(1, 8)) / self.deviation**2)
            context.prec += ceil(size) + 10
            variance = _decimal(self.deviation) ** 2
            before, last, total, term, order = Decimal(0), Decimal(1), Decimal(1), Decimal(1), 0
            while order < 2 * size + 4 or abs(term) > total.scaleb(-precision):
                for _ in range(2):
                    order += 1
                    before, last = last, -(number * last + before) / (variance * order)
                term = last / ((order + 1) << order)
                total += term
            return total


def _hermite(square: Floats, width: float) -> Floats:
    """What the mean of the normal density over a step is more than the density in its middle, z = sqrt(square)."""
    part = 1 / (4 * width**2)
    fourth = 105 + square * (-420 + square * (210 + square * (-28 + square)))
    third = -15 + square * (45 + square * (-15 + square))
    second = 3 + square * (-6 + square)
    return part * ((square - 1) / 6 + part * (second / 120 + part * (third / 5040 + part * fourth / 362880)))


@dataclass(frozen=True)
class Exponential(Law):
    """The discrete Laplace law: P[k] is proportional to exp(-rate |k|)."""

    rate: Fraction

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
class Geometric(Exponential):
    """The law of magnitudes alone, without a sign: P[k] is proportional to exp(-rate k), for k from 0 on."""

    def nought(self) -> Decimal:
        """The weight of 0, of which there is one only."""
        return Decimal(1)


@dataclass(frozen=True)
class RoundedLaplace(Exponential):
    """P[k] is the chance that a Laplace number lies within 1/2 of k."""

    def nought(self) -> Decimal:
        """The weight of 0 with a sign, beside exp(-rate |k|) of the others."""
        half = exponential(-self.rate / 2)
        return half / (1 + half)


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
