"""Numbers as whole numbers modulo a power of two, so that sums are exact whatever their order.

Each party multiplies its update with its share of the weights first. Shares sum to one, so that the sum of all is no
longer than the largest entry allowed, and cannot overflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Ring:
    """Whole numbers modulo 2^bits that stand for multiples of 1/scale."""

    bits: int
    scale: float
    largest: float

    @classmethod
    def of(cls, bits: int, largest: float, parties: int) -> Ring:
        """The finest scale with which the weighted mean of so many parties' entries fits, roundings included."""
        # A millionth less, because shares and products are themselves rounded to 53 bits.
        room = 2.0 ** (bits - 1) * (1.0 - 2.0 ** -20) - parties
        if room < largest:
            raise ConfigError(f"the sum of {parties} parties' entries of up to {largest:g} does not fit into {bits} "
                              "bits", remedy="lower `largest` of the stage or raise its `bits`")
        return cls(bits, 2.0 ** floor(log2(room / largest)), largest)

    @property
    def kind(self) -> Any:
        """The type of the ring's numbers."""
        return np.uint32 if self.bits == 32 else np.uint64

    def encoded(self, values: NDArray[Any], share: float) -> NDArray[Any]:
        """share * values as numbers of the ring; refuses entries that are too large or not finite."""
        if not 0 <= share <= 1:
            raise DataError(f"a share of {share} in a weighted mean is not between 0 and 1")
        size = float(np.abs(values).max()) if values.size else 0.0
        if not size <= self.largest:
            raise DataError(f"an entry of the update is {size:.3g}, and {self.largest:g} is the largest that the sum "
                            "has room for", remedy="clip updates, or raise `largest` of the stage")
        scaled: NDArray[np.float64] = np.rint(values.astype(np.float64) * (share * self.scale))
        return scaled.astype(np.int64).astype(self.kind)

    def signed(self, total: NDArray[Any]) -> NDArray[np.int64]:
        """The numbers of the ring as whole numbers around nought; over scale and shares they are a weighted mean."""
        return total.view(np.int32 if self.bits == 32 else np.int64).astype(np.int64)
