"""Where random bits come from: the operating system, or a stream where a transcript must be repeatable."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Source = Callable[[int], int]

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


def below(limit: int, draw: Source) -> int:
    """A number in [0, limit), each as likely as the others."""
    while (number := draw(limit.bit_length())) >= limit:
        pass
    return number


def signed(bits: int, draw: Source) -> int:
    """A number in [-2**bits, 2**bits)."""
    return draw(bits + 1) - (1 << bits)
