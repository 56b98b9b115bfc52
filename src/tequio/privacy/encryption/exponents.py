"""Powers in bulk: many products of powers of the same numbers, and many powers of one number."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

# Tables of powers of one number are kept below this many entries (of twice the key's length each).
_TABLE_ENTRIES = 1 << 15


def products_of_powers(bases: Sequence[Any], exponents: NDArray[np.int64], modulus: Any) -> list[Any]:
    """For each column the product of the bases, each to its own (signed) power, by Pippenger's buckets."""
    inverses = _inverses(bases, modulus) if (exponents < 0).any() else bases
    return [_product(bases, inverses, exponents[:, column].tolist(), modulus) for column in range(exponents.shape[1])]


def _product(bases: Sequence[Any], inverses: Sequence[Any], exponents: list[int], modulus: Any) -> Any:
    """Digits of all exponents, highest first: a base goes to the bucket of its digit, buckets are raised together."""
    from gmpy2 import mpz, powmod

    pairs = [(bases[row] if power > 0 else inverses[row], abs(power)) for row, power in enumerate(exponents) if power]
    longest = max((power.bit_length() for _, power in pairs), default=0)
    window = _window(len(pairs), longest)
    result, mask = mpz(1), (1 << window) - 1
    for shift in range(-(-longest // window) * window - window, -1, -window):
        if result != 1:
            result = powmod(result, 1 << window, modulus)
        buckets: list[Any] = [None] * (mask + 1)
        for base, power in pairs:
            digit = (power >> shift) & mask
            if digit:
                held = buckets[digit]
                buckets[digit] = base if held is None else held * base % modulus
        result = result * _raised(buckets, modulus) % modulus
    return result


def _raised(buckets: list[Any], modulus: Any) -> Any:
    """The product of each bucket to the power of its place, by running products from the top."""
    from gmpy2 import mpz

    running = total = mpz(1)
    for held in reversed(buckets[1:]):
        if held is not None:
            running = running * held % modulus
        total = total * running % modulus
    return total


def _window(count: int, longest: int) -> int:
    """The digit length with the fewest multiplications."""
    return min(range(1, 13), key=lambda bits: -(-longest // bits) * (count + 2 * (1 << bits) + bits))


def _inverses(numbers: Sequence[Any], modulus: Any) -> list[Any]:
    """All inverses for the price of one and three multiplications each (Montgomery)."""
    from gmpy2 import invert, mpz

    before, running = [], mpz(1)
    for number in numbers:
        before.append(running)
        running = running * number % modulus
    running = invert(running, modulus)
    found: list[Any] = []
    for number, product in zip(reversed(numbers), reversed(before), strict=True):
        found.append(running * product % modulus)
        running = running * number % modulus
    return found[::-1]


@lru_cache(maxsize=8)
def table_of_powers(base: Any, bits: int, modulus: Any) -> tuple[tuple[Any, ...], ...]:
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


def power_from(table: tuple[tuple[Any, ...], ...], exponent: int, modulus: Any) -> Any:
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
