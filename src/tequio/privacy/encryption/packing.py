"""Many signed numbers in one: number j times 2**(j * slot). Sums of packed numbers are packed sums.

A slot of `s` bits keeps its number apart from its neighbours while |number| < 2**(s-1). A number of `b` bits
(|number| <= 2**b) therefore leaves `s - 2 - b` guard bits: 2**(s - 2 - b) such numbers can be summed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
