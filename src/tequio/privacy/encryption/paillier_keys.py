"""Paillier's keys, with the base of short random powers of Damgård, Jurik and Nielsen (2010), and powers in bulk.

Goldberg, Reyzin, Sagga, Baldimtsi: Efficient noninteractive certification of RSA moduli and beyond, ASIACRYPT 2019: a
key comes with n-th roots of numbers that follow from it by a hash. With no prime factor below 2^16, eight of them prove
but for a chance of 2^-128 that n shares no factor with phi(n), so that ciphertexts open to what was encrypted. The base
follows from a hash too, so that its maker cannot choose it.

The holder of the primes encrypts faster: modulo each prime's square apart, and for many rows at once. The ciphertexts
are those that the public key would make of the same random powers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b, shake_256
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import EncryptionError, MissingExtra
from tequio.privacy.encryption.numbers import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import Source

KEY_BITS = (1024, 2048, 3072, 4096)
# NIST SP 800-57: the work, in bits, to factor a modulus of each length.
STRENGTH = {1024: 80, 2048: 112, 3072: 128, 4096: 152}

_SMALLEST_FACTOR, _ROOTS = 1 << 16, 8


def need_gmpy2() -> ModuleType:
    """The package for long numbers."""
    try:
        return import_module("gmpy2")
    except ImportError:
        raise MissingExtra("gmpy2", "privacy", "the encryption 'paillier'") from None


@dataclass(frozen=True)
class Modulus:
    """The public part: n, and the roots that prove it well formed."""

    n: int
    roots: tuple[int, ...]

    @cached_property
    def base(self) -> int:
        """An n-th power whose own powers are the randomness of ciphertexts."""
        from gmpy2 import powmod

        square = expanded(self.n, "base", 0) ** 2
        base: int = powmod(-square % self.n, self.n, self.squared)
        return base

    @cached_property
    def squared(self) -> int:
        """Ciphertexts are numbers modulo this."""
        return self.n * self.n

    @cached_property
    def fingerprint(self) -> str:
        """Tells this key from others."""
        return blake2b(_number_bytes(self.n), digest_size=16).hexdigest()

    @property
    def bits(self) -> int:
        """The key's length."""
        return int(self.n.bit_length())

    def to_payload(self) -> Payload:
        """The key as it crosses."""
        return {"n": _array(self.n, self.bits // 8), "roots": to_bytes(self.roots, self.bits // 8).ravel()}


@dataclass(frozen=True)
class Factors:
    """The secret part: the two primes, with what opening by the Chinese remainder theorem needs."""

    p: int
    q: int
    public: Modulus

    @cached_property
    def _halves(self) -> list[tuple[int, int, int]]:
        """For each prime: itself, its square, and what turns a logarithm into the plaintext."""
        from gmpy2 import invert, powmod

        halves = []
        for prime in (self.p, self.q):
            square = prime * prime
            logarithm = (powmod(1 + self.public.n, prime - 1, square) - 1) // prime
            halves.append((prime, square, invert(logarithm, prime)))
        return halves

    @cached_property
    def _q_inverse(self) -> int:
        from gmpy2 import invert

        inverse: int = invert(self.q, self.p)
        return inverse

    def open(self, ciphertext: int) -> int:
        """The plaintext, as a signed number."""
        from gmpy2 import powmod

        at_p, at_q = [(powmod(ciphertext, prime - 1, square) - 1) // prime * inverse % prime
                      for prime, square, inverse in self._halves]
        plaintext = at_q + self.q * ((at_p - at_q) * self._q_inverse % self.p)
        return int(plaintext - self.public.n if 2 * plaintext > self.public.n else plaintext)

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        width = self.public.bits // 16
        return {**self.public.to_payload(), "p": _array(self.p, width), "q": _array(self.q, width)}


def generate(bits: int, draw: Source) -> Factors:
    """A new key: two primes of half the length, both 3 modulo 4, whose predecessors share no factor but 2."""
    gmpy2 = need_gmpy2()
    p = _prime(bits // 2, draw)
    q = _prime(bits // 2, draw)
    while p == q or gmpy2.gcd(p - 1, q - 1) != 2:
        q = _prime(bits // 2, draw)
    n, inverse = p * q, gmpy2.invert(p * q, (p - 1) * (q - 1))
    return Factors(p, q, Modulus(n, tuple(gmpy2.powmod(expanded(n, "root", number), inverse, n)
                                          for number in range(_ROOTS))))


def read_public(payload: Payload, bits: int) -> Modulus:
    """The public part back from what crossed; a key of another length, or one that is none, is refused."""
    gmpy2 = need_gmpy2()
    n, roots = _number(payload, "n"), payload.get("roots")
    if n.bit_length() != bits:
        raise EncryptionError(f"a Paillier key of {n.bit_length()} bits was received where one of {bits} was agreed on",
                              remedy="let all parties use the same 'bits', and the key of this run's key holder")
    if gmpy2.gcd(n, gmpy2.primorial(_SMALLEST_FACTOR)) != 1 or gmpy2.is_prime(n):
        raise EncryptionError("what was received is not a Paillier key", remedy="ask the key holder for it again")
    if not isinstance(roots, np.ndarray) or roots.dtype != np.uint8 or roots.size != _ROOTS * bits // 8:
        raise EncryptionError("a Paillier key was received without the proof that it is well formed",
                              remedy="ask the key holder for it again")
    found = tuple(map(gmpy2.mpz, from_bytes(roots.reshape(_ROOTS, -1))))
    if any(gmpy2.powmod(root, n, n) != expanded(n, "root", number) for number, root in enumerate(found)):
        raise EncryptionError("a Paillier key was received whose proof does not hold: it is not well formed, and what "
                              "is encrypted under it may say more than its sums", remedy="trust its key holder no more")
    return Modulus(n, found)


def expanded(n: int, purpose: str, number: int) -> int:
    """A number below n that follows from n by a hash: one that n's maker could not choose."""
    from gmpy2 import mpz

    start = f"tequio/6/paillier {purpose} {number}|".encode() + _number_bytes(n)
    found: int = mpz(int.from_bytes(shake_256(start).digest(n.bit_length() // 8 + 16), "little")) % n
    return found


def read_secret(payload: Payload, bits: int) -> Factors:
    """The whole key back from its holder's state."""
    public = read_public(payload, bits)
    p, q = (_number(payload, name) for name in ("p", "q"))
    if p * q != public.n:
        raise EncryptionError("a Paillier key's primes are not those of its modulus", remedy="make a new key")
    return Factors(p, q, public)


def _prime(bits: int, draw: Source) -> int:
    from gmpy2 import mpz, next_prime

    # The two highest bits make the product of two such primes exactly twice as long.
    prime: int = mpz(0)
    while prime % 4 != 3 or prime.bit_length() != bits:
        prime = next_prime(mpz(draw(bits)) | 3 << bits - 2)
    return prime


def _number(payload: Payload, name: str) -> int:
    from gmpy2 import mpz

    rows = payload.get(name)
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype != np.uint8:
        raise EncryptionError(f"a Paillier key without '{name}' was received", remedy="ask the key holder for it again")
    number: int = mpz(from_bytes(rows[None, :])[0])
    return number


def _array(number: int, width: int) -> NDArray[np.uint8]:
    row: NDArray[np.uint8] = to_bytes([number], width)[0]
    return row


def _number_bytes(number: int) -> bytes:
    return int(number).to_bytes((number.bit_length() + 7) // 8, "little")


_WIDEST_DIGIT = 12


def encrypt_by_factors(factors: Factors, numbers: Sequence[int], power_bits: int, draw: Source) -> tuple[int, ...]:
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


def powers(base: int, exponents: Sequence[int], bits: int, modulus: int) -> list[int]:
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


# Tables of powers of one number are kept below this many entries (of twice the key's length each).
_TABLE_ENTRIES = 1 << 15


def products_of_powers(bases: Sequence[int], exponents: NDArray[np.int64], modulus: int) -> list[int]:
    """For each column the product of the bases, each to its own (signed) power, by Pippenger's buckets."""
    inverses = _inverses(bases, modulus) if (exponents < 0).any() else bases
    return [_product(bases, inverses, exponents[:, column].tolist(), modulus) for column in range(exponents.shape[1])]


def _product(bases: Sequence[int], inverses: Sequence[int], exponents: list[int], modulus: int) -> int:
    """Digits of all exponents, highest first: a base goes to the bucket of its digit, buckets are raised together."""
    from gmpy2 import mpz, powmod

    pairs = [(bases[row] if power > 0 else inverses[row], abs(power)) for row, power in enumerate(exponents) if power]
    longest = max((power.bit_length() for _, power in pairs), default=0)
    window = _window(len(pairs), longest)
    result: int = mpz(1)
    mask = (1 << window) - 1
    for shift in range(-(-longest // window) * window - window, -1, -window):
        if result != 1:
            result = powmod(result, 1 << window, modulus)
        buckets: list[int | None] = [None] * (mask + 1)
        for base, power in pairs:
            digit = (power >> shift) & mask
            if digit:
                held = buckets[digit]
                buckets[digit] = base if held is None else held * base % modulus
        result = result * _raised(buckets, modulus) % modulus
    return result


def _raised(buckets: list[int | None], modulus: int) -> int:
    """The product of each bucket to the power of its place, by running products from the top."""
    from gmpy2 import mpz

    running: int = mpz(1)
    total = running
    for held in reversed(buckets[1:]):
        if held is not None:
            running = running * held % modulus
        total = total * running % modulus
    return total


def _window(count: int, longest: int) -> int:
    """The digit length with the fewest multiplications."""
    return min(range(1, 13), key=lambda bits: -(-longest // bits) * (count + 2 * (1 << bits) + bits))


def _inverses(numbers: Sequence[int], modulus: int) -> list[int]:
    """All inverses for the price of one and three multiplications each (Montgomery)."""
    from gmpy2 import invert, mpz

    before, running = [], mpz(1)
    for number in numbers:
        before.append(running)
        running = running * number % modulus
    running = invert(running, modulus)
    found: list[int] = []
    for number, product in zip(reversed(numbers), reversed(before), strict=True):
        found.append(running * product % modulus)
        running = running * number % modulus
    return found[::-1]


@lru_cache(maxsize=8)
def table_of_powers(base: int, bits: int, modulus: int) -> tuple[tuple[int, ...], ...]:
    """Row i holds the base to the powers 0, 1, ... times 2**(i * window), so that a power is one product a row."""
    from gmpy2 import mpz

    window = next(size for size in range(8, 0, -1) if size == 1 or -(-bits // size) << size <= _TABLE_ENTRIES)
    rows = []
    for _ in range(-(-bits // window)):
        row = [mpz(1)]
        for _ in range((1 << window) - 1):
            row.append(row[-1] * base % modulus)
        rows.append(tuple(row))
        base = row[-1] * base % modulus
    return tuple(rows)


def power_from(table: tuple[tuple[int, ...], ...], exponent: int, modulus: int) -> int:
    """The power by one multiplication a row of the table."""
    mask = len(table[0]) - 1
    window = mask.bit_length()
    result = table[0][exponent & mask]
    for row in table[1:]:
        exponent >>= window
        digit = exponent & mask
        if digit:
            result = result * row[digit] % modulus
    return result
