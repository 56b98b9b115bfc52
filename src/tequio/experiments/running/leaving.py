"""Parties and rows that a run is without.

Rows are dealt to all parties first and taken out afterwards. A party that is left out keeps its number and its name and
holds no row, so nothing asks it, and every other party has the rows, the split and the random streams that it had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tequio.errors import ConfigError, DataError
from tequio.federation.population import Population

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.partition import Partition
    from tequio.experiments.config.tables import Data

    Both = tuple[Dataset, Dataset]


def without(how: Data, partition: Partition, rows: Both) -> tuple[Partition, Both, tuple[int, ...]]:
    """The dealing, all rows of the simulation and those that were dealt, without what `data.without` and
    `data.without_rows` name; and the numbers of the parties that are left out."""
    if not how.without and not how.without_rows:
        return partition, rows, ()
    if partition.columns is not None:
        raise ConfigError("data.without takes parties out together with their rows, and these parties hold columns of "
                          "rows that others hold too", remedy="leave data.without out, and deal fewer columns")
    raw, train = rows
    parties, leaves = _leaving(how, partition, train)
    owner = np.repeat(np.arange(len(partition)), partition.sizes)
    gone = np.zeros(len(train), dtype=bool)
    gone[partition.rows[leaves]] = True
    gone[partition.rows[~leaves]] = False  # some partitions give a row to several parties
    places = np.cumsum(~gone) - 1
    sizes = np.bincount(owner[~leaves], minlength=len(partition))
    kept = replace(partition, rows=places[partition.rows[~leaves]], offsets=np.concatenate([[0], np.cumsum(sizes)]))
    absent = _source_rows(train)[gone]
    return kept, (raw.take(~np.isin(_source_rows(raw), absent)), train.take(~gone)), parties


def _leaving(how: Data, partition: Partition, train: Dataset) -> tuple[tuple[int, ...], NDArray[np.bool_]]:
    """The parties that go, and which places of the partition's rows go with them."""
    dealt = Population(train, partition)
    parties = tuple(sorted({dealt.index(name) for name in how.without}))
    if len(parties) == len(partition):
        raise ConfigError("data.without leaves no party in the run", remedy="name fewer parties")
    leaves = np.isin(np.repeat(np.arange(len(partition)), partition.sizes), parties)
    for name, ids in how.without_rows.items():
        party = dealt.index(name)
        own, wanted = dealt.whole(party).ids.astype(str), {str(row) for row in ids}
        unknown = sorted(wanted.difference(own.tolist()))
        if unknown:
            raise DataError(f"party '{name}' holds no row with the id '{unknown[0]}'"
                            f"{f' (nor {len(unknown) - 1} others)' if len(unknown) > 1 else ''}",
                            remedy=f"name ids of its rows in data.without_rows.{name}")
        going = np.isin(own, list(wanted))
        if going.all():
            raise ConfigError(f"data.without_rows.{name} takes all rows of the party",
                              remedy=f"set data.without = [\"{name}\"]")
        leaves[partition.offsets[party]:partition.offsets[party + 1]] |= going
    return parties, leaves


def _source_rows(dataset: Dataset) -> NDArray[np.int64]:
    """Which rows of the source a view shows."""
    return np.arange(dataset.source.features.shape[0]) if dataset.rows is None else np.asarray(dataset.rows)
