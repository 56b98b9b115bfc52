"""Paillier encryption by whoever holds the primes: modulo each prime's square apart, and for many rows at once.

The ciphertexts are those that the public key would make of the same random powers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tequio.privacy.encryption.paillier_keys import Factors
    from tequio.privacy.encryption.randomness import Source

_WIDEST_DIGIT = 12


def encrypt_by_factors(factors: Factors, numbers: Sequence[int], power_bits: int, draw: Source) -> tuple[Any, ...]:
    """A fresh ciphertext of each (signed) number, randomised by powers of `power_bits` bits."""
    from gmpy2 import invert

    n, base, exponents = factors.public.n, factors.public.base, [draw(power_bits) for _ in numbers]
    p_square, q_square = factors.p ** 2, factors.q ** 2
    inverse = invert(q_square, p_square)
    found = []
    for number, at_p, at_q in zip(numbers, powers(base, exponents, power_bits, p_square),
                                  powers(base, exponents, power_bits, q_square), strict=True):
        random = at_q + q_square * ((at_p - at_q) * inverse % p_square)
        found.append((1 + number * n) * random % factors.public.squared)
    return tuple(found)


def powers(base: Any, exponents: Sequence[int], bits: int, modulus: Any) -> list[Any]:
    """The base to many powers of so many bits: digit by digit for all of them, so that one table is held at a time."""
    from gmpy2 import mpz

    digit = min(range(1, _WIDEST_DIGIT + 1), key=lambda size: -(-bits // size) * (len(exponents) + (1 << size)))
    mask, step = (1 << digit) - 1, base % modulus
    found = [mpz(1)] * len(exponents)
    for shift in range(0, bits, digit):
        table = [mpz(1)]
        for _ in range(mask):
            table.append(table[-1] * step % modulus)
        found = [held * table[(exponent >> shift) & mask] % modulus
                 for held, exponent in zip(found, exponents, strict=True)]
        step = table[-1] * step % modulus
    return found
