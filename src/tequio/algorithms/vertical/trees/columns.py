"""A party's own columns: bins, the splits that it may offer, and those of its splits that were taken.

What a split looks at never leaves the party: others know it by the number of its record alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tequio.errors import PayloadError
from tequio.learners.trees.bins import Bins, quantile_cuts
from tequio.learners.trees.learner import numeric_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tequio.data.dataset import Dataset
    from tequio.federation.party import Party
    from tequio.federation.payload import Payload


@dataclass(frozen=True, eq=False)
class OwnColumns:
    """(columns, rows) the bin of each number, and the bins."""

    codes: NDArray[np.unsignedinteger[Any]]
    bins: Bins

    @classmethod
    def of(cls, rows: Dataset, most_bins: int, algorithm: str) -> OwnColumns:
        """The columns of some rows, in at most so many bins each."""
        features = numeric_rows(rows, algorithm) if len(rows.schema.features) else np.zeros((len(rows), 0))
        bins = Bins(quantile_cuts(features, most_bins))
        return cls(bins.codes(features) if bins.cuts else np.zeros((0, len(rows)), np.uint8), bins)

    @classmethod
    def kept_by(cls, party: Party) -> OwnColumns:
        """As the party keeps them in its private state."""
        kept = party.state["columns"]
        return cls(kept["codes"], Bins(tuple(kept["cuts"])))

    def to_payload(self) -> Payload:
        """For the party's private state."""
        return {"codes": self.codes, "cuts": list(self.bins.cuts)}

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Places of the bins above which a column can be cut: all but the last of each column."""
        last = np.zeros(self.bins.total if self.bins.cuts else 0, dtype=bool)
        if self.bins.cuts:
            last[self.bins.starts + self.bins.sizes - 1] = True
        return np.flatnonzero(~last)

    def offered(self, share: float, rng: np.random.Generator) -> NDArray[np.int64]:
        """Places of the splits that are offered for a tree: those of a share of the columns, in a random order.

        The order keeps the receiver from seeing at once which offers belong to one column, and which to a larger cut.
        """
        places = self.places
        if share < 1 and self.bins.cuts:
            columns = len(self.bins.cuts)
            drawn = rng.permutation(columns)[:max(round(share * columns), 1)]
            places = places[np.isin(self.bins.column[places], drawn)]
        return rng.permutation(places)

    def lowest_equal(self, place: int, rows: NDArray[np.intp]) -> int:
        """The lowest place of the same column that sends the same of these rows left.

        Offers in random order are equally good there; the lowest is what growing in one place would take.
        """
        column = int(self.bins.column[place])
        codes = self.codes[column, rows]
        left = codes[codes <= place - self.bins.starts[column]]
        return int(self.bins.starts[column] + left.max()) if len(left) else place

    def left_of(self, place: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these rows go left where a column is cut above a place."""
        column = int(self.bins.column[place])
        left: NDArray[np.bool_] = self.codes[column, rows] <= place - self.bins.starts[column]
        return left


NO_RECORDS: dict[str, NDArray[Any]] = {"column": np.zeros(0, np.int32), "threshold": np.zeros(0)}


def with_record(records: Mapping[str, Any], columns: OwnColumns, place: int) -> tuple[int, Payload]:
    """The number of a new record, of a split above a place, and the records with it."""
    return len(records["column"]), {
        "column": np.append(records["column"], columns.bins.column[place]).astype(np.int32),
        "threshold": np.append(records["threshold"], columns.bins.threshold[place])}


def ways_of(records: Mapping[str, Any], record: int, rows: Dataset, whose: str) -> NDArray[np.bool_]:
    """Which rows go left at a record of the party's own."""
    if not 0 <= record < len(records["column"]):
        raise PayloadError(f"{whose} is asked for split {record} and keeps {len(records['column'])} of them",
                           remedy="its private state is not that of this run: restore it, or train anew")
    column, threshold = int(records["column"][record]), float(records["threshold"][record])
    left: NDArray[np.bool_] = numeric_rows(rows, "vertical trees")[:, column] <= threshold
    return left
