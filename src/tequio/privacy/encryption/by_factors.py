"""Paillier encryption by whoever holds the primes: modulo each prime's square apart, which is faster than modulo n^2.

The ciphertexts are those that the public key would make of the same random powers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tequio.privacy.encryption.exponents import power_from, table_of_powers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tequio.privacy.encryption.paillier_keys import Factors
    from tequio.privacy.encryption.randomness import Source


@dataclass(frozen=True)
class ByFactors:
    """Encrypts with the secret key; random powers have `power_bits` bits."""

    factors: Factors
    power_bits: int

    @cached_property
    def _squares(self) -> tuple[Any, Any]:
        return self.factors.p ** 2, self.factors.q ** 2

    @cached_property
    def _tables(self) -> list[Any]:
        base = self.factors.public.base
        return [table_of_powers(base % square, self.power_bits, square) for square in self._squares]

    @cached_property
    def _inverse(self) -> Any:
        """Of the square of q, modulo the square of p."""
        from gmpy2 import invert

        p_square, q_square = self._squares
        return invert(q_square, p_square)

    def encrypt(self, numbers: Iterable[int], draw: Source) -> tuple[Any, ...]:
        """A fresh ciphertext of each (signed) number."""
        (p_square, q_square), (p_table, q_table), inverse = self._squares, self._tables, self._inverse
        n, bits, found = self.factors.public.n, self.power_bits, []
        for number in numbers:
            exponent, plain = draw(bits), 1 + number * n
            at_p = plain * power_from(p_table, exponent, p_square) % p_square
            at_q = plain * power_from(q_table, exponent, q_square) % q_square
            found.append(at_q + q_square * ((at_p - at_q) * inverse % p_square))
        return tuple(found)


@lru_cache(maxsize=4)
def by_factors(factors: Factors, power_bits: int) -> ByFactors:
    """The same one for the same key, so that its tables are made once."""
    return ByFactors(factors, power_bits)
