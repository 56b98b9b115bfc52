"""Who is who in a vertical federation: one party with the labels, parties with columns, perhaps one with a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.federation.federation import Federation

_REMEDY = "deal the data by columns: [data.partition] name = 'columns'"


@dataclass(frozen=True)
class Roles:
    """Party numbers by role. The label holder may have columns of its own, and mostly has."""

    label_holder: int
    holders: tuple[int, ...]
    key_holder: int | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """The parties with columns that do not know the labels."""
        return tuple(party for party in self.holders if party != self.label_holder)

    @property
    def everyone(self) -> tuple[int, ...]:
        """All who must be there: holders of data and, where there is one, the key holder."""
        return self.holders if self.key_holder is None else (*self.holders, self.key_holder)

    def of(self, party: int) -> str:
        """A party's role in words."""
        names = {self.label_holder: "label holder", self.key_holder: "key holder"}
        return names.get(party, "feature party")


def roles_of(federation: Federation) -> Roles:
    """The roles that follow from how the data is dealt; anything but a vertical federation is refused."""
    partition = federation.population.partition
    if partition.columns is None or partition.holds_target is None:
        raise ConfigError("this algorithm is for parties that hold different columns of the same rows", remedy=_REMEDY)
    holding = [party for party, holds in enumerate(partition.holds_target) if holds]
    if len(holding) != 1:
        raise ConfigError(f"{len(holding)} parties hold the target, and a vertical federation has one label holder",
                          remedy="use data with a target, dealt by the partition 'columns'")
    holders = tuple(party for party in range(len(federation)) if party != partition.key_holder)
    return Roles(holding[0], holders, partition.key_holder)


def require_key_holder(federation: Federation) -> int:
    """The key holder; an error that says how to have one where there is none."""
    holder = federation.population.partition.key_holder
    if holder is None:
        raise ConfigError("this algorithm needs a party that keeps the private key and holds no rows",
                          remedy="set data.partition.key_holder = true")
    return holder


def columns_of(federation: Federation, party: int) -> NDArray[np.int64]:
    """Which columns of the agreed schema a party holds."""
    lists = federation.population.partition.columns
    return np.empty(0, np.int64) if lists is None else lists[party]
