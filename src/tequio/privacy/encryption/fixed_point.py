"""Real numbers as whole ones: `value = number * 2**-fraction`, with a declared range that is never left unnoticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tequio.errors import EncryptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

# Beyond this many bits a float64 times a power of two no longer fits the 64-bit integers it is rounded to.
_WIDEST = 62


class FixedPoint(NamedTuple):
    """A declared range: `fraction` bits after the point, and |value| at most 2**whole."""

    fraction: int
    whole: int

    @property
    def bits(self) -> int:
        """How many bits the magnitude of a number may have."""
        return self.fraction + self.whole


def to_numbers(values: ArrayLike, form: FixedPoint, what: str) -> NDArray[np.int64]:
    """The values as whole numbers, rounded to the nearest; values that the range cannot hold are refused."""
    if not 0 <= form.bits <= _WIDEST:
        raise EncryptionError(f"a fixed-point form of {form.bits} bits cannot be made of 64-bit floats",
                              remedy=f"let fraction and whole bits sum to at most {_WIDEST}")
    array = np.asarray(values, dtype=np.float64)
    largest = float(np.abs(array).max(initial=0.0))
    if not largest <= 2.0 ** form.whole:
        told = "not finite" if not np.isfinite(largest) else f"as large as {largest:.4g}"
        raise EncryptionError(f"{what} overflow the fixed-point range: they are {told}, and the range ends at "
                              f"{2.0 ** form.whole:.4g}", remedy="standardise the columns, lower the learning rate, or "
                                                                 "widen the range")
    return np.rint(np.ldexp(array, form.fraction)).astype(np.int64)


def to_values(numbers: Iterable[int], fraction: int) -> NDArray[np.float64]:
    """Whole numbers of any size as the floats nearest to them."""
    # Division of Python integers rounds correctly however long they are; a shifted float would overflow.
    return np.array([int(number) / (1 << fraction) for number in numbers], dtype=np.float64)


def growth(count: int) -> int:
    """How many bits a sum of so many numbers may be longer than each of them."""
    return max(count - 1, 0).bit_length()


def room(bits: int) -> int:
    """How many bytes a signed number of magnitude at most 2**bits needs."""
    return (bits + 2 + 7) // 8


def to_bytes(numbers: Sequence[Any], width: int, *, signed: bool = False) -> NDArray[np.uint8]:
    """Whole numbers as an array of bytes that may cross: one row each, little end first."""
    joined = b"".join(int(number).to_bytes(width, "little", signed=signed) for number in numbers)
    return np.frombuffer(joined, np.uint8).reshape(len(numbers), width)


def from_bytes(rows: NDArray[np.uint8], *, signed: bool = False) -> list[int]:
    """The reverse of `to_bytes`."""
    content, width = np.ascontiguousarray(rows).tobytes(), rows.shape[1]
    return [int.from_bytes(content[start:start + width], "little", signed=signed)
            for start in range(0, len(content), width)]
