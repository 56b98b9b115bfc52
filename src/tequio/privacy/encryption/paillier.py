"""Paillier's scheme on long integers: exact sums under encryption, packed, with precomputed randomness."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Interval

from tequio.errors import ConfigError
from tequio.privacy.encryption import paillier_keys
from tequio.privacy.encryption.exact import ExactKey, ExactSecret
from tequio.privacy.encryption.numbers import FixedPoint, Origin
from tequio.privacy.encryption.paillier_keys import power_from, products_of_powers, table_of_powers
from tequio.privacy.encryption.scheme import refused
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import Source
    from tequio.privacy.encryption.paillier_keys import Factors, Modulus


@dataclass(frozen=True)
class PaillierGroup:
    """Numbers modulo n squared: multiplying ciphertexts adds what is in them."""

    key: Modulus
    power_bits: int

    @property
    def capacity(self) -> int:
        """Bits of magnitude that a signed plaintext may have."""
        return self.key.bits - 2

    @property
    def fingerprint(self) -> str:
        """Tells this key from others."""
        return self.key.fingerprint

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        return self.key.to_payload()

    def encrypt(self, number: int, draw: Source) -> int:
        """(1 + number n) times a random power of the base."""
        modulus = self.key.squared
        table = table_of_powers(self.key.base, self.power_bits, modulus)
        return (1 + number * self.key.n) * power_from(table, draw(self.power_bits), modulus) % modulus

    def add(self, first: int, second: int) -> int:
        """The product of the ciphertexts."""
        return first * second % self.key.squared

    def negate(self, given: int) -> int:
        """The inverse of the ciphertext."""
        from gmpy2 import invert

        inverse: int = invert(given, self.key.squared)
        return inverse

    def times(self, given: int, factor: int) -> int:
        """The ciphertext to that power."""
        from gmpy2 import powmod

        power: int = powmod(given, factor, self.key.squared)
        return power

    def combine(self, given: Sequence[int], factors: NDArray[np.int64]) -> list[int]:
        """For each column of `factors` the product of the ciphertexts, each to its power."""
        return products_of_powers(given, factors, self.key.squared)

    def zero(self) -> int:
        """The ciphertext 1."""
        return self.from_number(1)

    def width(self, bits: int) -> int:
        """All ciphertexts are as long as the square of the modulus."""
        return self.key.bits // 4

    def check(self, given: Sequence[int], whose: str) -> None:
        """Every ciphertext is in range and shares no factor with n: one greatest common divisor for all."""
        from gmpy2 import gcd, mpz

        together = mpz(1)
        for number in given:
            if not 0 < number < self.key.squared:
                raise refused(whose, "a number is out of the range of this key")
            together = together * number % self.key.n
        if gcd(together, self.key.n) != 1:
            raise refused(whose, "a number shares a factor with the modulus, which no ciphertext does")

    def to_number(self, given: int) -> int:
        """The ciphertext itself as a whole number."""
        return int(given)

    def from_number(self, number: int) -> int:
        """The ciphertext back."""
        from gmpy2 import mpz

        ciphertext: int = mpz(number)
        return ciphertext


@register("encryption", "paillier", paper="Paillier, 1999; Damgård, Jurik and Nielsen, 2010")
@dataclass(frozen=True)
class Paillier:
    """Exact sums of fixed-point numbers under encryption, many values packed into one ciphertext.

    Ciphertexts are randomised by powers of a public n-th power. With exponents of half the key's length this is as safe
    as factoring is hard; shorter ones are faster and rest on short discrete logarithms being hard modulo n.

    Parameters:
        bits: length of the key: 1024 (tests only), 2048, 3072 or 4096
        fraction_bits: bits after the point of encrypted values
        whole_bits: encrypted values are at most 2 to this power
        factor_bits: bits after the point of known factors (columns of data)
        factor_whole_bits: known factors are at most 2 to this power
        power_bits: bits of a random power; 0 stands for half the key's length
        randomness: keys and powers come from the operating system, or from streams (repeatable, for simulations only)
    """

    bits: Literal[1024, 2048, 3072, 4096] = 3072
    fraction_bits: Annotated[int, Interval(ge=1, le=48)] = 32
    whole_bits: Annotated[int, Interval(ge=0, le=24)] = 12
    factor_bits: Annotated[int, Interval(ge=1, le=48)] = 16
    factor_whole_bits: Annotated[int, Interval(ge=0, le=24)] = 8
    power_bits: Annotated[int, Ge(0)] = 0
    randomness: Origin = "system"
    openings: ClassVar[int] = 0

    def generate(self, draw: Source) -> ExactSecret:
        """A new pair of keys."""
        self._sound()
        return self._secret(paillier_keys.generate(self.bits, draw))

    def public_key(self, payload: Payload) -> ExactKey:
        """The public part back from what crossed; a key of another length is refused."""
        self._sound()
        return self._public(_read_public(_as_bytes(payload, ("n", "roots")), self.bits))

    def secret_key(self, payload: Payload) -> ExactSecret:
        """The whole key back from its holder's state."""
        self._sound()
        return self._secret(_read_secret(_as_bytes(payload, ("n", "roots", "p", "q")), self.bits))

    def _public(self, key: Modulus) -> ExactKey:
        group = PaillierGroup(key, self.power_bits or self.bits // 2)
        return ExactKey(group, FixedPoint(self.fraction_bits, self.whole_bits),
                        FixedPoint(self.factor_bits, self.factor_whole_bits))

    def _secret(self, factors: Factors) -> ExactSecret:
        return ExactSecret(self._public(factors.public), factors)

    def _sound(self) -> None:
        if self.bits not in paillier_keys.KEY_BITS:
            raise ConfigError(f"a Paillier key has 1024, 2048, 3072 or 4096 bits, not {self.bits}",
                              remedy="set bits = 3072")
        least = 2 * paillier_keys.STRENGTH[self.bits]
        if self.power_bits and self.power_bits < least:
            raise ConfigError(f"random powers of {self.power_bits} bits are too short for a key of {self.bits}",
                              remedy=f"set power_bits to at least {least}, or to 0 for half the key's length")
        paillier_keys.need_gmpy2()


def _as_bytes(payload: Payload, names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, payload[name].tobytes()) for name in names if isinstance(payload.get(name), np.ndarray))


# Parties live only as long as a task: reading and checking a key, and its tables, are kept from task to task.
@lru_cache(maxsize=8)
def _read_public(content: tuple[tuple[str, bytes], ...], bits: int) -> Modulus:
    return paillier_keys.read_public(_as_arrays(content), bits)


@lru_cache(maxsize=8)
def _read_secret(content: tuple[tuple[str, bytes], ...], bits: int) -> Factors:
    return paillier_keys.read_secret(_as_arrays(content), bits)


def _as_arrays(content: tuple[tuple[str, bytes], ...]) -> Payload:
    return {name: np.frombuffer(data, np.uint8) for name, data in content}
