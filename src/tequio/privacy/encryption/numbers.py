"""The numbers that exact schemes encrypt: real ones as whole ones, several packed in one, and random ones.

A fixed-point form has a declared range that is never left unnoticed: `value = number * 2**-fraction`.

Packed numbers are number j times 2**(j * slot), so that sums of packed numbers are packed sums. A slot of `s` bits
keeps its number apart from its neighbours while |number| < 2**(s-1). A number of `b` bits (|number| <= 2**b) therefore
leaves `s - 2 - b` guard bits: 2**(s - 2 - b) such numbers can be summed.

Random bits come from the operating system, or from a stream where a transcript must be repeatable.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tequio.errors import EncryptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Source = Callable[[int], int]


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


def to_bytes(numbers: Sequence[int], width: int, *, signed: bool = False) -> NDArray[np.uint8]:
    """Whole numbers as an array of bytes that may cross: one row each, little end first."""
    joined = b"".join(int(number).to_bytes(width, "little", signed=signed) for number in numbers)
    return np.frombuffer(joined, np.uint8).reshape(len(numbers), width)


def from_bytes(rows: NDArray[np.uint8], *, signed: bool = False) -> list[int]:
    """The reverse of `to_bytes`."""
    content, width = np.ascontiguousarray(rows).tobytes(), rows.shape[1]
    return [int.from_bytes(content[start:start + width], "little", signed=signed)
            for start in range(0, len(content), width)]


def pack(numbers: Sequence[int], slot: int) -> int:
    """The numbers side by side, first one lowest."""
    packed = 0
    for number in reversed(numbers):
        packed = (packed << slot) + int(number)
    return packed


def unpack(packed: int, slot: int, count: int) -> list[int]:
    """The numbers back. What is left above the last one stays in it, so a number that ran over is seen by its size."""
    numbers = []
    half, mask = 1 << (slot - 1), (1 << slot) - 1
    for _ in range(count - 1):
        low = packed & mask
        signed = low - (1 << slot) if low >= half else low
        numbers.append(signed)
        packed = (packed - signed) >> slot
    return [*numbers, packed]


def slots_in(capacity: int, slot: int) -> int:
    """How many slots fit into a plaintext whose magnitude may have so many bits."""
    return capacity // slot


Origin = Literal["system", "seeded"]


def source(origin: Origin, generator: np.random.Generator) -> Source:
    """So many random bits for a number of bits. Streams are for simulations only: their seeds are no secret."""
    return secrets.randbits if origin == "system" else seeded(generator)


def seeded(generator: np.random.Generator) -> Source:
    """Random bits that are the same for the same generator."""

    def draw(bits: int) -> int:
        length = -(-bits // 8)
        return int.from_bytes(generator.bytes(length), "little") >> (8 * length - bits)

    return draw


def uniforms(count: int, draw: Source) -> NDArray[np.float64]:
    """Numbers between 0 and 1, both left out."""
    words = np.frombuffer(draw(64 * count).to_bytes(8 * count, "little"), dtype="<u8")
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0 ** -52


def gaussians(count: int, draw: Source) -> NDArray[np.float64]:
    """Numbers from the standard normal law, by inversion."""
    from scipy.special import ndtri

    return np.asarray(ndtri(uniforms(count, draw)))


def signed(bits: int, draw: Source) -> int:
    """A number in [-2**bits, 2**bits)."""
    return draw(bits + 1) - (1 << bits)
