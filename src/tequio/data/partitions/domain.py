"""Domain shift: parties whose rows come from different worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.data.partitions.dealing import NOBODY, AtLeastOne, by_party_numbers, shuffled_by_class
from tequio.data.partitions.groups import row_groups
from tequio.errors import DataError, nearest
from tequio.registry import register

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition


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
        partition = by_party_numbers(party_of_row, first, names=_names(wanted), categories=tuple(
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


def _names(wanted: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(domain if parties == 1 else f"{domain}-{number}"
                 for domain, parties in wanted.items() for number in range(parties))
