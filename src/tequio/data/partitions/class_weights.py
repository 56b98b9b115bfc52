"""Each class is cut in nearly equal random shares, among all parties or among those that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt

from tequio.data.partitions.dealing import (
    AtLeastOne,
    by_party_numbers,
    choose_classes,
    cut_by_weights,
    deal_counts,
    draw_counts,
    require_rows,
)
from tequio.data.partitions.strata import strata
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


@register("partition", "class_weights", paper="Shamsian et al., 2021")
@dataclass(frozen=True)
class ClassWeights:
    """Cut each class by weights U(low, high) per class and party, normalised over the parties.

    With `classes_per_party` each party first chooses that many different classes (all classes used equally often,
    give or take one) and has weight 0 for the others; rows of a class that nobody chose are not dealt. Without it
    every party has every class in nearly equal parts, and all rows are dealt. A row is with one party, unless
    `replacement` is set.

    Parameters:
        parties: how many parties there are
        classes_per_party: how many classes a party chooses (2 in the paper); all of them when left out
        low: smallest weight before normalising
        high: largest weight before normalising
        replacement: parties draw independently of each other, so that one row may be with several parties (never twice
            with one)
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    classes_per_party: AtLeastOne | None = None
    low: Annotated[float, Gt(0)] = 0.4
    high: Annotated[float, Ge(0)] = 0.6
    replacement: bool = False
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give the rows of each class to the parties by weight."""
        require_rows(dataset, self.parties, self.minimum_rows)
        if self.high < self.low:
            raise DataError(f"class weights from {self.low} to {self.high}: the range is empty",
                            remedy="set data.partition.high above data.partition.low")
        present, codes = np.unique(strata(dataset).codes, return_inverse=True)
        weights = rng.uniform(self.low, self.high, (len(present), self.parties))
        if self.classes_per_party is not None:
            weights *= choose_classes(self.parties, len(present), self.classes_per_party, rng)
        counts = cut_by_weights(np.bincount(codes), weights)
        partition = (draw_counts(codes, counts, rng) if self.replacement
                     else by_party_numbers(deal_counts(codes, counts, rng), self.parties))
        partition.check(self.minimum_rows)
        return partition
