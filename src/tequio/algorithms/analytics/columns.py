"""Which columns and whose rows federated statistics look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from tequio.errors import ConfigError
from tequio.learners.flat import flat_features

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tequio.data.dataset import Dataset
    from tequio.data.schema import Schema
    from tequio.federation.federation import Federation
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload
    from tequio.federation.replies import Replies
    from tequio.federation.task import Task


@dataclass(frozen=True, eq=False)
class Scope:
    """Whose rows are looked at (None: all eligible parties), which part of them, and what is too few to be told.

    A party with fewer than `minimum_count` rows stays silent, and where a party counts rows in cells (of a histogram or
    of categories) a cell with fewer is reported as empty. The smallest and the largest value of a column are the values
    of single rows whatever the minimum.
    """

    parties: ArrayLike | None = None
    part: str = "train"
    minimum_count: int = 1

    def ask(self, federation: Federation, task: Task, columns: Sequence[str],
            payload: Payload | None = None) -> Replies:
        """Ask the parties in scope about some columns."""
        parties = federation.eligible() if self.parties is None else self.parties
        settings = {"columns": list(columns), "part": self.part, "minimum_count": self.minimum_count}
        return federation.ask(parties, task, payload, settings=settings)


def numeric_columns(schema: Schema, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The wanted columns, or all numeric ones; a categorical one among the wanted is an error."""
    return _columns(schema, wanted, categorical=False)


def categorical_columns(schema: Schema, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The wanted columns, or all categorical ones; a numeric one among the wanted is an error."""
    return _columns(schema, wanted, categorical=True)


def _columns(schema: Schema, wanted: Sequence[str], *, categorical: bool) -> tuple[str, ...]:
    right = tuple(feature.name for feature in schema.features if feature.categorical is categorical)
    if not wanted:
        return right
    for name in set(wanted).difference(right):
        schema.column(name)
        kind = "numeric" if categorical else "categorical"
        raise ConfigError(f"column '{name}' is {kind}, and there is no such statistic of {kind} columns",
                          remedy="leave the column out")
    return tuple(wanted)


def rows_in_scope(party: Party, settings: Mapping[str, Any]) -> Dataset:
    """At the party: its rows of the part in question, or none of them if they are too few to speak of."""
    rows: Dataset = getattr(party.data, settings["part"])
    return rows if len(rows) >= settings["minimum_count"] else rows.take(np.empty(0, dtype=np.int64))


def held_columns(rows: Dataset, wanted: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At the party: which of the wanted columns it holds, and their values in double precision."""
    place = {name: position for position, name in enumerate(rows.schema.names)}
    held = np.array([index for index, name in enumerate(wanted) if name in place], dtype=np.int64)
    features = flat_features(rows)
    if tuple(wanted) != rows.schema.names:
        features = features[:, [place[wanted[index]] for index in held]]
    dense = features.toarray() if sparse.issparse(features) else features
    return held, np.asarray(dense, dtype=np.float64)


def without_small(counts: NDArray[Any], minimum_count: int) -> NDArray[np.int64]:
    """Counts with those below the minimum set to zero."""
    return np.where(counts >= minimum_count, counts, 0).astype(np.int64)
