"""Institutions of people who are alike: groups sorted by a rate, then cut into parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Interval

from tequio.data.partitions.dealing import AtLeastOne, by_party_numbers
from tequio.data.partitions.groups import row_groups
from tequio.errors import DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition

BANDS = ("low", "medium", "high")


@register("partition", "bands", paper="Fachola et al., 2023")
@dataclass(frozen=True)
class Bands:
    """Sort groups (such as students) into bands by their rate of one class, and cut each band into parties.

    A group's rate is the share of its rows that are of the class `positive`. Rates below `low` and above `high` make
    the outer bands. Inside a band the groups are shuffled and cut into parties of `groups_per_party`, the last one
    smaller. All rows are dealt, and all rows of a group go to one party. With `low = 0` and `high = 1` there is one
    band, and the groups are dealt at random: the homogeneous counterpart.

    Parameters:
        positive: the class whose rate is taken; the last one of the schema when left out
        low: rates below this are in the low band
        high: rates above this are in the high band
        groups_per_party: how many groups make a party
        column: the feature that holds the group id; the dataset's own groups when left out
    """

    positive: str | None = None
    low: Annotated[float, Interval(ge=0, le=1)] = 0.2
    high: Annotated[float, Interval(ge=0, le=1)] = 0.8
    groups_per_party: AtLeastOne = 1000
    column: str | None = None

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give all rows of a group to one party of its band."""
        if self.low > self.high:
            raise DataError(f"the medium band from {self.low} to {self.high} is empty",
                            remedy="set data.partition.low below data.partition.high")
        names, group_of_row = row_groups(dataset, self.column)
        totals = np.bincount(group_of_row, minlength=len(names))
        rates = np.bincount(group_of_row, weights=self._is_positive(dataset), minlength=len(names)) / totals
        band_of_group = np.where(rates < self.low, 0, np.where(rates > self.high, 2, 1))
        party_of_group = np.empty(len(names), np.int64)
        categories: list[str] = []
        for band, band_name in enumerate(BANDS):
            members = rng.permutation(np.flatnonzero(band_of_group == band))
            party_of_group[members] = len(categories) + np.arange(len(members)) // self.groups_per_party
            categories += [band_name] * -(-len(members) // self.groups_per_party)
        return by_party_numbers(party_of_group[group_of_row], len(categories), categories=tuple(categories),
                                names=_names(categories))

    def _is_positive(self, dataset: Dataset) -> NDArray[np.bool_]:
        target = dataset.schema.target
        if target.kind != "classes":
            raise DataError(f"the partition 'bands' needs classes, '{dataset.name}' has a target of kind "
                            f"'{target.kind}'", remedy="choose another partition")
        positive = target.names[-1] if self.positive is None else self.positive
        if positive not in target.names:
            raise DataError(f"there is no class '{positive}'", remedy=nearest(positive, target.names))
        return np.asarray(dataset.target == target.names.index(positive))


def _names(categories: list[str]) -> tuple[str, ...]:
    return tuple(f"{band}-{number - categories.index(band)}" for number, band in enumerate(categories))
