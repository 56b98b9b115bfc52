"""How much an update counts that was made from an old model.

Xie, Koyejo, Gupta: Asynchronous federated optimization, 2019 (section 5.2 has these three functions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Policy = Literal["constant", "polynomial", "hinge"]


@dataclass(frozen=True)
class Staleness:
    """A policy with its exponent or slope `a` and, for the hinge, the staleness `b` up to which nothing is lost."""

    policy: Policy = "polynomial"
    slope: float = 0.5
    patience: float = 4.0

    def weights(self, staleness: NDArray[Any]) -> NDArray[np.float64]:
        """1 for a fresh update; less the more rounds have passed since its model was current."""
        age = np.asarray(staleness, dtype=np.float64)
        if self.policy == "constant":
            return np.ones_like(age)
        if self.policy == "polynomial":
            return np.asarray((age + 1.0) ** -self.slope, dtype=np.float64)
        return np.asarray(1.0 / (self.slope * np.maximum(age - self.patience, 0.0) + 1.0), dtype=np.float64)
