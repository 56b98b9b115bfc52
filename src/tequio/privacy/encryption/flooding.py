"""How much noise goes on what a CKKS key opens, so that errors say nothing about the key, and what then is left.

Li, Micciancio, Schultz, Sorrell: Securing approximate homomorphic encryption using differential privacy, CRYPTO 2022.
An opened value carries an error that depends on the key. Where all errors of a key's openings are at most t, Gaussian
noise of deviation sqrt(12 openings) 2^(security / 2) t drowns them. t is bounded by formula and never measured, since
what is measured depends on what is encrypted. All lengths are those of a ciphertext's coefficients; values in slots are
sqrt(degree / 2) times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2, sqrt

from tequio.errors import ConfigError

PRIMES = {8192: (50, 50, 49, 49), 16384: (60,) * 6}
"""Bits of the primes that ciphertexts are taken modulo, by degree. With the last one, which is for switching keys and
short because nothing is rotated, they are within the 218 and 438 bits that leave 128 bits of security."""
LAST_PRIME = 20

SLOT_BITS = 34
"""What a slot may hold: values, products and, on what is opened, pads and noise of 2^30."""
RANGE_BITS = 12
"""Values and known factors are at most 2 to this power."""
MOST_ADDED = 1 << 10
"""Of so many ciphertexts, from different parties or rows, a sum may be made."""

_FRESH = 6 * 3.2
"""Six deviations of the errors that ciphertexts are made with."""
_DEVIATIONS = 6


@dataclass(frozen=True)
class Flooding:
    """The noise of a scheme: `products` one after the other, `openings` under one key, `security` in bits."""

    degree: int
    products: int
    openings: int
    security: int

    @property
    def modulus_bits(self) -> int:
        """Bits of what ciphertexts are taken modulo."""
        return sum(PRIMES[self.degree])

    @property
    def scale_bits(self) -> int:
        """Bits after the point of fresh ciphertexts, and again of each factor: as many as there is room for."""
        return (self.modulus_bits - SLOT_BITS) // (self.products + 1)

    @property
    def error(self) -> float:
        """The bound on the error of what is opened, in units of the last place of a fresh ciphertext.

        A factor multiplies it by the sum of its coefficients, which by Cauchy and Schwarz is at most the root of the
        degree times the largest slot. A pad and what makes ciphertexts fresh come with an error of their own each.
        """
        fresh = _FRESH * sqrt(4 * self.degree / 3 + 1)
        factor = sqrt(self.degree) * 2.0 ** RANGE_BITS
        return float(fresh * (sqrt(MOST_ADDED) * factor ** self.products + 2))

    @property
    def deviation(self) -> float:
        """The noise's, in the same units."""
        return sqrt(12 * self.openings * 2.0 ** self.security) * self.error

    @property
    def slot_deviation(self) -> float:
        """The noise's in a slot, in the units of its value."""
        return self.deviation * sqrt(self.degree / 2) / 2.0 ** self.scale_bits

    @property
    def kept_bits(self) -> int:
        """How many bits after the point six deviations of the noise leave of a slot's value."""
        return floor(-log2(_DEVIATIONS * self.slot_deviation))

    def check(self, fraction_bits: int) -> None:
        """Refuse settings of which less would be left than was asked for."""
        if self.kept_bits < fraction_bits:
            larger = "" if self.degree == max(PRIMES) else f"set encryption.degree = {max(PRIMES)}, or "
            raise ConfigError(f"the noise that protects this CKKS key leaves {self.kept_bits} bits after the point of "
                              f"what is opened, and {fraction_bits} are asked for (degree {self.degree}, "
                              f"{self.products} products, {self.openings} openings, {self.security} bits of security)",
                              remedy=f"{larger}lower encryption.openings, encryption.security or "
                                     "encryption.fraction_bits")
