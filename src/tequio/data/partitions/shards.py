"""The pathological split: a party knows only a few classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partitions.dealing import (
    AtLeastOne,
    by_party_numbers,
    choose_classes,
    cut_by_weights,
    deal_counts,
    require_rows,
    shuffled_by_class,
)
from tequio.data.partitions.strata import strata
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


@register("partition", "shards", paper="McMahan et al., 2017")
@dataclass(frozen=True)
class Shards:
    """Every party holds rows of a few classes only (the pathological split).

    Each party gets `classes_per_party` different classes, all classes are used equally often (give or take one), and
    a class is cut equally among its holders. Rows of a class that nobody holds (fewer hands than classes) are not
    dealt. The paper instead sorts all rows by label and cuts them into equal shards, some of which straddle two
    classes: that is `equal_sizes`.

    Parameters:
        parties: how many parties there are
        classes_per_party: how many classes a party holds; with `equal_sizes`, how many shards
        equal_sizes: cut all rows into equal shards as in the paper; all rows are dealt, some shards have two classes
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    classes_per_party: AtLeastOne = 2
    equal_sizes: bool = False
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give the rows of each class to the parties that hold it."""
        require_rows(dataset, self.parties, self.minimum_rows)
        codes = np.unique(strata(dataset).codes, return_inverse=True)[1]
        party_of_row = self._equal_shards(codes, rng) if self.equal_sizes else self._whole_classes(codes, rng)
        partition = by_party_numbers(party_of_row, self.parties)
        partition.check(self.minimum_rows)
        return partition

    def _whole_classes(self, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        class_sizes = np.bincount(codes)
        held = choose_classes(self.parties, len(class_sizes), self.classes_per_party, rng)
        return deal_counts(codes, cut_by_weights(class_sizes, held.astype(float)), rng)

    def _equal_shards(self, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        shards = self.parties * self.classes_per_party
        shard_of_place = np.arange(len(codes)) * shards // len(codes)
        party_of_shard = rng.permutation(np.arange(shards) % self.parties)
        party_of_row = np.empty(len(codes), np.int64)
        party_of_row[shuffled_by_class(codes, rng)] = party_of_shard[shard_of_place]
        return party_of_row
