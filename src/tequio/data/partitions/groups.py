"""Partitions that follow groups in the data: who a row belongs to, which world it comes from, who behaves alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Interval

from tequio.data.partition import NOBODY, AtLeastOne, by_party_numbers, shuffled_by_class
from tequio.errors import DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Array, Dataset
    from tequio.data.partition import Partition


@register("partition", "natural", paper="Caldas et al., 2018")
@dataclass(frozen=True)
class Natural:
    """One party for each group id in the data (writer, course, hospital), called by that id.

    All rows are dealt, each to one party, unless small parties are dropped.

    Parameters:
        column: the feature that holds the group id; the dataset's own groups when left out
        minimum_rows: fewest rows a party may have
        small: what to do with a party below the minimum: 'error', or 'drop' it with its rows
    """

    column: str | None = None
    minimum_rows: AtLeastOne = 1
    small: Literal["error", "drop"] = "error"

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give each row to the party it belongs to."""
        names, codes = row_groups(dataset, self.column)
        sizes = np.bincount(codes, minlength=len(names))
        kept = sizes >= self.minimum_rows if self.small == "drop" else np.ones(len(names), bool)
        if not kept.any():
            raise DataError(f"none of the {len(names)} groups of '{dataset.name}' has {self.minimum_rows} rows",
                            remedy=f"set data.partition.minimum_rows to at most {sizes.max(initial=0)}")
        numbers = np.where(kept, np.cumsum(kept) - 1, NOBODY)
        partition = by_party_numbers(numbers[codes], int(kept.sum()),
                                     names=tuple(name for name, keep in zip(names, kept, strict=True) if keep))
        _check(partition, self.minimum_rows)
        return partition


def _check(partition: Partition, minimum_rows: int) -> None:
    try:
        partition.check(minimum_rows)
    except DataError as cause:
        raise DataError(cause.message, remedy="set data.partition.small = 'drop' to leave them out, or a smaller "
                        "data.partition.minimum_rows") from None


@register("partition", "domain")
@dataclass(frozen=True)
class Domain:
    """Domain shift: each party takes random rows of one domain; a domain may have several parties.

    Each row is with one party at most. All rows of the domains in use are dealt, unless `rows` says how many. A party
    is called after its domain, which is also its category.

    Parameters:
        column: the feature that names the domain; the dataset's own groups when left out
        parties_per_domain: how many parties share each domain, for all alike or by name, as in { mnist = 4, usps = 1 };
            domains that are not named have no party, and parties come in the order of the names
        rows: how many rows each party takes; all there are, shared equally, when left out
        minimum_rows: fewest rows a party may have
    """

    column: str | None = None
    parties_per_domain: AtLeastOne | Mapping[str, AtLeastOne] = 1
    rows: AtLeastOne | None = None
    minimum_rows: AtLeastOne = 1

    def deal(self, dataset: Dataset, rng: np.random.Generator) -> Partition:
        """Give the rows of each domain to its parties."""
        domains, codes = row_groups(dataset, self.column)
        wanted = self._wanted(domains)
        party_of_row = np.full(len(codes), NOBODY)
        rows_of = np.split(shuffled_by_class(codes, rng), np.cumsum(np.bincount(codes, minlength=len(domains)))[:-1])
        first = 0
        for domain, parties in wanted.items():
            rows = self._take(domain, parties, rows_of[domains.index(domain)])
            party_of_row[rows] = first + np.arange(len(rows)) % parties
            first += parties
        partition = by_party_numbers(party_of_row, first, names=_domain_names(wanted), categories=tuple(
            domain for domain, parties in wanted.items() for _ in range(parties)))
        partition.check(self.minimum_rows)
        return partition

    def _wanted(self, domains: tuple[str, ...]) -> dict[str, int]:
        if not isinstance(self.parties_per_domain, Mapping):
            return dict.fromkeys(domains, self.parties_per_domain)
        for domain in self.parties_per_domain:
            if domain not in domains:
                raise DataError(f"there is no domain '{domain}' in the data", remedy=nearest(domain, domains))
        return dict(self.parties_per_domain)

    def _take(self, domain: str, parties: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.rows is None:
            return rows
        if len(rows) < parties * self.rows:
            raise DataError(f"domain '{domain}' has {len(rows)} rows, but {parties} parties take {self.rows} each",
                            remedy=f"set data.partition.rows to at most {len(rows) // parties}, or use fewer parties")
        return rows[:parties * self.rows]


def _domain_names(wanted: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(domain if parties == 1 else f"{domain}-{number}"
                 for domain, parties in wanted.items() for number in range(parties))


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
                                names=_band_names(categories))

    def _is_positive(self, dataset: Dataset) -> NDArray[np.bool_]:
        target = dataset.schema.target
        if target.kind != "classes":
            raise DataError(f"the partition 'bands' needs classes, '{dataset.name}' has a target of kind "
                            f"'{target.kind}'", remedy="choose another partition")
        positive = target.names[-1] if self.positive is None else self.positive
        if positive not in target.names:
            raise DataError(f"there is no class '{positive}'", remedy=nearest(positive, target.names))
        return np.asarray(dataset.target == target.names.index(positive))


def _band_names(categories: list[str]) -> tuple[str, ...]:
    return tuple(f"{band}-{number - categories.index(band)}" for number, band in enumerate(categories))


def row_groups(dataset: Dataset, column: str | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Sorted group names and each row's group number, from a named column or the dataset's own groups."""
    values = dataset.groups if column is None else _column(dataset, column)
    names, codes = np.unique(values, return_inverse=True)
    return tuple(_shown(dataset, column, name) for name in names.tolist()), codes.astype(np.int64)


def _column(dataset: Dataset, column: str) -> Array:
    values = dataset.select([dataset.schema.column(column)]).features
    return np.asarray(values.toarray() if dataset.is_sparse else values)[:, 0]


def _shown(dataset: Dataset, column: str | None, value: float | str) -> str:
    domain = dataset.schema.features[dataset.schema.column(column)].domain if column is not None else None
    if domain is not None:
        return domain[int(value)]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
