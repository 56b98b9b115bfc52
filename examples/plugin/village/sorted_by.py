"""A partition with feature skew: neighbours by one column are dealt to the same party."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

import tequio as tq


@tq.register("partition", "sorted-by")
@dataclass(frozen=True)
class SortedBy:
    """Feature skew: sort the rows by one column and cut them into stretches of equal size.

    Parameters:
        column: the feature to sort by
        parties: how many parties there are
    """

    column: str
    parties: Annotated[int, Ge(1)] = 5

    def deal(self, dataset: tq.Dataset, rng: np.random.Generator) -> tq.Partition:
        """The first stretch has the smallest values."""
        values = dataset.features[:, dataset.schema.column(self.column)]
        return tq.Partition.of(np.array_split(np.argsort(values, kind="stable"), self.parties))
