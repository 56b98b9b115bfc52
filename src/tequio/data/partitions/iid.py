"""Rows at random, equally many for everyone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partitions.dealing import AtLeastOne, by_party_numbers, deal_counts, draw_counts, require_rows
from tequio.data.partitions.strata import strata
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


@register("partition", "iid")
@dataclass(frozen=True)
class Iid:
    """Deal rows at random; sizes differ by at most one and, when stratified, so do the counts of each class.

    All rows are dealt, each to one party, unless `replacement` is set.

    Parameters:
        parties: how many parties there are
        stratified: deal each class separately, so that every party has the same mix of classes
        replacement: parties draw independently of each other, so that one row may be with several parties (never twice
            with one)
        minimum_rows: fewest rows a party may have
    """

    parties: AtLeastOne = 10
    stratified: bool = False
    replacement: bool = False
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give every row to a party."""
        require_rows(dataset, self.parties, self.minimum_rows)
        codes = strata(dataset).codes if self.stratified else np.zeros(len(dataset), np.int64)
        classes = int(codes.max()) + 1
        # One round of the table after another across the class borders keeps both kinds of counts within one.
        turns = np.sort(codes) * self.parties + np.arange(len(codes)) % self.parties
        counts = np.bincount(turns, minlength=classes * self.parties).reshape(classes, self.parties)
        if self.replacement:
            return draw_counts(codes, counts, rng)
        return by_party_numbers(deal_counts(codes, counts, rng), self.parties)
