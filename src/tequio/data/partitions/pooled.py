"""All rows in one place, for the centralised baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partition import Partition
from tequio.data.partitions.dealing import require_rows
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset


@register("partition", "pooled")
@dataclass(frozen=True)
class Pooled:
    """One party holds everything, in the order of the dataset: the centralised baseline."""

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give all rows to one party."""
        require_rows(dataset, 1, 1)
        return Partition.of([np.arange(len(dataset))], names=("all",))
