"""Very many parties out of a dataset of ordinary size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partition import Partition
from tequio.data.partitions.dealing import AtLeastOne, require_rows
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset


@register("partition", "sampled")
@dataclass(frozen=True)
class Sampled:
    """Every party draws its rows at random with replacement: a population of any size from any dataset.

    A row may be with many parties, and twice with one. A million parties cost 4 bytes a row.

    Parameters:
        parties: how many parties there are
        rows: how many rows each party draws
    """

    parties: AtLeastOne = 1000
    rows: AtLeastOne = 50

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Draw rows for every party."""
        require_rows(dataset, 1, 1)
        small = len(dataset) <= np.iinfo(np.int32).max
        drawn = rng.integers(0, len(dataset), self.parties * self.rows, dtype=np.int32 if small else np.int64)
        return Partition(drawn, np.arange(self.parties + 1, dtype=np.int64) * self.rows)
