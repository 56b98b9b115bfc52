"""The same algebra without encryption, for tests and to price the encryption. It hides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Interval

from tequio.privacy.encryption.exact import ExactKey, ExactSecret
from tequio.privacy.encryption.numbers import FixedPoint, Origin
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.numbers import Source

# Columns are multiplied in pieces of so many bits, whose sums over 2**17 rows are exact in 64 bits with factors of 24.
_PIECE = 22


@dataclass(frozen=True)
class PlainGroup:
    """Whole numbers as they are."""

    capacity: int

    @property
    def fingerprint(self) -> str:
        """There is but one key."""
        return "plain"

    def to_payload(self) -> Payload:
        """Says that there is none."""
        return {"plain": self.capacity}

    def encrypt(self, number: int, draw: Source) -> int:
        """The number itself."""
        return number

    def add(self, first: int, second: int) -> int:
        """The sum."""
        return first + second

    def negate(self, given: int) -> int:
        """The number with the other sign."""
        return -given

    def times(self, given: int, factor: int) -> int:
        """The multiple."""
        return given * factor

    def combine(self, given: Sequence[int], factors: NDArray[np.int64]) -> list[int]:
        """For each column the sum of the numbers, each times its factor: exact, by pieces that 64 bits can hold."""
        if len(given) * float(np.abs(factors).max(initial=0)) >= 2.0 ** (62 - _PIECE):
            return [sum(map(int.__mul__, given, column)) for column in factors.T.tolist()]
        longest = max((abs(number).bit_length() for number in given), default=0)
        sums, mask = [0] * factors.shape[1], (1 << _PIECE) - 1
        for shift in range(0, longest + 1, _PIECE):
            # The highest piece keeps the sign: shifting is division that rounds down.
            last = shift + _PIECE > longest
            piece = np.array([number >> shift if last else number >> shift & mask for number in given], np.int64)
            sums = [total + (part << shift) for total, part in zip(sums, (piece @ factors).tolist(), strict=True)]
        return sums

    def zero(self) -> int:
        """Nought."""
        return 0

    def width(self, bits: int) -> int:
        """As many bytes as numbers of that many bits need."""
        return (bits + 8) // 8

    def check(self, given: Sequence[int], whose: str) -> None:
        """Any number will do."""

    def to_number(self, given: int) -> int:
        """The number itself."""
        return given

    def from_number(self, number: int) -> int:
        """The number itself."""
        return number


@dataclass(frozen=True)
class Clear:
    """The secret of a scheme without one."""

    capacity: int

    def open(self, ciphertext: int) -> int:
        """The number itself."""
        return ciphertext

    def to_payload(self) -> Payload:
        """Says that there is no key."""
        return {"plain": self.capacity}


@register("encryption", "plain")
@dataclass(frozen=True)
class Plain:
    """No encryption: the same fixed-point numbers in clear, bit for bit what 'paillier' opens to.

    Parameters:
        bits: how many bits a number may have, as the key's length in 'paillier'
        fraction_bits: bits after the point of encrypted values
        whole_bits: encrypted values are at most 2 to this power
        factor_bits: bits after the point of known factors (columns of data)
        factor_whole_bits: known factors are at most 2 to this power
        randomness: where pads come from: the operating system, or streams (repeatable)
    """

    bits: Annotated[int, Ge(64)] = 3072
    fraction_bits: Annotated[int, Interval(ge=1, le=48)] = 32
    whole_bits: Annotated[int, Interval(ge=0, le=24)] = 12
    factor_bits: Annotated[int, Interval(ge=1, le=48)] = 16
    factor_whole_bits: Annotated[int, Interval(ge=0, le=24)] = 8
    randomness: Origin = "system"
    openings: ClassVar[int] = 0

    def generate(self, draw: Source) -> ExactSecret:
        """The only key."""
        return ExactSecret(self._key(), Clear(self.bits - 2))

    def public_key(self, payload: Payload) -> ExactKey:
        """The only key."""
        return self._key()

    def secret_key(self, payload: Payload) -> ExactSecret:
        """The only key."""
        return ExactSecret(self._key(), Clear(self.bits - 2))

    def _key(self) -> ExactKey:
        return ExactKey(PlainGroup(self.bits - 2), FixedPoint(self.fraction_bits, self.whole_bits),
                        FixedPoint(self.factor_bits, self.factor_whole_bits), signed_content=True)
