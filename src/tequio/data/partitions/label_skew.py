"""Label skew: every party has its own mix of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Gt

from tequio.data.partition import (
    AtLeastOne,
    by_party_numbers,
    choose_classes,
    cut_by_weights,
    deal_counts,
    draw_counts,
    require_rows,
    shuffled_by_class,
    strata,
    top_up,
)
from tequio.errors import DataError
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


REDRAWS = 50


@register("partition", "dirichlet", paper="Yurochkin et al., 2019")
@dataclass(frozen=True)
class Dirichlet:
    """Label skew: cut each class among the parties in shares drawn from a Dirichlet distribution.

    All rows are dealt, each to one party. Shares are drawn again while a party has too few rows; after 50 draws the
    last one is mended by moving random rows from the largest parties. A numeric target is cut at its deciles.

    Parameters:
        parties: how many parties there are
        alpha: concentration; 0.1 leaves most parties with a class or two, 100 is nearly IID
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    alpha: Annotated[float, Gt(0)] = 0.5
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give every row to a party."""
        require_rows(dataset, self.parties, self.minimum_rows)
        codes = strata(dataset).codes
        counts = self._draw(np.bincount(codes), rng)
        party_of_row = top_up(deal_counts(codes, counts, rng), self.parties, self.minimum_rows, rng)
        return by_party_numbers(party_of_row, self.parties)

    def _draw(self, class_sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        for _ in range(REDRAWS):
            shares = rng.dirichlet(np.full(self.parties, self.alpha), size=len(class_sizes))
            counts = cut_by_weights(class_sizes, shares)
            if counts.sum(axis=0).min() >= self.minimum_rows:
                break
        return counts


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


@register("partition", "class-weights", paper="Shamsian et al., 2021")
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
