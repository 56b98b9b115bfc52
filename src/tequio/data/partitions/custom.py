"""A partition that the user writes as one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.components import named_function
from tequio.data.partitions.dealing import NOBODY, AtLeastOne, by_party_numbers
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


@register("partition", "custom", example='[data.partition]\nname = "custom"\nfunction = "my_rules:by_district"\n')
@dataclass(frozen=True)
class Custom:
    """Ask your own function `(dataset, rng) -> a party number for each row`; -1 leaves a row out.

    Each row is with one party at most.

    Parameters:
        function: the function, or where it is: 'package.module:function'
        minimum_rows: fewest rows a party may have
    """

    function: str | Callable[..., Any]
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row to the party that the function says."""
        party_of_row = np.asarray(named_function(self.function, "partition function")(dataset, rng))
        _check(party_of_row, len(dataset))
        partition = by_party_numbers(party_of_row.astype(np.int64), int(party_of_row.max(initial=NOBODY)) + 1)
        partition.check(self.minimum_rows)
        return partition


def _check(party_of_row: NDArray[Any], rows: int) -> None:
    remedy = "return one whole number a row: 0 for the first party, -1 for nobody"
    if party_of_row.shape != (rows,):
        raise DataError(f"the partition function returned shape {party_of_row.shape} for {rows} rows", remedy=remedy)
    if party_of_row.dtype.kind not in "iu":
        raise DataError(f"the partition function returned values of type {party_of_row.dtype}", remedy=remedy)
    if not rows or party_of_row.max() < 0 or party_of_row.min() < NOBODY:
        raise DataError("the partition function gave no row to a party" if not rows or party_of_row.max() < 0
                        else f"the partition function returned the party number {party_of_row.min()}", remedy=remedy)
