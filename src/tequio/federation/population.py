"""Parties as index arrays over shared data, or as far as one machine knows them; views are made when they are asked."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.data.dataset import Dataset, Source
from tequio.data.partition import Partition
from tequio.data.partitions.strata import strata
from tequio.data.splits import Split, split_rows
from tequio.errors import DataError, PermissionDenied
from tequio.federation.rng import stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tequio.data.schema import Schema

RESERVED_NAMES = ("coordinator", "server", "aggregator")
_REMEMBERED_VIEWS = 2048


@dataclass(frozen=True)
class PartyData:
    """One party's own rows, split for training, validation and testing."""

    train: Dataset
    validation: Dataset
    test: Dataset


@dataclass(frozen=True, eq=False)
class Population:
    """Who the parties are and what each holds. `overrides` are per-party settings (its own hyper-parameters)."""

    dataset: Dataset
    partition: Partition
    split: Split = field(default_factory=Split)
    seed: int = 0
    overrides: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    _views: OrderedDict[int, PartyData] = field(default_factory=OrderedDict, repr=False)

    def __post_init__(self) -> None:
        for name in RESERVED_NAMES:
            if self.partition.names and name in self.partition.names:
                raise DataError(f"a party may not be called '{name}': the name is reserved", remedy="rename the party")

    def __len__(self) -> int:
        return len(self.partition)

    @property
    def schema(self) -> Schema:
        """Schema of the whole data."""
        return self.dataset.schema

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows each party holds, before its own split."""
        return self.partition.sizes

    def name(self, party: int) -> str:
        """What the party is called."""
        return self.partition.name(party)

    def index(self, name: str) -> int:
        """The number of the party with that name."""
        if self.partition.names is not None:
            if name in self.partition.names:
                return self.partition.names.index(name)
        elif name.isdigit() and int(name) < len(self):
            return int(name)
        raise DataError(f"there is no party called '{name}'", remedy=f"there are {len(self)} parties")

    def view(self, party: int) -> PartyData:
        """One party's data, split by its own stream; recently used views are remembered."""
        known = self._views.get(party)
        if known is None:
            known = self._views[party] = self._split(party)
            if len(self._views) > _REMEMBERED_VIEWS:
                self._views.popitem(last=False)
        return known

    def whole(self, party: int) -> Dataset:
        """One party's rows before its split."""
        return self.partition.view(self.dataset, party)

    def _split(self, party: int) -> PartyData:
        mine = self.whole(party)
        if not self.split.validation and not self.split.test:
            nothing = mine.take(np.empty(0, dtype=np.int64))
            return PartyData(mine, nothing, nothing)
        if self.partition.columns is not None:
            parts = self._split_by_row(self.partition.party_rows(party))
        else:
            labels = strata(mine).codes if self.split.stratify and mine.schema.target.kind != "none" else None
            parts = split_rows(len(mine), self.split, stream(self.seed, "split", party=party), labels)
        return PartyData(*(mine.take(rows) for rows in parts))

    def _split_by_row(self, rows: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], ...]:
        """Parties that hold different columns of one row put it into the same part."""
        luck = stream(self.seed, "split").random(len(self.dataset))[rows]
        test = luck < self.split.test
        validation = ~test & (luck < self.split.test + self.split.validation)
        return tuple(np.flatnonzero(part) for part in (~test & ~validation, validation, test))


def alone(dataset: Dataset, party: int, name: str, split: Split, seed: int,
          overrides: Mapping[str, Any]) -> Population:
    """A population as one real party knows it: all rows are its own, and others are there in number only."""
    offsets = np.zeros(party + 2, dtype=np.int64)
    offsets[-1] = len(dataset)
    names = (*map(str, range(party)), name)
    return Population(dataset, Partition(np.arange(len(dataset)), offsets, names), split, seed, {party: overrides})


def elsewhere(schema: Schema, names: Sequence[str], sizes: Sequence[int], split: Split, seed: int,
              overrides: Mapping[int, Mapping[str, Any]], **columns: Any) -> Population:
    """A population as the coordinator knows it: who there is and how much they hold, and not one row.

    `columns` are what a `Partition` is told of parties with different columns.
    """
    offsets = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))])
    rows, kind = int(offsets[-1]), schema.target.kind
    target = np.broadcast_to(np.int64(0), (rows, schema.target.size) if kind == "multilabel" else (rows,))
    source = Source(_Absent((rows, *schema.shape)), None if kind == "none" else target)
    partition = Partition(np.arange(rows), offsets, tuple(names), **columns)
    return Population(Dataset(schema, source, name="parties"), partition, split, seed, overrides)


class _Absent:
    """Features of rows that can be counted but are not here."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __getitem__(self, rows: Any) -> Any:
        raise PermissionDenied("these rows are with their parties", remedy="write a task and ask the parties to run it")
